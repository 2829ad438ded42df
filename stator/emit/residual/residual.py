"""The residual program.   a finished trace  ->  a Python function: call the graph, write back, rebuild

    def residual(x, self_weight):
        out = graph(x, self_weight)
        return out[0]
"""

from __future__ import annotations

import functools
import itertools
import linecache
import types
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.passes.runtime_assert import insert_deferred_runtime_asserts

from stator import _core, events
from stator.breaks import Break, Strategy
from stator.emit.effects.write_back import write_effects, write_flags, write_hooks
from stator.emit.rebuild.local_owners import Owners
from stator.emit.rebuild.returned_objects import fix_storages
from stator.emit.rebuild.shown_addresses import require_shown, require_unordered
from stator.emit.rebuild.values import Rebuilder
from stator.emit.residual.eager_calls import run_as_it_is
from stator.emit.residual.failing_calls import call_or_redo
from stator.emit.residual.graph_inputs import handed_over, is_reshaped, require_sizes, write_copies
from stator.emit.source_writer import Writer
from stator.errors import BackendError
from stator.graph.analysis.dead_nodes import errors_to_meet
from stator.graph.fx.graph_modules import make_captured
from stator.graph.fx.nodes import fix_targets
from stator.graph.record.input_recorder import GraphInput
from stator.graph.record.recorder import Recorder
from stator.graph.state.torch_state import drop_idle_settings, only_settings
from stator.graph.values.known_values import hide_constants
from stator.guards.guard import Guard
from stator.guards.lower import lower
from stator.heap.set_orders import SetOrder
from stator.heap.tracker import ShadowKind
from stator.interp.suspend import KeptAlive
from stator.interp.tensors.tensor_bookkeeping import require_inner_leaves, settle_data
from stator.interp.vm import VM
from stator.library.autograd.backward import detach_consumed
from stator.library.python.caches_and_locks import LockState, held_count
from stator.library.python.random_states import saved_streams
from stator.source import CallOf, Drawn, Local, Source

# From this many graph inputs on, the entry hands them over as one tuple: `graph(*inputs)`.
PACKED_INPUTS = 16
_NUMBERS = itertools.count(1)
RESERVED = frozenset({"state", "kept", "streams", "generators", "out", "graph", "inputs", "residual", "failed",
                      "versions", "error", "slice", "set", "id", "setattr", "delattr", "float", "frozenset", "del"})


@dataclass
class Residual:
    """A residual program before its graph is compiled."""

    source: str
    names: dict[str, Any]
    wanted: list[Source]
    graph: fx.GraphModule | None
    graph_inputs: list[Any]
    packed: int = 0  # how many of the wanted values are handed over as one tuple, the first parameter
    effects: int = 0
    lines: list[str] = field(default_factory=list)
    resume: object = None  # Advance: how the call goes on behind a break
    of_process: str = ""  # a value that no other process has, where the program has read one
    elsewhere: Sequence[SetOrder | types.CodeType] = ()  # orders of sets of strings; code whose lines or path were read

    def filename(self) -> str:
        return f"<stator residual {next(_NUMBERS)}>"  # an address could be that of one which is not let go yet

    def link(self, compiled: object, backend: str = "") -> Any:
        """The residual as a function, with the compiled graph bound to its name."""
        filename = self.filename()
        namespace = {**self.names, "graph": compiled}
        if self.graph is not None:
            namespace["graph"] = checked_once(compiled, self.graph, backend, namespace)
        exec(compile(self.source, filename, "exec"), namespace)  # noqa: S102  our own text, made above
        linecache.cache[filename] = (len(self.source), None, self.source.splitlines(True), filename)
        weakref.finalize(namespace["residual"], linecache.cache.pop, filename, None)
        return namespace["residual"]


def drop_unused_inputs(recorder: Recorder, needed: set[fx.Node]) -> list[GraphInput]:
    """Erase inputs that no node uses and that are not `needed` themselves; return the others."""
    inputs = []
    for each in recorder.inputs:
        if each.node.users or each.node in needed:
            recorder.layouts.restore(each)
            inputs.append(each)
        else:
            recorder.graph.erase_node(each.node)
    return inputs


