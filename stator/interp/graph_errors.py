"""Errors of a graph: handlers that might catch them, runtime assertions, and the order of effects around them.

    try: y = x[i]  except IndexError: ...    ->  the node is marked: it breaks where the call cannot be repeated
    1 / t.item()                             ->  the graph asserts a divisor other than zero; else ZeroDivisionError
    log.append(1); custom(x); t[i]           ->  a cut at `custom`, which must not run twice and could see the effects
"""

from __future__ import annotations

import contextlib
import io
import types
from collections.abc import Container
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx.experimental.symbolic_shapes import expect_true
from torch.utils._sympy.symbol import SymT, symbol_is_type

from stator.breaks import Break, Strategy
from stator.code.enclosing_handlers import catchers
from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.graph.analysis.may_fail import ANY, CAUGHT, CLEANUP, NAMED, Memory, is_caught, node_may_fail
from stator.graph.analysis.mutation import (
    COLLECTIVES,
    PURE_KERNELS,
    operator_name,
    qualified_name,
    why_once,
    writes,
)
from stator.graph.analysis.shared_memory import sharing_memory
from stator.heap.outside_changes import changed_trackers
from stator.heap.reached_state import Reach, runs_on_fakes
from stator.host.value_kinds import is_a, mro_of
from stator.interp.frame import Frame, Place, add_place, outward
from stator.interp.mechanisms import has_changes
from stator.interp.services import VM
from stator.shapes.symbolic_values import is_unbacked

NOTHING = 0
# Of the exceptions that programs name, those that no kernel of torch raises.
_OTHERS = frozenset({"AttributeError", "FileNotFoundError", "ImportError", "KeyError", "KeyboardInterrupt",
                     "ModuleNotFoundError", "NameError", "OSError", "StopIteration", "TypeError"})  # fmt: skip
_TORCH = torch.__file__.rpartition("/")[0] + "/"
_NULL_EXIT = contextlib.nullcontext.__exit__
_GENERATOR_EXIT = contextlib._GeneratorContextManager.__exit__


def caught_in(frame: Frame, generators: object, outside: Container[int] = ()) -> int:
    """Handlers of this frame alone at its instruction, as bits; `generators`: by id; `outside`: ids of stand-ins."""
    index = frame.ip - 1 if frame.ip else 0
    if frame.unit.instructions[index].handler is None:
        return NOTHING
    found = NOTHING
    for each in catchers(frame.unit, index):
        if each.manager is not None:
            leave = frame.stack[each.manager]
            found |= ANY if may_suppress(leave, generators) else CLEANUP if has_code(leave, outside) else NOTHING
        elif each.reraises:
            found |= CLEANUP
        elif each.name in _OTHERS and each.name not in frame.scope.namespace:
            found |= NAMED
        else:
            return found | ANY
    return found


def any_cleans_up(generators: Any) -> bool:
    """Whether a generator waits where code of its own runs when it is closed: an error that drops it does that."""
    return any(body.started and not body.done and not body.running and body.frame is not None
               and caught_in(body.frame, generators) for body in list(dict.values(generators)))


def has_code(leave: object, outside: Container[int]) -> bool:
    """Whether this `__exit__` runs code outside the graph: of the program, or of a manager entered before the trace."""
    return type(leave) is types.MethodType and (leave.__func__ is _GENERATOR_EXIT or id(leave.__self__) in outside)


def may_suppress(leave: object, generators: Any) -> bool:
    """Whether this `__exit__` may suppress an exception; those of torch, C code and `finally` in generators do not."""
    if type(leave) is types.BuiltinMethodType:
        return False
    if type(leave) is not types.MethodType or type(leave.__func__) is not types.FunctionType:
        return True
    if leave.__func__ is _GENERATOR_EXIT:
        fields = object.__getattribute__(leave.__self__, "__dict__")
        body = generators.get(id(fields.get("gen")))  # its function was deleted when it was entered
        return body is None or body.frame is None or caught_in(body.frame, generators) & (NAMED | ANY) != NOTHING
    return leave.__func__ is not _NULL_EXIT and not leave.__func__.__code__.co_filename.startswith(_TORCH)


