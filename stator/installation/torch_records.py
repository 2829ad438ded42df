"""Captures in torch's own logs, counters, callbacks and traces.   TORCH_LOGS=guards;  TORCH_TRACE=folder, tlparse

In: the events of captures, and a context around each.  Out: a compile id while it runs; texts for the loggers that
TORCH_LOGS turns on; records for TORCH_TRACE, in the form that torch's tracer gives them; counts and callbacks of
torch._dynamo, where somebody has loaded it.
"""

from __future__ import annotations

import contextlib
import dis
import functools
import io
import json
import logging
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import CodeType
from typing import TYPE_CHECKING, Any

from torch import fx
from torch._guards import CompileContext, CompileId, compile_context
from torch._logging import getArtifactLogger, structured, trace_structured
from torch._logging._internal import log_registry

from stator import events
from stator.capture import first_call
from stator.host.lazy_imports import load, loaded
from stator.host.own_code import OWN_FOLDER
from stator.report.frames import is_library, render_problem, source_line, user_frames
from stator.report.misses import change, nearest
from stator.report.names import short, translate, user_lines
from stator.report.run_data import place_of
from stator.report.text import effects_of, graph_line, graph_sizes, user_place

if TYPE_CHECKING:
    from stator.capture.call_site import CallSite

# Artifact of TORCH_LOGS -> the module of torch that writes it there; filters by module keep working.
MODULES = {
    "graph_breaks": "symbolic_convert", "trace_source": "symbolic_convert", "trace_bytecode": "symbolic_convert",
    "trace_call": "symbolic_convert", "recompiles": "guards",
    "recompiles_verbose": "guards", "guards": "guards", "graph": "output_graph", "graph_code": "output_graph",
    "graph_sizes": "output_graph", "bytecode": "convert_frame", "side_effects": "side_effects",
}


@dataclass
class Capture:
    """One capture that runs, or has just run."""

    site: CallSite
    compile_id: CompileId
    began: float = field(default_factory=time.time)
    finished: events.CaptureFinished | None = None
    failure: events.InternalFailure | None = None
    backend_seconds: float = 0.0
    place: tuple[str, int] | None = None  # where its function begins

    @property
    def code(self) -> CodeType:
        point = self.site.point
        return self.site.fn.__code__ if point is None else point.states[-1].code


@dataclass
class Frame:
    """One place of a program: its number, and how often it was captured."""

    number: int
    captures: int = 0


class _Here(threading.local):
    """State of one thread."""

    capture: Capture | None = None
    recompile: events.Recompile | None = None  # of the capture that follows


_here = _Here()
_frames: weakref.WeakKeyDictionary[object, Frame] = weakref.WeakKeyDictionary()


@contextlib.contextmanager
def around_capture(site: CallSite) -> Iterator[None]:
    """Give a capture its compile id, run callbacks before and after it, and write its records."""
    if events.trial.active:
        yield
        return
    frame = _frames.setdefault(site.compiled, Frame(-1))
    if frame.number < 0:  # graphs that a capture has beside its first one take numbers of the same row
        frame.number = next(load("stator.backends.cuda_graphs").graph_numbers)
    capture = Capture(site, CompileId(frame_id=frame.number, frame_compile_id=frame.captures))
    frame.captures += 1
    before, _here.capture = _here.capture, capture
    lines = logger("trace_source") is not None or logger("trace_bytecode") is not None
    with compile_context(CompileContext(capture.compile_id)), callbacks(capture):
        if lines:
            events.want_lines(True)
        write_safely(begin, capture)
        try:
            yield
        finally:
            write_safely(end, capture)
            _here.capture = before
            if lines:
                events.want_lines(False)


def write_safely(write: Callable[[Capture], None], capture: Capture) -> None:
    """Write records; a failure is a warning, and stops no capture."""
    try:
        write(capture)
    except Exception as error:
        warnings.warn(f"stator: torch's logs lack a capture of {capture.site.name}: {error!r}", RuntimeWarning,
                      stacklevel=2)


@contextlib.contextmanager
def callbacks(capture: Capture) -> Iterator[None]:
    """Callbacks of torch._dynamo.callback around a capture."""
    module: Any = sys.modules.get("torch._dynamo.callback")
    if module is None:
        yield
        return
    with module.callback_handler.install_callbacks(module.CallbackTrigger.DYNAMO, str(capture.compile_id)):
        yield