def emit_residual(vm: VM, result: Any, resume: object = None, begin: Callable[[], None] | None = None) -> Residual:
    """Build the residual of a trace that returned `result`, or, with `resume`, stopped with these live values."""
    writer = Writer()
    writer._used.update(RESERVED)
    if vm.torch_state.open_contexts:
        raise Break("SB007", "an inference mode that is still on", turn_off=Strategy.INFERENCE_MODE)
    build = Rebuilder(writer, vm.heap, vm.recorder, vm)
    recorder = vm.recorder
    write_hooks(build)
    if resume is None:
        value = build.value(result)
    else:
        parts = [item if type(item) is KeptAlive else build.value(item) for item in result]
    if recorder.classes and any(map(is_reshaped, recorder.inputs)):
        raise Break("SB006", "the layout of a tensor changed in place, beside a tensor subclass from outside")
    effects = write_effects(build)
    Owners(build).hold_locals()
    if resume is not None:
        value = write_resume(build, resume, parts)
    for statement in build.afterwards:
        writer.line(statement)
    require_shown(build)
    require_unordered(build)
    fix_storages(build)
    refuse_uncertain(vm, build.outputs)
    require_inner_leaves(vm, build.outputs)
    settle_data(vm, build.outputs)
    detach_consumed(vm, build.outputs)
    flags = write_flags(build)
    lines = writer.lines
    drop_idle_settings(recorder.graph, vm.torch_state)
    asserted = recorder.symbols.asserted_of_inputs() if recorder.symbols.definitions else {}
    needs_graph = bool(build.outputs or asserted) or recorder.scope.calls > 0 and not only_settings(recorder.graph)
    call: list[str] = []
    graph_module = None
    inputs: list[Any] = []
    packed = False
    sizes: list[str] = []
    if needs_graph:
        nodes = tuple(recorder.to_node_arg(value) for value in build.outputs)
        if not recorder.backend.in_order:
            nodes += errors_to_meet(recorder.graph, nodes)
        inputs = drop_unused_inputs(recorder, {*asserted, *(node for node in nodes if type(node) is fx.Node)})
        packed = len(inputs) >= PACKED_INPUTS and not any(
            i.boxed or isinstance(i.source, Drawn) or id(i.fake) in recorder.classes for i in inputs)
        names = ["*inputs"] if packed else [handed_over(build, each) for each in inputs]
        recorder.graph.output(nodes)
        hide_constants(recorder.graph)
        fix_targets(recorder.graph)
        graph_module = make_captured(recorder.graph, recorder.scope.inner_graphs, recorder.log.plays)
        if recorder.symbols.definitions:
            insert_asserts(recorder, graph_module, asserted)
        line = f"{'out = ' if nodes else ''}graph({', '.join(names)})"
        call = call_graph(writer, vm.torch_state, line, bool(recorder.wrappers.behind))
        call = call_or_redo(build, graph_module, call, inputs, packed, flags.undo)
        if asserted:
            sizes = require_sizes(build, inputs, asserted, functools.partial(named, build, inputs, packed))
    call += [_setter_call(writer, setter, args) for setter, args in vm.torch_state.finals]
    first = [] if begin is None else [f"{writer.constant(begin, begin.__name__)}()"]
    first += sizes
    first += draw_numbers(build, bool(call)) + write_copies(build, vm.residual.copies) + flags.first
    first += drop_gradients(build) if needs_graph else []
    writer.lines = first + call + flags.last + lines + [f"return {value}"]
    sources = [i.source for i in inputs] if packed else []
    parameters = (["inputs"] if packed else []) + list(build.wanted.values())
    return Residual(writer.source("residual", parameters), writer.names, sources + list(build.wanted), graph_module,
                    inputs, len(sources), effects, writer.lines, resume, *vm.identity.process_facts())


def write_resume(build: Rebuilder, resume: Any, parts: list[Any]) -> str:
    """End a segment that resumes; dead locals are written once all other values are built."""
    owners = Owners(build)
    texts = "".join([f"{owners.kept_alive(part.value) if type(part) is KeptAlive else part}, " for part in parts])
    make, target = build.writer.constant(_core.Resume, "Resume"), build.writer.constant(resume.target, "resume_at")
    return f"{make}({target}, ({texts}){', True' if resume.takes_values else ''})"


def named(build: Rebuilder, inputs: list[Any], packed: bool, each: object) -> str:
    return f"inputs[{inputs.index(each)}]" if packed else handed_over(build, each)


def insert_asserts(recorder: Recorder, graph_module: Any, asserted: dict[fx.Node, Any]) -> None:
    """Let the graph check the assertions about unbacked numbers; the inputs define their unbacked sizes."""
    for node, symbols in asserted.items():
        node.meta["unbacked_bindings"] = symbols
    with torch._C._EnableTorchFunction():  # of the pass's proxies
        insert_deferred_runtime_asserts(graph_module, recorder.symbols.shape_env, "stator")
    for node in asserted:
        del node.meta["unbacked_bindings"]
    graph_module.recompile()


def drop_gradients(build: Rebuilder) -> list[str]:
    """Free gradients that the program drops before it computes, so that the graph has their memory."""
    tensors, trackers = build.vm.tensors, build.vm.heap.by_standin
    return [f"{build.outside(trackers[each].source)}.grad = None" for each in tensors.grads if each in tensors.dropped]


