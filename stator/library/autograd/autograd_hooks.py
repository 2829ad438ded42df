"""Rules for hooks that autograd calls.   handle.remove(), with saved_tensors_hooks(pack, unpack): y = x.sin()

`pack` of saved tensors is interpreted on fakes: without effects, a node pushes the user's own functions.  Everything
else breaks.  Hooks on tensors are in tensor_hooks, those on nodes of autograd in node_hooks.
"""

from __future__ import annotations

import collections
import dis
import functools
import gc
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.autograd.graph import save_on_cpu
from torch.fx.node import has_side_effect
from torch.utils import _pytree as pytree
from torch.utils.hooks import RemovableHandle

from stator import _core
from stator.breaks import Break, Strategy
from stator.graph.analysis.autograd_boundaries import BOUNDARY, PushHooks, pop_saved_tensors_hooks
from stator.graph.analysis.step_functions import GRADIENTS
from stator.graph.state.suspended_modes import saved_hooks_around
from stator.graph.state.torch_state import SAVED_HOOKS, without_grad
from stator.guards.guard import Kind, is_constant
from stator.heap.outside_changes import changed_trackers
from stator.heap.tracker import Box, ShadowKind
from stator.interp.frame import Raised
from stator.interp.rule_registry import INTERPRETED, rule
from stator.interp.vm import VM
from stator.library.torch.higher_order_operators import empty_like, interpreted
from stator.source import CALL_TEXTS

HOOKS = Strategy.SAVED_TENSOR_HOOKS
A: Any = torch._C._autograd
# What they save is what they give back: a compiler may decide what that is.
_LOSSLESS = {part for part in save_on_cpu.__init__.__code__.co_consts if type(part) is types.CodeType}
_STORES = ("STORE_DEREF", "DELETE_DEREF")
_requires_grad, _register_hook = torch._C.TensorBase.requires_grad.__get__, torch.Tensor.register_hook


def outside_callable(vm: VM, what: str, value: object, cells: list[Any] | None = None, lasting: bool = False) -> Any:
    """The user's function, or one made alike, which torch calls later; `cells` gets its variables and their values.

    A `lasting` one may be called when the program has gone on: its variables must be its own, or from outside.
    """
    tracker = vm.heap.tracker_of(value)
    if tracker is not None:
        vm.heap.guard(tracker.source, Kind.ID, tracker.original)
        return tracker.original
    if type(value) is types.FunctionType and id(value) not in vm.fresh:
        vm.heap.guard(vm.heap.source_of(value), Kind.ID, value)
        return value
    if type(value) is types.MethodType:
        return types.MethodType(*[outside_callable(vm, what, part, cells, lasting)
                                  for part in (value.__func__, value.__self__)])
    if type(value) is functools.partial:
        held = (value.func, *value.args, *value.keywords.values())
        parts = [outside_callable(vm, what, part, cells, lasting) for part in held]
        count = len(value.args) + 1
        return functools.partial(parts[0], *parts[1:count], **dict(zip(value.keywords, parts[count:], strict=True)))
    if type(value) is types.FunctionType and not value.__defaults__ and not value.__kwdefaults__:
        remade = [lasting_cell(vm, what, cell, cells, value) if lasting else remade_cell(vm, what, cell, cells)
                  for cell in value.__closure__ or ()]
        return types.FunctionType(value.__code__, value.__globals__, value.__name__, None, tuple(remade))
    raise Break("SB016", f"{what}, made inside the captured code")


def remade_cell(vm: VM, what: str, cell: object, cells: list[Any] | None, lasting: bool = False) -> types.CellType:
    """A variable of a function that was made inside: a constant, or again a function."""
    value = contents(cell)
    if value is cell:
        raise Break("SB016", f"{what}, of a variable that is not set")
    if cells is not None:
        cells.append((cell, value))
    if is_constant(value) or type(value) is types.ModuleType:
        return types.CellType(value)
    return types.CellType(outside_callable(vm, what, value, cells, lasting))


def lasting_cell(vm: VM, what: str, cell: object, cells: list[Any] | None, function: types.FunctionType
                 ) -> types.CellType:
    """The variable itself, where it is from outside; else another one, which nothing assigns behind the call."""
    tracker = vm.heap.tracker_of(cell)
    if tracker is not None:
        vm.heap.guard(tracker.source, Kind.ID, tracker.original)
        return tracker.original  # type: ignore[no-any-return]
    if HOOKS in vm.turned_off:
        raise Break("SB016", f"{what}, of a variable that the call assigns again")
    shared = [each for each in gc.get_referrers(cell) if type(each) is tuple and each is not function.__closure__]
    if shared or any(step.opname in _STORES and step.argval in function.__code__.co_freevars
                     for code in codes_of(function.__code__) for step in dis.get_instructions(code)):
        raise Break("SB016", f"{what}, of a variable that another function has too, or that it assigns")
    return remade_cell(vm, what, cell, cells, lasting=True)


