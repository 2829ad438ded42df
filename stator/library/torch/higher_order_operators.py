"""Rules for torch's operators that take functions.   torch.cond, while_loop, scan, map, associative_scan

Each function is interpreted once, into a graph of its own, which one node takes.  A function that changes anything
outside breaks the graph, as does one whose results the operator does not accept.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops import map as map_rows
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.cond import cond, cond_op
from torch._higher_order_ops.flex_attention import flex_attention as flex_attention_op
from torch._higher_order_ops.invoke_subgraph import invoke_subgraph_placeholder
from torch._higher_order_ops.map import map_impl
from torch._higher_order_ops.scan import scan_op
from torch._higher_order_ops.while_loop import while_loop_op
from torch._higher_order_ops.wrap import dynamo_bypassing_wrapper, wrap
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break, Strategy
from stator.graph.record.subgraph import Subgraph, all_operands
from stator.graph.values import known_values
from stator.guards.guard import is_constant
from stator.interp.branches import captured_branches
from stator.interp.calls.named_regions import NamedRegions
from stator.interp.frame import Continuation, Raised
from stator.interp.mutation_check import MutationCheck, Unwatched
from stator.interp.numbers.symbolic_numbers import as_bool
from stator.interp.rule_registry import rule, suspending_rule
from stator.interp.vm import VM
from stator.shapes.symbolic_values import SYMBOLIC, is_unbacked


def watched(vm: VM, what: str) -> MutationCheck:
    """A witness of mutations from here on."""
    try:
        return MutationCheck(vm)
    except Unwatched as why:
        raise Break("SB016", f"{what}, while {captured_branches.reason_of(why)}") from None


def empty_like(fake: torch.Tensor) -> torch.Tensor:
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return torch.empty_strided(fake.shape, fake.stride(), dtype=fake.dtype, device=fake.device)


def interpreted(vm: VM, what: str, function: Callable[..., Any], given: list[Any], more: tuple[Any, ...],
                kwargs: dict[str, Any] | None = None) -> tuple[Subgraph, Any]:
    """The graph of one function, called with fakes of its own (`given`) and with outer values; and what it returned."""
    vm.recorder.propagation.require_exact()  # which tensors share memory must be known
    witness = watched(vm, what)
    with Subgraph(vm.recorder) as part:
        for number, fake in enumerate(given):
            part.bind(f"given_{number}", fake)
        result = vm.call_sync(function, (*given, *more), kwargs or {})
        vm.heap.expose_deep(result)
    changed = witness.changed()
    if changed:
        raise Break("SB016", f"{what} of a function with effects: {changed}")
    return part, result


@suspending_rule(wrap)
def _wrap(vm: VM, cont: Continuation | None, /, *args: Any, **kwargs: Any) -> None:
    """Eager calls the function; its operations stay together in the body of one node, where they can."""
    if not args:
        raise Break("SB016", "the operator wrap, without a function")
    if Strategy.WRAPPED_BODIES in vm.turned_off:
        return vm.call(args[0], args[1:], kwargs, cont)
    try:
        result = _wrapped(vm, args, kwargs)
    except Break as why:
        why.stop.turn_off = why.stop.turn_off or Strategy.WRAPPED_BODIES
        raise
    vm.give(result, cont)


def _wrapped(vm: VM, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    what = "the operator wrap"
    part, result = interpreted(vm, what, args[0], [], args[1:], kwargs)
    leaves = pytree.tree_leaves(result)
    if not all(type(leaf) is FakeTensor or type(leaf) in SYMBOLIC or is_constant(leaf) for leaf in leaves):
        raise Break("SB016", f"{what} of a function that returns something else than tensors and numbers")
    known = {id(fake) for fake in part.outer_fakes}
    made = list({id(leaf): leaf for leaf in leaves if type(leaf) is FakeTensor and id(leaf) not in known}.values())
    with part.reopened():
        part.finish(made)
    if any(type(leaf) in SYMBOLIC and not vm.recorder.symbols.can_make(leaf.node.expr) for leaf in leaves):
        raise Break("SB016", f"{what} of a function that returns a number of its graph")
    modules, operands = modules_of(part, roles=("wrap_body",))
    vm.recorder.record("call_function", wrap, (modules[0], *operands), {}, tuple(made))
    return result


def _called_through(wrapper: Callable[..., Any], function: Callable[..., Any], args: tuple[object, ...],
                    kwargs: dict[str, object]) -> Any:
    return wrapper(function)(*args, **kwargs)


@suspending_rule(dynamo_bypassing_wrapper)
def _bypassing(vm: VM, cont: Continuation | None, wrapper: Any, function: Any, /, *args: Any, **kwargs: Any) -> None:
    """Eager calls the function through what the wrapper makes of it; a name of one belongs to compiled graphs."""
    if type(wrapper) is str:
        raise Break("SB016", "the operator dynamo_bypassing_wrapper, with the name of a wrapper")
    vm.call(_called_through, (wrapper, function, args, kwargs), {}, cont)


def operator_rule(operator: Any, least: int, suspends: bool = False) -> Callable[[Any], Any]:
    """A rule that gets the operator's arguments in their order, however they were named."""
    signature = inspect.signature(type(operator).__call__)

    def register(body: Any) -> Any:
        @suspending_rule(operator)
        def call(vm: VM, cont: Any, /, *args: Any, **kwargs: Any) -> None:
            try:
                bound = signature.bind(operator, *args, **kwargs)
            except TypeError as error:
                raise Break("SB016", f"the operator {operator.name()}: {error}") from None
            if len(bound.args) <= least or bound.kwargs:
                raise Break("SB016", f"the operator {operator.name()}, called with other arguments than torch calls it")
            if suspends:
                return body(vm, cont, *bound.args[1:])
            vm.give(body(vm, *bound.args[1:]), cont)

        return body

    return register