def forward_to_torch(event: events.Event) -> None:
    """Write one event down as torch would."""
    capture = _here.capture
    if isinstance(event, events.Recompile):
        _here.recompile = event
    elif capture is not None and type(event) in _WRITERS:
        _WRITERS[type(event)](capture, event)


# ---------------------------------------------------------------------- logs


@functools.cache
def _loggers() -> dict[str, logging.Logger]:
    return {name: getArtifactLogger(f"torch._dynamo.{module}", name) for name, module in MODULES.items()
            if name in log_registry.artifact_names}


def logger(name: str) -> logging.Logger | None:
    """The logger of an artifact, where TORCH_LOGS or torch._logging.set_logs has turned it on."""
    found = _loggers().get(name)
    return found if found is not None and found.isEnabledFor(logging.DEBUG) else None


def log(name: str, text: Callable[[], str]) -> None:
    if (found := logger(name)) is not None:
        found.debug("%s", text())


# ---------------------------------------------------------------------- a capture begins and ends


def begin(capture: Capture) -> None:
    counters = _counters()
    if counters is not None:
        counters["frames"]["total"] += 1
    trace_event("B", capture, {})


def _started(capture: Capture, event: events.CaptureStarted) -> None:
    if capture.place is not None:
        return  # captured anew, in another way
    capture.place = event.file, event.line
    missed, _here.recompile = _here.recompile, None
    if missed is not None and missed.name == event.name and capture.compile_id.frame_compile_id:
        _recompiled(capture, missed)
    here = event.file, event.line, short(event.name)
    trace_structured("dynamo_start", lambda: {"stack": stack([*callers(), here])})
    log("bytecode", lambda: f"ORIGINAL BYTECODE {short(event.name)} {event.file} line {event.line} \n"
                            f"{disassembled(capture.code)}\n")


def end(capture: Capture) -> None:
    done, seconds = capture.finished, time.time() - capture.began
    counters = _counters()
    if counters is not None and done is not None:
        counters["frames"]["ok"] += 1
    module: Any = sys.modules.get("torch._dynamo.utils")
    if module is not None:
        module.compilation_time_metrics.setdefault("_compile.compile_inner", []).append(seconds)
    facts = metrics(capture, seconds)
    if module is not None and done is not None:
        known = {name: value for name, value in facts.items() if name in module.CompilationMetrics.__dataclass_fields__}
        module._compilation_metrics.append(module.CompilationMetrics(**known))
    trace_structured("compilation_metrics", lambda: facts)
    trace_event("E", capture, {"compile_id": str(capture.compile_id)})


def metrics(capture: Capture, seconds: float) -> dict[str, object]:
    """Metrics of one capture under the names of torch.  `fail_*`: of a capture that Stator's own bug has stopped."""
    done, (filename, line) = capture.finished, capture.place or (capture.code.co_filename, capture.code.co_firstlineno)
    entries = len(capture.site.compiled.entries())
    nodes: list[fx.Node] = [] if done is None or done.graph is None else list(done.graph.graph.nodes)
    guards: Sequence[Any] = () if done is None else done.guard_list
    failure = capture.failure
    return {
        "compile_id": str(capture.compile_id), "frame_key": str(capture.compile_id.frame_id),
        "co_name": short(capture.site.name), "co_filename": filename, "co_firstlineno": line, "cache_size": entries,
        "accumulated_cache_size": len({id(tag) for tag in load("stator.capture.miss").entries_of_place(capture.site)}),
        "guard_count": len(guards), "shape_env_guard_count": sum(guard.kind.name == "SHAPE" for guard in guards),
        "graph_op_count": sum(node.op.startswith("call_") for node in nodes), "graph_node_count": len(nodes),
        "graph_input_count": sum(node.op == "placeholder" for node in nodes), "start_time": capture.began,
        "entire_frame_compile_time_s": seconds, "backend_compile_time_s": capture.backend_seconds,
        "fail_type": None if failure is None else type(failure.error).__name__,
        "fail_reason": None if failure is None else str(failure.error),
        "fail_user_frame_filename": None, "fail_user_frame_lineno": None, "non_compliant_ops": [],
        "compliant_custom_ops": [], "restart_reasons": [], "dynamo_time_before_restart_s": 0.0,
        "has_guarded_code": done is not None,
    }


def trace_event(phase: str, capture: Capture, facts: dict[str, object]) -> None:
    """The begin or end of a capture, in the form of Chrome's traces."""
    trace_structured("chromium_event", payload_fn=lambda: {
        "name": "dynamo", "ts": time.time_ns() / 1000.0, "ph": phase, "cat": "dynamo_timed", "pid": 0, "tid": 0,
        "args": {"compile_id": str(capture.compile_id), "function": capture.site.name, **facts}}, expect_trace_id=False)