def leaves_settings(vm: VM) -> bool:
    """Whether an error leaves settings of torch changed; blocks of torch that it leaves restore what they found."""
    state = vm.torch_state
    if not state.by_program:
        return False
    blocks = []
    for frame in outward(vm.frame):  # the outermost block last
        index = frame.ip - 1 if frame.ip else 0
        blocks += [frame.stack[each.manager] for each in catchers(frame.unit, index) if each.manager is not None]
    inside = [leave for leave in blocks if type(leave) is types.MethodType and not may_suppress(leave, vm.generators)
              and leave.__func__ is not _NULL_EXIT and id(leave.__self__) not in vm.heap.by_standin]
    return id(inside[-1]) in state.changed_blocks if inside else bool(state.left_behind())


def note_caught(node: fx.Node, caught: int, breaks: bool) -> None:
    """Mark a recorded node with what might catch its error; or break there."""
    node.meta[CAUGHT] = node.meta.get(CAUGHT, NOTHING) | caught
    if breaks and node_may_fail(node, Memory(frozenset())):
        raise Break("SB002", "an operation that may fail where the program handles it, after large writes in place")


@dataclass(frozen=True)
class Assertion:
    """Exception of the program for a failed assertion of the graph, whose message holds `text`."""

    text: str
    cls: type[BaseException] | None  # None: the program itself has to raise it, as only it knows what to say
    args: tuple[Any, ...]
    places: tuple[Place, ...] = ()  # the frames that it leaves, innermost first
    symbols: frozenset[Any] = frozenset()

    def exception(self) -> BaseException:
        assert self.cls is not None, "such a graph writes nothing, and the call is made again"
        made = self.cls(*self.args)
        for place in self.places:
            add_place(made, place)
        return made


def assert_in_graph(vm: VM, condition: Any) -> bool:
    """Assert a symbolic condition as the graph runs; False where it is known not to hold."""
    symbols = condition.node.expr.free_symbols
    of_floats = any(symbol_is_type(symbol, SymT.UNBACKED_FLOAT) for symbol in symbols)
    if of_floats or not all(symbol_is_type(symbol, SymT.UNBACKED_INT) for symbol in symbols) and is_unbacked(condition):
        text = f"Runtime assertion failed for expression {condition.node.expr}"
        vm.recorder.record("call_function", torch.ops.aten._assert_scalar.default, (condition, text), {}, None)
    return of_floats or expect_true(condition)


def promise_number(vm: VM, condition: Any, error: BaseException, places: tuple[Place, ...]) -> bool:
    """Assert a symbolic condition of `error` as the graph runs; False: known not to hold."""
    recorder, expression = vm.recorder, condition.node.expr
    free = frozenset(expression.free_symbols)
    alone = all(free.isdisjoint(each.symbols) for each in vm.residual.assertions)
    vm.residual.assertions.append(Assertion(f"expression {expression}", type(error), error.args, places, free))
    before = recorder.unexplained_asserts()
    holds = assert_in_graph(vm, condition)
    if alone:
        recorder.scope.explained_asserts += recorder.unexplained_asserts() - before
    return holds


def as_program_exception(error: RuntimeError, assertions: tuple[Assertion, ...]) -> BaseException:
    text = str(error)
    for assertion in assertions:
        at = text.find(assertion.text)
        if at >= 0 and not text[at + len(assertion.text):][:1].isalnum():
            return assertion.exception()
    if text.startswith("Runtime assertion failed for expression"):  # its expression was simplified meanwhile
        return assertions[0].exception()
    return error


