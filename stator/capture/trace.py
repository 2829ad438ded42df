"""Trace one call.   a function and its bound arguments  ->  the finished machine and how it ended

Everything the trace turns on (the recorder's mode, fake tensors, the frame hook, grad mode) is off again when it
ends, whatever the ending.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from stator import _core, _hook
from stator.breaks import Break, Strategy
from stator.code.decode import decode
from stator.graph.analysis.shared_memory import wording_of_refusal
from stator.graph.metadata.propagation import ExactNeeded
from stator.graph.record.input_recorder import GraphInput
from stator.graph.record.recorder import Recorder
from stator.graph.record.refused_operations import fakes_of_a_trace
from stator.graph.state.quiet_logging import muted
from stator.graph.state.suspended_modes import function_modes as function_modes_around
from stator.graph.state.suspended_modes import mode_around, put_back
from stator.guards.global_state import GlobalState, global_state
from stator.guards.guard import Guard, Kind, tensor_values
from stator.heap.heap import Heap
from stator.heap.raw_access import forget_classes
from stator.host.garbage_collection import collector_paused
from stator.host.own_code import OWN_FOLDER
from stator.interp.calls import function_mode_stack
from stator.interp.frame import UNBOUND, Bug, Frame
from stator.interp.machine import Thunk, program_of
from stator.interp.mechanisms import undo
from stator.interp.objects.attributes import tensor_class
from stator.interp.suspend import boxed_argument
from stator.interp.torch_function_protocol import refuse_patched_call
from stator.interp.vm import VM
from stator.library.asynchronous.event_loop import refuse_unfinished
from stator.library.autograd import autograd_hooks, backward_code, gradients
from stator.library.distributed.wrappers import register_loaded
from stator.library.python import finalizers, object_functions, warning_filters, weak_references
from stator.library.python.context_variables import own_context
from stator.library.torch import compiler_functions
from stator.shapes.environment import LocatedList, TraceEnvironment, unknown
from stator.source import WORLD, CallOf, Global, Local, Pinned

_hook.skip_prefix(OWN_FOLDER)


@dataclass
class Trace:
    """A finished trace: exactly one of `value`, `error` and `stop` is set."""

    vm: VM
    fake_mode: FakeTensorMode
    value: object = None
    error: BaseException | None = None  # the program's own exception
    stop: Break | None = None
    grad_at_start: bool = True
    frame: Frame | None = None  # the innermost frame, where the trace stopped

    def release(self) -> None:
        """Release the user's objects at once: what holds them is full of cycles, and finalizers do not wait."""
        outside = self.error is not None and self.vm.heap.tracker_of(self.error) is not None
        self.vm.release()
        forget_classes()
        guards = self.fake_mode.shape_env.guards
        if type(guards) is LocatedList:
            # Autograd's C++ side holds fakes, which hold this: no collector sees the cycle.
            guards.locate = lambda: None
        self.fake_mode.shape_env.settle = unknown
        # CPython counts the weak references to a dying object, then may collect some: none may wait in garbage.
        known, inputs = self.fake_mode.fake_tensor_converter.meta_converter.describer, self.vm.recorder.plain_inputs
        for table in (known.lookup_tensor.data, known.lookup_storage.data, inputs.storages):
            table.clear()
        self.value = self.frame = None
        if self.stop is not None:
            self.stop.__traceback__ = None
        if self.error is not None and not outside:  # the user's own exception keeps what it has
            self.error.__traceback__ = None


def root_frame(vm: VM, fn: types.FunctionType, bound: tuple[object, ...]) -> Frame:
    """The frame of the call, each argument an unread box."""
    unit = decode(fn.__code__)
    names = unit.local_names
    slots: list[object] = [UNBOUND] * unit.nlocalsplus
    for index, raw in enumerate(bound):
        slots[index] = boxed_argument(vm, raw, Local(names[index], index))
    vm.heap.sources[id(fn)] = Pinned(fn)
    vm.guard_code(fn)
    return Frame(unit, program_of(unit), fn, slots, vm.heap.scope(fn.__globals__))


def enter_default_devices(vm: VM, around: list[TorchFunctionMode]) -> None:
    """`with torch.device(...)` around the call is a mode that the recorder plays itself."""
    vm.torch_state.devices += [mode.device for mode in around if type(mode) is DeviceContext]
    vm.torch_state.devices_at_start = len(vm.torch_state.devices)


def enter_modes(vm: VM, around: list[TorchFunctionMode]) -> None:
    """Other modes around the call; the guard of torch's state compares their classes."""
    vm.modes.active += [vm.heap.adopt(mode, CallOf(Pinned(mode_around), (Pinned(level),)))
                        for level, mode in enumerate(around) if type(mode) is not DeviceContext
                        and vm.modes.functions_off < 2]  # else none is called, and the program does not see them
    vm.modes.at_start = vm.modes.kept = len(vm.modes.active)