@operator_rule(cond_op, 4, suspends=True)
def _cond(vm: VM, cont: Any, condition: Any, when_true: Any, when_false: Any, operands: Any) -> None:
    vm.heap.expose_deep(operands)
    if type(condition) in (bool, int, float) or type(condition) in SYMBOLIC and not is_unbacked(condition):
        return vm.call(when_true if condition else when_false, tuple(operands), {}, cont)
    if type(condition) is FakeTensor and condition.numel() != 1:
        raise Break("SB016", "torch.cond on a tensor of several elements")
    try:
        ways = [interpreted(vm, "torch.cond", function, [], tuple(operands)) for function in (when_true, when_false)]
    except Raised as raised:  # perhaps of the way that is not taken
        raise Break("SB016", f"torch.cond: a way raises {type(raised.exc).__name__}") from None
    merge = captured_branches.Merge(vm, always_new=True)
    held = captured_branches.condition_of(vm, condition) if type(condition) is FakeTensor else as_bool(vm, condition)
    try:
        plan = merge.plan(ways[0][1], ways[1][1])
        results = captured_branches.record_cond(vm, held, ways[0][0], ways[1][0], merge) if merge.pairs else []
    except captured_branches.Unequal as why:
        raise Break("SB016", f"torch.cond: {why}") from None
    vm.give(merge.builder(results)(plan), cont)


# torch's function around an operator is interpreted, and a break in it is one before it is called
rule(cond, while_loop, scan, map_rows, associative_scan)(
    lambda vm, callee, /, *args, **kwargs: vm.sync(lambda: vm.push(vm.frame_for(callee, args, kwargs))))


@suspending_rule(invoke_subgraph_placeholder)
def _nested_region(vm: VM, cont: Continuation | None, func: object, *args: object, **kwargs: object) -> None:
    """torch.compiler.nested_compile_region: the nodes of the call are marked, and become a piece."""
    vm.recorder.region.named = vm.recorder.region.named or NamedRegions()
    vm.call(func, args, kwargs, cont)


def carries_numbers(graph: fx.Graph) -> bool:
    return any(not isinstance(value, fx.Node) or type(value.meta.get("example_value")) in SYMBOLIC
               for node in graph.find_nodes(op="call_function", target=while_loop_op) for value in node.args[2])


def like(vm: VM, value: Any) -> Any:
    """A fake of its own that looks the same; a leaf, where it takes part in gradients."""
    if (type(value) is int or type(value) is torch.SymInt) and Strategy.CARRIED_NUMBERS not in vm.turned_off:
        env = vm.recorder.symbols.shape_env
        with env.ignore_fresh_unbacked_symbols():  # nobody makes it: each turn of the loop is given another
            return env.create_unbacked_symint()
    if type(value) is not FakeTensor:
        raise Break("SB016", f"a loop of the graph that carries a {type(value).__name__}")
    with torch._C.DisableTorchFunction():
        return empty_like(value).requires_grad_(value.requires_grad)