def codes_of(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for inner in code.co_consts:
        if type(inner) is types.CodeType:
            yield from codes_of(inner)


def contents(cell: Any) -> Any:
    """The value of a cell; the cell itself where it is empty."""
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    return value.force() if type(value) is Box else value


CALL_TEXTS[id(_core.saved_hooks_of_program)] = lambda: "whether the program has hooks on saved tensors around the call"


def refused(why: str, turn_off: Strategy | None = None) -> Break:
    stop = Break("SB016", why if HOOKS in why else f"{HOOKS}, and under them: {why}", turn_off=turn_off)
    stop.remedy = "let hooks have no effects, and the code under them no break; or push them around the compiled call"
    return stop


@dataclass(eq=False)
class Pushed:
    """A pair of hooks that the trace has pushed: what it stands for, and what was saved under it."""

    hooks: tuple[Callable[..., Any], Callable[..., Any]]
    lossless: bool
    marks: dict[str, Any]  # of nodes, before
    saved: dict[Any, Any] = field(default_factory=dict)  # looks of a tensor -> such a fake
    disturbed: bool = False  # whether something was saved while the program had changes to be written back


@rule(A._push_saved_tensors_default_hooks)
def _push_hooks(vm: VM, pack_hook: Callable[..., Any], unpack_hook: Callable[..., Any], /) -> None:
    recorder = vm.recorder
    if why_disabled(vm) is not None:
        raise refused(f"{HOOKS} where they are forbidden")
    pushed = vm.autograd.pushed_hooks
    if HOOKS in vm.turned_off:
        raise refused(vm.policy.why_off.get(HOOKS, HOOKS))
    if recorder.scope.enclosing is not None or recorder.region.tangents or vm.modes.active or recorder.classes \
            or recorder.wrappers.behind or recorder.symbols.has_fresh and not recorder.backend.in_order \
            or recorder.region.marks and not pushed:
        raise refused(HOOKS)
    if has_changes(vm):
        raise refused(f"{HOOKS}, pushed after changes that are still to be written back")
    recorder.propagation.require_exact()  # what is saved is known where autograd sees each operation
    hooks = pack_hook, unpack_hook
    lossless = all(getattr(each, "__code__", None) in _LOSSLESS for each in hooks)
    pack, unpack = (outside_callable(vm, HOOKS, each, None if lossless else vm.autograd.hook_cells) for each in hooks)
    entry = Pushed(hooks, lossless, recorder.region.marks)
    node = PushHooks(pack, unpack)
    recorder.region.marks = {}
    recorder.record("call_function", node, (), {}, None)
    recorder.region.marks = {} if lossless else {BOUNDARY: True}
    A._push_saved_tensors_default_hooks(_noting(vm, entry), lambda fake: fake)
    pushed.append(entry)
    recorder.region.under_hooks = True
    vm.torch_state.hooks.append(node.leave)


@rule(A._pop_saved_tensors_default_hooks)
def _pop_hooks(vm: VM) -> None:
    if not vm.autograd.pushed_hooks:
        raise refused(f"{HOOKS}, pushed elsewhere")
    entry, recorder = vm.autograd.pushed_hooks[-1], vm.recorder
    if entry.disturbed:
        raise refused(f"{HOOKS}, beside changes that are still to be written back")
    recorder.region.under_hooks = False
    for fake in entry.saved.values():
        require_pure(vm, entry.hooks[0], fake)
    A._pop_saved_tensors_default_hooks()
    vm.autograd.popped_hooks.append(vm.autograd.pushed_hooks.pop())
    recorder.region.marks = {}
    recorder.record("call_function", pop_saved_tensors_hooks, (), {}, None)
    recorder.region.marks = entry.marks
    recorder.region.under_hooks = bool(vm.autograd.pushed_hooks)


def _noting(vm: VM, entry: Pushed) -> Any:
    """The hook that the trace itself pushes: it notes what autograd saves, for which the fake itself is kept."""
    def note(fake: FakeTensor) -> FakeTensor:
        if entry.lossless and (fake.device.type == "cpu" or fake.is_contiguous()):
            return fake
        entry.disturbed = entry.disturbed or has_changes(vm)
        looks = (str(fake.shape), str(fake.stride()), fake.dtype, fake.device) if fake.layout is torch.strided \
            else id(fake)
        entry.saved.setdefault(looks, fake)
        return fake

    return note


def has_changes(vm: VM) -> bool:
    """Whether user code would still see some objects as they were before the trace."""
    return any(scope.overlay for scope in vm.heap.scopes.values()) or any(vm.classes.overlays.values()) \
        or any(tracker.shape is not ShadowKind.TENSOR for tracker in changed_trackers(vm.heap))


def require_pure(vm: VM, function: Callable[..., object], fake: FakeTensor) -> object:
    """Return the result of a hook for such a tensor; break where the hook does anything but compute."""
    with torch._C.DisableTorchFunction():
        given = empty_like(fake) if fake.layout is torch.strided else fake.clone()
    try:
        with without_grad(vm.torch_state):
            made = interpreted(vm, HOOKS, function, [given], ())[1]
    except Raised as raised:
        raise refused(f"{HOOKS}, where one raises a {type(raised.exc).__name__}") from None
    with torch._C.DisableTorchFunction():
        if given._version:
            raise refused(f"{HOOKS}, where one changes what it is given")
    return made


class HooksAround:
    """Hooks on saved tensors around the call: where on, saving beside changes to be written back breaks."""

    def __init__(self, vm: VM, are_on: bool) -> None:
        self.vm, self.are_on = vm, are_on
        self.disturbed = self.changed = False
        self.checked = -1  # how many writes had been noted then
        vm.recorder.services.before_saving = self.before_saving
        if are_on:
            vm.replay = None  # each operation is looked at

    def before_saving(self, *values: object) -> None:
        if self.disturbed or not torch.is_grad_enabled() or not self.has_changes():
            return
        with torch._C.DisableTorchFunction():
            if not any(type(each) is FakeTensor and each.requires_grad for each in pytree.tree_leaves(values)):
                return
        self.disturbed = True
        self.vm.heap.guard_call(_core.saved_hooks_of_program, self.are_on)
        if self.are_on:
            raise Break("SB016", f"{HOOKS} around the call, beside changes that are still to be written back")

    def has_changes(self) -> bool:
        vm = self.vm
        if vm.effects.noted or vm.contexts.sets or vm.classes.overlays:
            return True
        if self.checked != vm.heap.changes.writes:
            self.checked, self.changed = vm.heap.changes.writes, has_changes(vm)
        return self.changed


def leave_hooks(vm: VM) -> None:
    """The trace is over, whatever the program has left pushed."""
    while vm.autograd.pushed_hooks:
        vm.autograd.pushed_hooks.pop()
        A._pop_saved_tensors_default_hooks()


def require_popped(vm: VM) -> None:
    """Hooks must be gone at the end of the call, and be such as they were when they were pushed."""
    if vm.autograd.pushed_hooks:
        raise refused(f"{HOOKS} are still on at the end of the call", turn_off=HOOKS)
    if any(contents(cell) is not value for cell, value in vm.autograd.hook_cells):
        raise refused(f"{HOOKS}, whose variables are assigned again", turn_off=HOOKS)


def why_disabled(vm: VM) -> str | None:
    """The message with which hooks are forbidden, guarded unless the program itself has set it."""
    message: str | None = A._saved_tensors_hooks_get_disabled_error_message()
    if not vm.torch_state.is_changed(SAVED_HOOKS):
        vm.heap.guard_call(A._saved_tensors_hooks_get_disabled_error_message, message)
    return message


rule(A._saved_tensors_hooks_get_disabled_error_message)(lambda vm: why_disabled(vm))


@rule(A._saved_tensors_hooks_disable)
def _disable(vm: VM, /, *args: object, **kwargs: object) -> None:
    if kwargs or len(args) != 1 or type(args[0]) is not str:
        raise Break("SB016", f"{HOOKS}, forbidden in another way than torch's own")
    vm.heap.guard_call(saved_hooks_around, saved_hooks_around())
    if saved_hooks_around() or vm.autograd.pushed_hooks:
        raise Break("SB016", f"{HOOKS} are forbidden where there are some")
    vm.torch_state.change(SAVED_HOOKS, (False, args[0]), {})


@rule(A._saved_tensors_hooks_enable)
def _enable(vm: VM) -> None:
    vm.torch_state.change(SAVED_HOOKS, (True, None), {})


@dataclass(eq=False)
class Hook:
    """A hook that the trace has registered."""

    method: str
    tensor: Any
    function: Any
    version: int = 0  # of an outside tensor: a hook belongs to the value it was registered on
    node: Any = None  # of the graph, where the tensor is its own
    on_node: bool = False  # whether it is on the node of autograd, which calls the program


@rule(RemovableHandle.remove)
def _remove(vm: VM, self: object) -> Any:
    known = vm.autograd.hooks.get(id(self))
    if known is None:
        return INTERPRETED
    handle, hook = known
    if hook is not None and hook.node is not None:
        find = vm.recorder.graph.find_nodes
        passes = {each for target in GRADIENTS for each in find(op="call_function", target=target)}
        if hook.on_node or all(each < hook.node for each in passes):
            hook.node.graph.erase_node(hook.node)
        else:  # a pass in between has called it
            vm.recorder.record("call_function", remove_from_graph, (hook.node,), {}, None)
    vm.autograd.hooks[id(handle)] = (handle, None)  # removing it again does nothing
    return None


def register_graph(tensor: object, graph: Any, operands: tuple[Any, ...]) -> RemovableHandle | None:
    """The operation: `graph` is what a hook computes from a gradient and tensors of the forward pass."""
    if _requires_grad(tensor):
        return _register_hook(tensor, lambda grad: graph(grad, *operands))  # past patches of the program
    return None


def remove_from_graph(handle: RemovableHandle | None) -> None:
    if handle is not None:
        handle.remove()


has_side_effect(register_graph)
has_side_effect(remove_from_graph)


def removed_handle() -> RemovableHandle:
    """The handle of a hook that was removed in the call."""
    return RemovableHandle(collections.OrderedDict())