def draw_numbers(build: Rebuilder, may_fail: bool) -> list[str]:
    """Draw the random numbers in the program's order, after the states of their streams are saved."""
    writer, lines = build.writer, []
    streams = dict.fromkeys(build.outside(draw.stream) for draw in build.vm.residual.draws)
    if streams and may_fail:
        lines.append(f"streams = {writer.constant(saved_streams)}(({', '.join(streams)},))")
    for draw in build.vm.residual.draws:
        arguments = [build.outside(draw.stream), *map(build.scalar, draw.args),
                     *(f"{name}={build.scalar(value)}" for name, value in draw.kwargs)]
        function = writer.constant(draw.function, draw.function.__name__)
        target = f"[{', '.join(map(build.outside, draw.parts))}]" if draw.parts else build.outside(draw.source)
        lines.append(f"{target} = {function}({', '.join(arguments)})")
    return lines


def checked_once(compiled: Any, graph: fx.GraphModule, backend: str, namespace: dict[str, Any]) -> Callable[..., Any]:
    """The compiled graph; its first call checks the number of results."""
    outputs = next(node for node in reversed(graph.graph.nodes) if node.op == "output").args[0]
    wanted = len(outputs)  # type: ignore[arg-type]

    def first_call(*inputs: Any) -> Any:
        out = compiled(*inputs)
        if type(out) not in (tuple, list) or len(out) != wanted:
            got = f"{len(out)} values" if type(out) in (tuple, list) else f"an object of type {type(out).__name__}"
            raise BackendError(backend, f"the function it compiled returned {got} where the graph has {wanted} "
                               f"{'output' if wanted == 1 else 'outputs'}; it must return them as a tuple or list")
        namespace["graph"] = compiled
        return out

    return first_call


def refuse_uncertain(vm: VM, outputs: list[Any]) -> None:
    """Break where a tensor that a branch may have left alone would leave as a copy."""
    uncertain = vm.recorder.uncertain
    if uncertain.storages:
        outside = [tracker.standin for tracker in vm.heap.trackers if tracker.shape is ShadowKind.TENSOR]
        if uncertain.conflict(outputs, outside):
            raise Break("SB002", "a tensor that a branch leaves as it was is seen under two names", branches_break=True)


def call_graph(writer: Writer, state: Any, call: str, wrapped: bool) -> list[str]:
    """Call the graph; an error inside leaves torch's settings as they were.  `wrapped`: it has wrapper subclasses."""
    lines = [call]
    if wrapped:
        lines = [f"with {writer.constant(torch._C.DisableTorchFunctionSubclass, 'functions_off')}():", f"    {call}"]
    undo = [f"    {_setter_call(writer, setter, args)}" for setter, args in state.restoring_calls()]
    if not undo:
        return lines
    return ["try:", *(f"    {line}" for line in lines), "except BaseException:", *undo, "    raise"]


def _setter_call(writer: Writer, setter: Any, args: tuple[Any, ...]) -> str:
    return f"{writer.constant(setter, setter.__name__)}({', '.join(writer.constant(arg) for arg in args)})"


class UnderLocks:
    """A residual under the locks that its program takes: guards are checked, and inputs read, again under them."""

    __slots__ = ("program", "residual", "count", "states", "__weakref__")

    def __init__(self, guards: Sequence[Guard], residual: Residual, function: Callable[..., Any], count: int,
                 states: list[LockState]) -> None:
        # Whether a lock is free or held was checked before the locks were taken.
        kept = [guard for guard in guards if not (type(guard.source) is CallOf and guard.source.fn.obj is held_count)]
        lowered = lower(kept, residual.wanted)
        self.program = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, count, residual.packed)
        self.residual, self.count = function, count
        self.states = [(state.taken, state.depth - state.start) for state in states]

    def __call__(self, *values: Any) -> Any:
        locks = values[self.count:]
        taken: list[Any] = []
        for lock, (take, _) in zip(locks, self.states, strict=True):
            if take and not lock.acquire(False):
                return _eager(taken, "another thread holds a lock that the program takes")
            if take:
                taken.append(lock)
        try:
            found = self.program.values(values[:self.count])
            if found is None:
                return _eager(taken, "another thread changed a fact before the program took its locks")
            result = self.residual(*found)
        except BaseException:
            _release(taken)
            raise
        if result is _core.EAGER:
            _release(taken)
            return result
        for lock, (_, change) in zip(locks, self.states, strict=True):
            for _ in range(abs(change)):
                lock.acquire(False) if change > 0 else lock.release()
        return result


def _eager(locks: list[Any], why: str) -> Any:
    _release(locks)
    events.emit(events.EagerFallback("a compiled function with locks", why))
    return run_as_it_is()


def _release(locks: list[Any]) -> None:
    while locks:
        locks.pop().release()


def bound_arguments(count: int) -> list[Source]:
    return [Local(f"argument {index}", index) for index in range(count)]