def keep_order(vm: VM, node: fx.Node, whole: bool) -> None:
    """Break at a call that must not run twice behind effects, and behind such a call at a node that may fail.

    Of nodes behind a write, only those that may fail break.  A capture that must be `whole` breaks at reads of state.
    """
    recorder = vm.recorder
    if node.target in PURE_KERNELS and Strategy.CUSTOM_FORMULAS in vm.turned_off:
        _cut(vm, node)
    once = why_once(node)
    ordered = once == COLLECTIVES or _keeps_order_itself(node.target)
    if once and not ordered:
        if may_change_reads(vm, node.target, whole):
            raise Break("SB006", f"{node.name} may change state that the program has read")
        _cut(vm, node)
    if recorder.log.repeatable or whole or recorder.scope.enclosing is not None or ordered:
        return
    if recorder.unexplained_asserts():
        raise Break("SB006", f"{node.name}, where sizes are asserted beside a call that must not run twice")
    if once:
        first, vm.effects.runs_once = not vm.effects.runs_once, True
        if has_effects(vm):
            raise Break("SB006", f"{node.name} sees effects outside, which come after the graph")
        if _cleans_up(node) or first and _loses_an_effect(vm, node):
            raise Break("SB006", f"{node.name} must not run twice, beside effects that an error leaves behind")
        return
    late = recorder.log.in_place and not recorder.backend.in_order
    if (late or _cleans_up(node) or has_effects(vm)) and _may_fail(vm, node):
        name = operator_name(node.target) or node.name
        raise Break("SB006", f"{name}, which may fail after a call that must not run twice")


def may_change_reads(vm: VM, target: object, whole: bool = False) -> bool:
    """Whether code behind a target may change state that the trace has read; where not, later reads of it break."""
    reach = Reach(target)
    others = (reach.objects.keys() - {id(target)}) & vm.heap.by_original.keys()
    seen = reach.unbounded and not whole or not all(is_a(reach.objects[each], io.IOBase) for each in others)
    for number, name in reach.names:
        scope = vm.heap.scopes.get(number)
        seen = seen or scope is not None and (scope.shadow is not None or name in scope.seen)
    if seen or reach.names and any((id(base), name) in reach.names for cls, name in vm.classes.lookups
                                   for base in mro_of(cls)):
        return True
    if reach.objects or reach.names:
        vm.heap.changes.reached.append(reach)
    return False


def _cut(vm: VM, node: fx.Node) -> None:
    """Cut the graph of a compiler at an operator that it would not run as eager does: a kernel in Python, or one that
    an error in the graph would rob of its delayed writes.  Inductor writes in place: it is not cut.
    """
    recorder, backend = vm.recorder, vm.recorder.backend
    traced = backend.may_be_cut and (node.target in PURE_KERNELS or runs_on_fakes(node.target))
    if not traced and not backend.cut_at_errors or not isinstance(node.target, (OpOverload, OpOverloadPacket)):
        return
    if recorder.scope.enclosing is not None or recorder.region.marks or recorder.region.tangents \
            or vm.modes.active or recorder.classes or recorder.wrappers.behind:
        if traced:
            raise Break("SB006", f"{node.name}, whose kernel in Python a compiler would run while it traces")
    elif traced or any(recorder.log.memory[recorder.propagation.memory_behind(each.fake)]
                       for each in recorder.inputs if isinstance(each.fake, torch.Tensor)):
        recorder.propagation.require_exact()  # pieces must know which of their inputs share memory
        node.meta[BOUNDARY] = True


def _may_fail(vm: VM, node: fx.Node) -> bool:
    if not node.all_input_nodes:
        return False
    with torch._C.DisableTorchFunction():
        return node_may_fail(node, Memory(sharing_memory(vm.recorder.inputs) if writes(node) else frozenset()))


def _cleans_up(node: fx.Node) -> bool:
    """Whether code of the program runs when a node raises; an error raised as it is would skip it."""
    caught = node.meta.get(CAUGHT, 0)
    return bool(caught) and (bool(caught & CLEANUP) or is_caught(node))


def _loses_an_effect(vm: VM, last: fx.Node) -> bool:
    """Whether an error before the first call that must not run twice would skip clean-up code or a late write."""
    written = False
    for node in last.graph.nodes:
        if node is not last and node.op.startswith("call_") and (written or _cleans_up(node)) and _may_fail(vm, node):
            return True
        written = written or not vm.recorder.backend.in_order and writes(node)
    return False


def _keeps_order_itself(target: object) -> bool:
    """Prints of the graph, which do not fail and see nothing but tensors; as collectives."""
    return isinstance(target, (OpOverload, OpOverloadPacket)) and qualified_name(target).startswith("stator::")


def has_effects(vm: VM) -> bool:
    """Whether the trace has changes of outside objects, output or settings to be done after the graph."""
    with torch._C.DisableTorchFunction():
        changed = changed_trackers(vm.heap)
    return bool(changed or vm.effects.noted or has_changes(vm) or leaves_settings(vm))