def slice_like(vm: VM, value: Any) -> Any:
    if type(value) is not FakeTensor or not value.dim():
        raise Break("SB016", "a loop of the graph over something else than the rows of a tensor")
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return like(vm, value.select(0, 0).clone())


def require_tensors(what: str, values: Iterable[Any]) -> list[Any]:
    if type(values) not in (tuple, list) or not all(type(value) is FakeTensor for value in values):
        raise Break("SB016", f"{what} of a function that returns something else than tensors")
    return list(values)


def finish(vm: VM, what: str, part: Subgraph, outputs: list[Any], given: list[Any]) -> None:
    try:
        captured_branches.close(vm, part, outputs, False, given)
    except captured_branches.Unequal as why:
        raise Break("SB016", f"{what}: {why}") from None


def modules_of(*parts: Subgraph, roles: tuple[str, ...] = ()) -> tuple[list[Any], tuple[Any, ...]]:
    """The inner graphs, and what they take from outside, in one order for all; graphs are named by their roles."""
    operands = all_operands(*parts)
    for part in parts:
        part.align(operands)
        assert part.module is not None
        part.module.recompile()
    for part, role in zip(parts, roles, strict=False):
        assert part.module is not None
        part.module.meta["role"] = role
    return [part.module for part in parts], tuple(operands)


def perform(vm: VM, what: str, operation: Any, *args: Any) -> Any:
    """The node; its result is what the operator itself makes of fake tensors, which know one round alone."""
    with torch._C.DisableTorchFunction(), vm.recorder.symbols.dispatcher():
        try:
            result = operation(*args)
        except Exception as error:
            raise Break("SB016", f"{what}: {type(error).__name__}: {error}") from None
    known_values.forget_constants((), result)
    vm.recorder.record("call_function", operation, args, {}, result)
    return result


def require_same_carries(what: str, carries: Any, results: list[Any]) -> None:
    for before, after in zip(carries, results, strict=True):
        why = captured_branches.differing(before, after, without_history=True)
        if why:
            raise Break("SB016", f"{what} of a function that changes the {why} of what it carries")


def require_alike(what: str, carries: list[Any], results: list[Any]) -> list[Any]:
    """Numbers where numbers are carried, tensors of the same kind where tensors are."""
    numbers = [type(carry) is torch.SymInt for carry in carries]
    if any(number != (type(result) in (int, torch.SymInt)) for number, result in zip(numbers, results, strict=True)):
        raise Break("SB016", f"{what} of a function that returns something else than it is given")
    tensors = require_tensors(what, [result for result, number in zip(results, numbers, strict=True) if not number])
    require_same_carries(what, [carry for carry, number in zip(carries, numbers, strict=True) if not number], tensors)
    return results


@operator_rule(while_loop_op, 4)
def _while_loop(vm: VM, condition: Any, body: Any, carried: Any, more: Any) -> Any:
    what = "torch.while_loop"
    vm.heap.expose_deep(carried)
    given = [[like(vm, value) for value in carried] for _ in range(2)]
    asks, answer = interpreted(vm, what, condition, given[0], tuple(more))
    if type(answer) is not FakeTensor and type(answer) is not torch.SymBool:
        raise Break("SB016", f"{what} with a condition that is always {answer}")
    turns, result = interpreted(vm, what, body, given[1], tuple(more))
    leaves, spec = pytree.tree_flatten(result)
    if len(leaves) != len(given[1]):
        raise Break("SB016", f"{what} of a function that returns another number of tensors than it takes")
    results = require_alike(what, given[1], leaves)
    finish(vm, what, turns, results, given[1])
    with asks.reopened():
        asks.finish([answer], single=True)
    modules, operands = modules_of(asks, turns, roles=("cond_fn", "body_fn"))
    results = perform(vm, what, while_loop_op, *modules, tuple(carried), operands)
    return pytree.tree_unflatten(list(results), spec)