def refuse_dual_level(vm: VM) -> None:
    """Inside forward_ad.dual_level() tensors may carry tangents, which no fake tensor and no compiler sees."""
    level = forward_ad._current_level
    vm.heap.guard(Global(Pinned(forward_ad.__dict__), "_current_level"), Kind.EQUALS, level)
    if level >= 0:
        raise Break("SB016", "forward-mode differentiation is on")


def refuse_active_modes() -> None:
    """Suspend modes of the user: they see every operation, and operations on fakes are not the program's."""
    if torch._C._len_torch_dispatch_stack():
        if all(isinstance(mode, FakeTensorMode) for mode in _get_current_dispatch_mode_stack()):
            raise Break("SB005", "a FakeTensorMode is active: the call computes no values", once=True)
        raise Break("SB005", "a TorchDispatchMode is active")
    if torch._C._functorch.get_interpreter_stack():
        stop = Break("SB016", "a functorch transform is active")
        stop.remedy = "compile the function that calls torch.func's vmap, grad or jacrev: it is captured as a whole"
        raise stop


Begin = Callable[[VM], tuple[Frame, Frame | None, BaseException | None]]


def turn_off_inside(vm: VM, reason: Break) -> None:
    """Turn off a strategy that the rest of the program would need, and that no resume function can take over."""
    if reason.stop.turn_off is not None:
        return
    if (changed := backward_code.changed_code(vm)) is not None:
        reason.stop.turn_off = changed.stop.turn_off
    elif vm.autograd.dual_levels:  # the rest would need the tangents
        reason.stop.turn_off = Strategy.FORWARD_MODE
    elif vm.autograd.pushed_hooks or vm.autograd.hook_cells:  # the rest would be saved without them, or changes them
        reason.stop.turn_off = Strategy.SAVED_TENSOR_HOOKS
    elif vm.heap.dicts.made_scopes:
        reason.stop.turn_off = Strategy.CODE_FROM_TEXT
    elif object_functions.locals_are_kept(vm):
        reason.stop.turn_off = Strategy.KEPT_LOCALS
    elif vm.warnings.recordings:  # a list that is filled by half
        reason.stop.turn_off = Strategy.RECORDED_WARNINGS


def strategy_around(vm: VM) -> Strategy | None:
    """The strategy that is still in force where the trace stopped; the rest of the program would need it on."""
    if function_mode_stack.is_changed(vm) or vm.modes.index_modes:
        return Strategy.FUNCTION_MODES
    return Strategy.FUNCTIONS_OFF if vm.modes.functions_off_before else None


def trace(begin: Begin, stop_step: int = -1, stop: Break | None = None) -> Trace:
    """A trace with remembered propagation or, where the program asks for what that does not keep, an exact one."""
    with collector_paused():  # a collection would run finalizers of unrelated objects inside the trace
        try:
            return trace_once(begin, stop_step, stop, exact=False)
        except ExactNeeded:
            pass  # and left behind: an exception that the program raises must not get it as its context
        return trace_once(begin, stop_step, stop, exact=True)


def nothing() -> None:
    return None


def new_fake_mode() -> FakeTensorMode:
    """A mode of fake tensors that keeps no stack of whoever made it: torch would stat the file of every frame."""
    if threading.active_count() > 1 or hasattr(sys, "tracebacklimit"):  # another thread may print a traceback now
        return fakes_of_a_trace(TraceEnvironment())
    sys.tracebacklimit = 0
    try:
        return fakes_of_a_trace(TraceEnvironment())
    finally:
        del sys.tracebacklimit


_WRITES = re.compile("in-?place")  # autograd's errors about writes

# Checks where a trace ends: what the program has begun and not ended breaks, at a value and at an exception.
RETURN_CHECKS = (function_mode_stack.require_balance, gradients.require_left, backward_code.require_kept,
                 autograd_hooks.require_popped, warning_filters.require_ended)
ERROR_CHECKS = (autograd_hooks.require_popped, warning_filters.require_ended, weak_references.require_awaited,
                finalizers.refuse_instances, refuse_unfinished)