# ---------------------------------------------------------------------- events inside a capture


def _recompiled(capture: Capture, event: events.Recompile) -> None:
    """Why no entry accepted the call; the nearest entry first."""
    reasons = [change(miss, event.terms) if miss.guard_text else event.reason
               for miss in (nearest(event), *event.others)]
    filename, line = capture.place or ("", 0)
    head = (f"Recompiling function {short(event.name)} in {filename}:{line}\n"
            "    triggered by the following guard failure(s):\n")
    where = f"  # {event.filename}:{event.line}" if event.filename is not None else ""
    log("recompiles", lambda: f"{head}    - {reasons[0]}{where}\n    more: python -m stator code recompiles")
    log("recompiles_verbose", lambda: head + "\n".join(
        f"    guard {number} failures:\n    - {reason}" for number, reason in enumerate(reasons)))
    trace_artifact("recompile_reasons", "json", lambda: json.dumps(reasons))


def _broken(capture: Capture, event: events.GraphBreak) -> None:
    counters = _counters()
    if counters is not None:
        counters["graph_break"][f"{event.code} {event.title}: {event.cause}"] += 1
    place = user_place(event) or ("<unknown>", 0)

    def text() -> str:
        problem = render_problem(event.code, event.title, event.cause, event.remedy, event.filename, event.line,
                                 event.stack)
        lines = [f'  File "{frame.filename}", line {frame.line}, in {frame.function}\n'
                 f"    {source_line(frame.filename, frame.line)}" for frame in user_frames(event.stack)]
        return (f"Graph break in user code at {place[0]}:{place[1]}\nGraph Break Reason: {problem}\n"
                "User code traceback:\n" + "\n".join(lines) + "\n")

    log("graph_breaks", text)
    trace_artifact("dynamo_graph_break_reason", "string", text)


def _finished(capture: Capture, event: events.CaptureFinished) -> None:
    capture.finished = event
    if event.graph is not None:
        _graph(capture, event.graph)
    line_of = user_lines(event.guard_list)

    def guard_lines() -> list[tuple[str, tuple[str, int] | None]]:
        return [(translate(guard.text(), event.terms), line_of(guard)) for guard in event.guard_list]

    log("guards", lambda: "\n".join(["", "GUARDS:", *(
        f"+- {text}" + (f"  # {place[0]}:{place[1]}" if place else "") for text, place in guard_lines())]))
    trace_structured("dynamo_guards", payload_fn=lambda: [
        {"code": text, "stack": [], "user_stack": stack([(*place, capture.site.name)]) if place else []}
        for text, place in guard_lines()])
    trace_structured("dynamo_cpp_guards_str", payload_fn=lambda: "\n".join(text for text, _ in guard_lines()))
    effects = effects_of(event.residual_source)
    if effects:
        log("side_effects", lambda: "\n".join([f"side effects of {short(event.name)}", *effects]))
    filename, line = capture.place or ("", 0)
    log("bytecode", lambda: (f"MODIFIED BYTECODE {short(event.name)} {filename} line {line} \n{event.residual_source}\n"
                             f"{disassembled(compile(event.residual_source, '<residual>', 'exec'))}\n"))
    trace_artifact("residual_program", "string", lambda: event.residual_source)


def _graph(capture: Capture, graph: fx.GraphModule) -> None:
    name = f"__compiled_fn_{str(capture.compile_id).replace('/', '_')}"
    nodes = [node for node in graph.graph.nodes if node.meta.get("example_value") is not None]
    counters = _counters()
    if counters is not None:
        counters["stats"]["unique_graphs"] += 1
        counters["stats"]["calls_captured"] += sum(node.op.startswith("call") for node in graph.graph.nodes)
    for node in graph.graph.nodes if logger("trace_call") is not None else ():
        if node.op.startswith("call_") and (place := place_of(node))[0] is not None:
            log("trace_call", lambda node=node, place=place: (  # type: ignore[misc]
                f"TRACE FX call {node.name} from {place[0]}:{place[1]}\n    {source_line(*place)}"))
    log("graph_code", lambda: f"TRACED GRAPH\n ===== {name} =====\n {readable(graph)}")
    log("graph", lambda: f"TRACED GRAPH\n {name}\n" + "\n".join(
        f"{node.op:<14} {graph_line(node)}" for node in graph.graph.nodes))
    log("graph_sizes", lambda: f"TRACED GRAPH TENSOR SIZES\n===== {name} =====\n{graph_sizes(graph)}")
    trace_structured("dynamo_output_graph", lambda: {"sizes": {
        node.name: [size if type(size) is int else str(size) for size in node.meta["example_value"].shape]
        for node in nodes if hasattr(node.meta["example_value"], "shape")}}, payload_fn=lambda: readable(graph))