@operator_rule(scan_op, 3)
def _scan(vm: VM, combine: Any, init: Any, xs: Any, more: Any = ()) -> Any:
    for value in (init, xs):
        vm.heap.expose_deep(value)
    given = [like(vm, value) for value in init] + [slice_like(vm, value) for value in xs]
    part, results = interpreted(vm, "scan", combine, given, tuple(more))
    if type(results) not in (tuple, list) or len(results) != 2:
        raise Break("SB016", "scan of a function that returns something else than what it carries and a result")
    (carries, carried), (leaves, spec) = map(pytree.tree_flatten, results)
    results = require_tensors("scan", [*carries, *leaves])
    if len(carries) != len(init):
        raise Break("SB016", "scan of a function that carries another number of tensors than it is given")
    require_same_carries("scan", given[:len(init)], carries)
    finish(vm, "scan", part, results, given)
    modules, operands = modules_of(part, roles=("scan_combine_fn",))
    made = list(perform(vm, "scan", scan_op, modules[0], list(init), list(xs), operands))
    return [pytree.tree_unflatten(made[:len(init)], carried), pytree.tree_unflatten(made[len(init):], spec)]


@operator_rule(map_impl, 3)
def _map(vm: VM, function: Any, xs: Any, more: Any) -> Any:
    for value in (xs, more):
        vm.heap.expose_deep(value)
    given = [slice_like(vm, value) for value in xs]
    part, result = interpreted(vm, "map", function, given, tuple(more))
    leaves, spec = pytree.tree_flatten(result)
    finish(vm, "map", part, require_tensors("map", leaves), given)
    modules, operands = modules_of(part, roles=("map_body",))
    results = perform(vm, "map", map_impl, modules[0], tuple(xs), operands)
    return pytree.tree_unflatten(list(results), spec)


@operator_rule(associative_scan_op, 2)
def _associative_scan(vm: VM, combine: Any, xs: Any, more: Any = ()) -> Any:
    vm.heap.expose_deep(xs)
    given = [slice_like(vm, value) for value in (*xs, *xs)]
    part, results = interpreted(vm, "associative_scan", combine, given, tuple(more))
    finish(vm, "associative_scan", part, require_tensors("associative_scan", results), given)
    modules, operands = modules_of(part, roles=("associative_scan_combine_fn",))
    return perform(vm, "associative_scan", associative_scan_op, modules[0], list(xs), operands)


def number_of(query: Any) -> Any:
    """A batch, head or position number, as a tensor without dimensions."""
    with torch._C.DisableTorchFunction(), torch.no_grad():
        return torch.empty((), dtype=torch.int32, device=query.device)


def attention_function(vm: VM, function: Callable[..., Any], given: list[Any]) -> tuple[Any, tuple[Any, ...]]:
    """The graph of a score or mask function, and what it takes from outside beside its arguments."""
    vm.modes.indexes_stay_tensors, before = True, vm.modes.indexes_stay_tensors  # bias[position]: no position is known
    try:
        part, result = interpreted(vm, "flex_attention", function, given, ())
    finally:
        vm.modes.indexes_stay_tensors = before
    if type(result) is not FakeTensor or result.dim():
        raise Break("SB016", "flex_attention with a function that returns something else than one number")
    with part.reopened():
        part.finish([result], single=True)
    modules, operands = modules_of(part)
    return modules[0], operands


@operator_rule(flex_attention_op, 7)
def _flex_attention(vm: VM, query: Any, key: Any, value: Any, score_mod: Any, block_mask: Any, scale: Any,
                    kernel_options: Any, *buffers: Any) -> Any:
    if any(len(more) for more in buffers):
        raise Break("SB016", "flex_attention with buffers beside its functions")
    vm.heap.expose_deep((query, key, value, block_mask, scale, kernel_options))
    *mask, mask_mod = block_mask
    with torch._C.DisableTorchFunction(), torch.no_grad():
        score = torch.empty((), dtype=query.dtype, device=query.device).requires_grad_(query.requires_grad)
    scores, of_scores = attention_function(vm, score_mod, [score, *(number_of(query) for _ in range(4))])
    masks, of_masks = attention_function(vm, mask_mod, [number_of(query) for _ in range(4)])
    return perform(vm, "flex_attention", flex_attention_op, query, key, value, scores, (*mask, masks), scale,
                   dict(kernel_options), of_scores, of_masks)
