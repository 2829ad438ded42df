"""Rules for autograd: torch.autograd.grad, forward mode, parameters.

    g, = torch.autograd.grad(y.sum(), x)        ->  one node, whose results are new fakes
    with dual_level(): make_dual(x, t) ...      ->  nodes; the trace enters the level for real, and must leave it
    nn.Parameter(t)                             ->  a node at which compilers cut (graph/analysis/autograd_boundaries)

torch.autograd.grad needs outputs whose whole history is in the graph.  The engine runs on the fakes to find which
gradients there are; its errors are breaks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch import predispatch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd import forward_ad
from torch.fx.node import has_side_effect

from stator import _core
from stator.breaks import Break, Strategy
from stator.graph.analysis import autograd_boundaries as boundaries
from stator.graph.metadata.sparse_gradients import sparse_gradients_of_fakes
from stator.graph.record.refused_operations import is_sparse
from stator.graph.state import torch_state
from stator.host.suspended_patches import own_entry
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.lookup import find
from stator.interp.rule_registry import rule
from stator.interp.tensors.tensor_bookkeeping import behind_autograd, is_leaf
from stator.interp.vm import VM
from stator.library.autograd.gradient_checks import checked, guard_engine, without_anomaly_mode

_WHAT = "torch.autograd.grad inside captured code"
FORWARD = Strategy.FORWARD_MODE
C: Any = torch._C
# What forward_ad calls: up to torch 2.11, the C functions themselves.
ENTER = getattr(predispatch, "_enter_dual_level", C._enter_dual_level)
EXIT = getattr(predispatch, "_exit_dual_level", C._exit_dual_level)
MAKE = getattr(predispatch, "_make_dual", torch._VF._make_dual)
UNPACK = getattr(predispatch, "_unpack_dual", torch._VF._unpack_dual)
_PARAMETER = "a Parameter or Buffer made inside the captured code"


@rule(torch.autograd.grad)
def _grad(vm: VM, outputs: Any, inputs: Any, grad_outputs: Any = None, retain_graph: Any = None,
          create_graph: Any = False, only_inputs: Any = True, allow_unused: Any = None, is_grads_batched: Any = False,
          materialize_grads: Any = False) -> Any:
    options = {"retain_graph": retain_graph, "create_graph": create_graph, "allow_unused": allow_unused,
               "materialize_grads": materialize_grads}
    try:
        require_plain_engine(vm, _WHAT, (only_inputs, is_grads_batched, *options.values()))
        if is_grads_batched or not only_inputs:
            raise Break("SB016", f"{_WHAT}, of batched gradients")
        return captured_gradients(vm, outputs, inputs, grad_outputs, options)
    except Break as stop:
        # A compiled graph has a history of its own for each of the two passes: user code of the backward runs in both.
        if create_graph is False or stop.stop.turn_off is not None:
            raise
        raise behind_autograd(vm, stop.code, stop.detail) from None


def captured_gradients(vm: VM, results: object, wanted: object, grad_outputs: object, options: dict[str, Any]
                       ) -> tuple[Any, ...]:
    outputs, inputs = tensors_of(vm, _WHAT, results), tensors_of(vm, _WHAT, wanted)
    seeds = None if grad_outputs is None else tensors_of(vm, _WHAT, grad_outputs, True)
    leaves_behind(vm, _WHAT, outputs)
    if any("is_branch" in node.meta for output in outputs for node in boundaries.behind(vm.recorder.node_of(output))):
        raise Break("SB016", f"{_WHAT}, through a branch")
    found = gradients_of_fakes(vm, _WHAT, outputs, inputs, seeds, options)
    if any(map(handed_on(vm, found), found)):
        raise Break("SB016", f"{_WHAT}, which gives one tensor twice")
    record_gradients(vm, outputs, inputs, seeds, options, found)
    return found


def require_plain_engine(vm: VM, what: str, flags: tuple[Any, ...], accumulates: bool = False) -> None:
    """Break where the engine would call the program beside hooks on leaves, or do otherwise than compute gradients."""
    if Strategy.GRADIENTS_INSIDE in vm.turned_off or vm.recorder.scope.enclosing is not None:
        raise Break("SB016", what)
    vm.recorder.refuse_tangents(what)
    hooked = any(hook is not None and (hook.node is None and not accumulates or hook.on_node)
                 for _, hook in vm.autograd.hooks.values())
    if (vm.autograd.retained or vm.autograd.watches) and not accumulates or vm.autograd.pushed_hooks or hooked:
        raise Break("SB016", f"{what}, after retain_grad() or a hook was registered")
    if any(flag is not None and type(flag) is not bool for flag in flags):
        raise Break("SB016", f"{what}, with flags that are no constants")
    guard_engine(vm, what)
    if any(note.kept for note in vm.tensors.data.values()):
        raise Break("SB016", f"{what}, after an assignment to Tensor.data of a saved tensor")


def tensors_of(vm: VM, what: str, value: object, or_none: bool = False) -> list[Any]:
    if type(value) is FakeTensor:
        return [value]
    if is_a(value, (dict, torch.Tensor)):
        raise Break("SB016", f"{what}, of a {type(value).__name__}")
    found = vm.collect(value)
    if not all(type(each) is FakeTensor or or_none and each is None for each in found):
        raise Break("SB016", f"{what}, of something else than tensors")
    return found


def leaves_behind(vm: VM, what: str, outputs: list[Any], accumulates: bool = False) -> list[Any]:
    """The leaves that the engine reaches; a break where it could leave the graph, or, to no leaf, call a hook there."""
    recorder = vm.recorder
    with torch._C.DisableTorchFunction():
        functions = boundaries.functions_behind(outputs)
        leaves = [each.variable for each in functions if type(each) is boundaries.AccumulateGrad]
        leaves += [each for each in outputs if each.requires_grad and each.is_leaf and not any(
            each is leaf for leaf in leaves)]
        foreign = any(id(leaf) not in recorder.nodes for leaf in leaves) or any(
            type(each.fake) is FakeTensor and each.tensor is not None and each.fake.requires_grad
            and not each.fake.is_leaf and (each.fake._version or each.fake.grad_fn in functions)
            for each in recorder.inputs)
    if foreign:
        raise Break("SB016", f"{what}, of what was computed before")
    # Replayed results may lack edges of their history.
    used = {each for output in outputs for node in boundaries.behind(recorder.node_of(output))
            for each in node.all_input_nodes if each.op == "placeholder" and boundaries.wants_grad(each)}
    if not used <= {recorder.node_of(leaf) for leaf in leaves}:
        raise Break("SB016", f"{what}, whose history the trace does not know")
    if accumulates:
        return leaves
    trackers = [tracker for leaf in leaves if (tracker := vm.heap.by_standin.get(id(leaf))) is not None]
    if not _core.plain_leaves(*[tracker.original for tracker in trackers]):
        raise Break("SB016", f"{what}, which calls a hook")
    vm.heap.guard_call(_core.plain_leaves, True, *[tracker.source for tracker in trackers])
    return leaves


def gradients_of_fakes(vm: VM, what: str, outputs: list[Any], inputs: list[Any], seeds: object, options: dict[str, Any]
                       ) -> tuple[Any, ...]:
    """Run the engine on the fakes; it frees what it frees in eager."""
    try:
        # Gradients are as large as their tensors: a size that a formula makes (of a mask) stays inside.
        with torch._C.DisableTorchFunction(), vm.recorder.symbols.dispatcher(), \
                vm.recorder.symbols.shape_env.ignore_fresh_unbacked_symbols(), \
                torch.autograd.set_multithreading_enabled(False), without_anomaly_mode(), \
                sparse_gradients_of_fakes(boundaries.functions_behind(outputs)):
            found: tuple[Any, ...] = torch.autograd.grad(outputs, inputs, seeds, **options)
    except Break:  # of code of the program that the engine calls
        raise
    except Raised as raised:  # leaves that the engine has reached before have their gradients
        raise behind_autograd(vm, "SB016", f"{what}, which raises a {type(raised.exc).__name__}") from None
    except Exception as error:
        raise Break("SB016", f"{what}: {error}".splitlines()[0]) from None
    if not all(each is None or type(each) is FakeTensor for each in found):
        raise Break("SB016", f"{what}, which gives other things than plain tensors")
    return found


def handed_on(vm: VM, found: tuple[Any, ...]) -> Any:
    """Whether a gradient is a tensor that others have too: a seed, or the gradient of another leaf."""
    ids = [id(each) for each in found]
    return lambda each: each is not None and (id(each) in vm.recorder.nodes or ids.count(id(each)) > 1)


def record_gradients(vm: VM, outputs: list[Any], inputs: list[Any], seeds: object, options: dict[str, Any],
                     found: tuple[Any, ...], target: Callable[..., Any] = torch.autograd.grad,
                     more: tuple[Any, ...] = (), made: Sequence[Any] = ()) -> fx.Node:
    """One node; `more` are arguments, and `made` are results, behind the usual ones."""
    target = checked(vm, target, outputs, bool(more))
    if any(each is not None and is_sparse(each) for each in found):
        vm.recorder.backend.has_sparse = True
        if not vm.recorder.backend.in_order:  # no compiler may have the node: pieces must know what shares memory
            vm.recorder.backend.meets_sparse = True
            vm.recorder.propagation.require_exact()
    node = vm.recorder.record("call_function", target, (outputs, inputs, seeds, *more), options, (*found, *made))
    vm.recorder.log.changes += 1
    vm.autograd.consumes = vm.autograd.consumes or not (
        options["create_graph"] if options["retain_graph"] is None else options["retain_graph"])
    return node


has_side_effect(ENTER)
has_side_effect(EXIT)


@rule(ENTER)
def _enter(vm: VM) -> int:
    """Tangents are on the fakes themselves: no remembered result, and no stand-in of another kind, has any."""
    recorder = vm.recorder
    if FORWARD in vm.turned_off or recorder.scope.enclosing is not None or vm.modes.active or recorder.classes \
            or recorder.wrappers.behind or torch.is_inference_mode_enabled():
        raise Break("SB016", FORWARD)
    recorder.propagation.require_exact()
    guard_forward_mode(vm)
    try:
        level = C._enter_dual_level()
    except Exception as error:  # there is one already
        raise Raised(error) from None
    vm.autograd.dual_levels.append(level)
    vm.recorder.region.tangents = vm.torch_state.dual_levels = True
    vm.recorder.record("call_function", ENTER, (), {}, None)
    return level


def guard_forward_mode(vm: VM) -> None:
    """Operators inside a level compute tangents by this setting, which no guard of an entry covers."""
    state, (setting, *_) = vm.torch_state, torch_state.FORWARD_MODE
    if not state.is_changed(setting):
        vm.heap.guard_call(C._is_fwd_grad_enabled, C._is_fwd_grad_enabled())
    elif not vm.recorder.backend.in_order and not setting.read()[0]:
        raise Break("SB016", f"{FORWARD} beside a changed torch.autograd.forward_ad._set_fwd_grad_enabled")


@rule(EXIT)
def _exit(vm: VM, level: object) -> None:
    if not vm.autograd.dual_levels or type(level) is not int or level != vm.autograd.dual_levels[-1]:
        raise Break("SB016", f"leaving a level of {FORWARD} that was not entered here")
    C._exit_dual_level(level=vm.autograd.dual_levels.pop())
    vm.recorder.region.tangents = bool(vm.autograd.dual_levels)
    vm.recorder.record("call_function", EXIT, (), {"level": level}, None)


def require_left(vm: VM) -> None:
    if vm.autograd.dual_levels:
        raise Break("SB016", f"{FORWARD} is still on at the end of the call")


@rule(forward_ad._maybe_load_decompositions)
def _load(vm: VM) -> None:
    with C.DisableTorchFunction():
        forward_ad._maybe_load_decompositions()  # once in a process


@rule(MAKE, UNPACK)
def _on_tensors(vm: VM, callee: object, /, *args: object, **kwargs: object) -> Any:
    if not vm.autograd.dual_levels:
        raise Break("SB016", f"{FORWARD}, entered before the call")
    if any(type(value) is not FakeTensor for value in args):
        raise Break("SB016", f"{FORWARD} of what is no tensor")
    return vm.torch_call(callee, args, kwargs)


def require_plain(vm: VM, what: str) -> None:
    """Break where the graph could not be cut at this place."""
    recorder = vm.recorder
    recorder.refuse_tangents(what)
    if recorder.scope.enclosing is not None or recorder.region.marks or vm.modes.active or recorder.classes \
            or recorder.wrappers.behind or recorder.symbols.has_fresh and not recorder.backend.in_order:
        raise Break("SB016", what)
    # Pieces must know which of their inputs share memory.
    if not recorder.backend.in_order:
        recorder.propagation.require_exact()


@rule(torch.nn.Parameter)
def _parameter(vm: VM, /, data: Any = None, requires_grad: Any = True, *args: object, **kwargs: object) -> Any:
    if find(vm, torch.nn.Parameter, "__new__") is not own_entry(torch.nn.Parameter, "__new__"):
        raise Break("SB016", "a Parameter made by a replaced Parameter.__new__")
    if args or kwargs or type(data) is not FakeTensor or type(requires_grad) is not bool:
        raise Break("SB016", _PARAMETER)
    require_plain(vm, _PARAMETER)
    with torch._C.DisableTorchFunction():
        if requires_grad and not (data.is_floating_point() or data.is_complex()) or data.is_inference():
            raise Break("SB016", _PARAMETER)
        made = data.detach().requires_grad_(requires_grad)
    made._is_param = True
    vm.recorder.propagation.changed((data,))
    vm.recorder.record("call_function", boundaries.new_parameter, (data, requires_grad), {}, made)
    vm.recorder.log.changes += 1
    return made


@rule(C.TensorBase.retain_grad)
def _retain_grad(vm: VM, fake: FakeTensor, /) -> Any:
    """A node at which compilers cut the graph; no compiler gets a graph that has used the tensor already."""
    tracker = vm.heap.by_standin.get(id(fake))
    with torch._C.DisableTorchFunction():
        has_gradient = fake.requires_grad
    if not has_gradient:
        vm.native_unhooked(C.TensorBase.retain_grad, (fake,))  # raises what eager raises
    if not is_leaf(vm, fake, tracker):
        if tracker is None and vm.recorder.scope.enclosing is None \
                and any(map(boundaries.wants_grad, vm.recorder.node_of(fake).users)):
            vm.recorder.keep_as_it_is()
        if tracker is not None:
            raise Break("SB016", "retain_grad()")
        require_plain(vm, "retain_grad()")
        vm.recorder.record("call_function", boundaries.retain_gradient, (fake,), {}, None)
        vm.recorder.log.changes += 1
        vm.autograd.retained[id(fake)] = fake
    return None