def new_vm(fake_mode: FakeTensorMode, state: GlobalState, exact: bool) -> VM:
    """The interpreter of one trace; rooms below it reach it through the services that are set here."""
    recorder = Recorder(fake_mode)
    recorder.propagation.enabled = not exact
    heap = Heap(recorder)
    recorder.known.may_guard = lambda each: heap.shapes.may_guard_contents(each.source)
    recorder.items.may_open = lambda each: heap.shapes.opens_items(each.source)
    recorder.known.guard = lambda each: heap.guard(each.source, Kind.VALUES, tensor_values(each.tensor))
    vm = VM(heap, recorder)
    recorder.services.class_of = functools.partial(tensor_class, vm)
    recorder.services.refuse_patched = functools.partial(refuse_patched_call, vm)
    recorder.services.note_stop = vm.place
    recorder.services.note_refused = functools.partial(note_refused, heap)
    vm.modes.functions_off = vm.modes.functions_off_at_start = state.torch_function_disabled
    fake_mode.shape_env.guards = LocatedList(vm.location)
    heap.guards.add(Guard(WORLD, Kind.GLOBAL_STATE, state, None))
    return vm


def note_refused(heap: Heap, given: GraphInput, error: Exception) -> None:
    """Guard the history of an input, by which autograd words an error; break where no stand-in has such a one."""
    wording = wording_of_refusal(given.tensor)
    if wording == "odd" and type(error) is RuntimeError and _WRITES.search(str(error)):
        raise Break("SB017", f"the error of a write to a view of before the call: {error}")
    heap.guard_call(wording_of_refusal, wording, given.source)


@contextlib.contextmanager
def interpreter_limits(vm: VM) -> Iterator[None]:
    """Raise the recursion limit for the tracer's own frames; route frames below C code to this trace."""
    limit = vm.progress.recursion_limit = sys.getrecursionlimit()
    sys.setrecursionlimit(max(limit, 10_000))
    budget_before = _hook.set_recursion_budget(limit // 2)
    callback_before = _hook.exchange_callback(vm.intercepted)
    try:
        yield
    finally:
        _hook.exchange_callback(callback_before)
        _hook.set_recursion_budget(budget_before)
        sys.setrecursionlimit(limit)


@contextlib.contextmanager
def trace_ended(result: Trace) -> Iterator[None]:
    """Keep the break and the innermost frame of a trace that ends; undo what its mechanisms changed in the process."""
    vm = result.vm
    try:
        yield
    except Break as reason:
        result.stop = reason
        if reason.stop.turn_off is None:
            reason.stop.turn_off = strategy_around(vm)
    finally:
        vm.generators.end()
        undo(vm)
        if vm.replay is not None:
            vm.replay.close()
        result.frame, vm.frame = vm.frame, None


def interpret(result: Trace, begin: Begin, around: list[TorchFunctionMode], hooks_around: bool) -> None:
    """Run the frames that `begin` makes to a value or an exception of the program; a `Break` leaves this function."""
    vm = result.vm
    vm.frame = Thunk(nothing)  # user code that runs before there is a frame (a key's __hash__)
    root, innermost, thrown = begin(vm)
    vm.frame = innermost or root
    warning_filters.watch_warnings(vm)
    vm.frame = None
    enter_modes(vm, around)
    autograd_hooks.HooksAround(vm, hooks_around)
    try:
        result.value = vm.run(root, innermost, thrown)
        for check in RETURN_CHECKS:
            check(vm)
    except Bug as bug:
        raise bug.error from None
    except Break as reason:
        turn_off_inside(vm, reason)
        raise
    except BaseException as error:
        if not isinstance(error, (Exception, SystemExit, GeneratorExit)) and error is not vm.escaped:
            raise  # Ctrl-C while tracing; of the program's own, the frames of the program have been left
        for check in ERROR_CHECKS:
            check(vm)
        result.error = error
    finally:
        autograd_hooks.leave_hooks(vm)
        # Later operations are not those of the program.
        vm.recorder.region.function_modes, vm.recorder.services.listening = [], muted
        # inside the modes: leaving inference mode brings back the dispatch keys of its start
        vm.torch_state.close()


def trace_once(begin: Begin, stop_step: int, stop: Break | None, exact: bool) -> Trace:
    """Interpret from the frames that `begin` makes: root, innermost, exception; `stop_step`: raise `stop` before it."""
    with put_back():
        state, around = global_state(), function_modes_around()
        hooks_around = _core.saved_hooks_of_program()
    compiler_functions.ignore_peer_bookkeeping()
    register_loaded()
    fake_mode = new_fake_mode()
    vm = new_vm(fake_mode, state, exact)
    result = Trace(vm, fake_mode, grad_at_start=torch.is_grad_enabled())
    try:
        with interpreter_limits(vm), trace_ended(result):
            enter_default_devices(vm, around)
            refuse_dual_level(vm)
            refuse_active_modes()
            if stop is not None:
                vm.stop_step, vm.progress.stop = stop_step, stop
            with fake_mode, torch._C._EnableTorchFunction(), vm.recorder.mode, own_context(vm):
                interpret(result, begin, around, hooks_around)
    except BaseException:
        result.release()  # nobody gets the trace, and nobody else lets go of what it holds
        raise
    return result


__all__ = ["Trace", "trace"]