def _failed(capture: Capture, event: events.InternalFailure) -> None:
    capture.failure = event


def _compiled(capture: Capture, event: events.BackendCompiled) -> None:
    capture.backend_seconds += event.seconds


def _line(capture: Capture, event: events.LineTraced) -> None:
    log("trace_source", lambda: f"TRACE starts_line {event.filename}:{event.line} in {event.function}\n"
                                f"    {source_line(event.filename, event.line)}")
    for opname, argument in event.instructions if logger("trace_bytecode") is not None else ():
        log("trace_bytecode", lambda opname=opname, argument=argument: (  # type: ignore[misc]
            f"TRACE {opname} {'' if argument is None else argument}".rstrip()))


def _resumed(capture: Capture, event: events.ResumeCode) -> None:
    counters = _counters()
    if counters is not None:
        counters["resumes"][event.name] += 1
    log("bytecode", lambda: f"RESUME BYTECODE {event.name}\n{disassembled(event.code)}\n")


_WRITERS: dict[type[events.Event], Callable[[Capture, Any], None]] = {
    events.CaptureStarted: _started, events.GraphBreak: _broken, events.CaptureFinished: _finished,
    events.InternalFailure: _failed, events.BackendCompiled: _compiled, events.LineTraced: _line,
    events.ResumeCode: _resumed,
}


# ---------------------------------------------------------------------- forms


def _counters() -> Any:
    """torch._dynamo.utils.counters, where somebody has loaded it."""
    return getattr(sys.modules.get("torch._dynamo.utils"), "counters", None)


def stack(frames: Sequence[tuple[str, int, str]]) -> list[Any]:
    """Frames in the form of torch's records, which number file names."""
    summary = traceback.StackSummary.from_list([
        traceback.FrameSummary(filename, line, name, lookup_line=False, line=source_line(filename, line))
        for filename, line, name in frames])
    return list(structured.from_traceback(summary))


def callers() -> list[tuple[str, int, str]]:
    """Frames of the program that led to this capture, the outermost first."""
    found = []
    frame = sys._getframe()
    while frame is not None:
        if not frame.f_code.co_filename.startswith(OWN_FOLDER):
            found.append((frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name))
        frame = frame.f_back  # type: ignore[assignment]
    return [each for each in reversed(found) if not is_library(each[0])]


def trace_artifact(name: str, encoding: str, payload: Callable[[], str]) -> None:
    trace_structured("artifact", lambda: {"name": name, "encoding": encoding}, payload_fn=payload)


def readable(graph: fx.GraphModule) -> str:
    """The code of a graph, with the user's line above where it changes."""
    lines: list[str] = str(graph.print_readable(print_output=False, include_stride=True,
                                                include_device=True)).splitlines()
    places = {node.name: place_of(node) for node in graph.graph.nodes}
    found, last = [], None
    for line in lines:
        place = places.get(line.strip().partition(":")[0], (None, None))
        if place[0] is not None and place[1] is not None and place != last:
            indent = line[:len(line) - len(line.lstrip())]
            found.append(f"{indent}# File: {place[0]}:{place[1]}, code: {source_line(place[0], place[1])}")
            last = place
        found += [] if line.strip() == "# No stacktrace found for following nodes" else [line]
    return "\n".join(found)


def disassembled(code: CodeType) -> str:
    text = io.StringIO()
    dis.dis(code, file=text, depth=2)
    return text.getvalue().rstrip()


_stop_listening: list[Callable[[], None]] = []


def start() -> None:
    """Write records of captures from now on."""
    if not _stop_listening:
        _stop_listening.append(events.subscribe(forward_to_torch))
        first_call.with_tracer(lambda: _put_around(around_capture) if _stop_listening else None)


def stop() -> None:
    while _stop_listening:
        _stop_listening.pop()()
    if first_call.TRACER in loaded:
        _put_around(contextlib.nullcontext)


def _put_around(context: Callable[..., contextlib.AbstractContextManager[None]]) -> None:
    setattr(first_call.tracer(), "around_capture", context)  # noqa: B010  (mypy knows no names of a loaded module)


