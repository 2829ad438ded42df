"""Events, graphs and code objects as text.

In: one event, the events of a run, or the graph module or code object of an event.  Out: lines for a user.
"""

from __future__ import annotations

import ast
import collections
import dis
import io
from collections.abc import Callable, Iterable
from types import CodeType
from typing import TYPE_CHECKING, Any

from stator import events
from stator.report.frames import inside_of, render_problem, source_line, user_frames
from stator.report.misses import change, nearest
from stator.report.names import short, translate

if TYPE_CHECKING:
    from torch import fx


def render(event: events.Event) -> str:
    """One event as text; the dataclass itself for an event without a row in the table."""
    return _TEXTS.get(type(event), repr)(event)


def _recompile(event: events.Recompile) -> str:
    found = nearest(event)
    if not event.guard_text:
        return f"recompile {short(event.name)}: {event.reason}"
    lines = [f"recompile {short(event.name)}: {change(found, event.terms)}{_at(found)}",
             f"  guard: {translate(event.guard_text, event.terms)}"]
    if found.old or found.new:
        lines.append(f"  was {found.old or '?'}, is {found.new or '?'}")
    if event.filename is not None:
        lines.append(f"  guarded at {event.filename}:{event.line}")
        source = source_line(event.filename, event.line or 0)
        lines += [f"    {source}"] if source else []
    if "length_hint(" in event.guard_text and " resumed at line " in event.name:
        lines.append("  the loop goes over a graph break: each number of items that are left is captured by itself")
    lines.append("  more: python -m stator code recompiles")
    lines += [f"  nor entry {number}: {change(other, event.terms)}{_at(other)}"
              f"{f' and {other.more} more' if other.more else ''}" for number, other in enumerate(event.others, 2)]
    return "\n".join(lines)


def _at(miss: events.Miss) -> str:
    if miss.filename is None:
        return ""
    return f", at {miss.filename}:{miss.line}{inside_of(miss.filename)}"


def break_text(event: events.GraphBreak, full: bool = False) -> str:
    return "graph break: " + render_problem(event.code, event.title, event.cause, event.remedy, event.filename,
                                            event.line, event.stack, full)


def user_place(event: events.GraphBreak) -> tuple[str, int] | None:
    """The user's line of a break, behind the frames of torch and Python."""
    frames = user_frames(event.stack)
    if frames:
        return frames[-1].filename, frames[-1].line
    return None if event.filename is None or event.line is None else (event.filename, event.line)


def _graph_cut(event: events.GraphCut) -> str:
    unique, total = sum(nodes for nodes, _ in event.pieces), sum(nodes * uses for nodes, uses in event.pieces)
    saved = sum(took * (uses - 1) for took, (_, uses) in zip(event.seconds, event.pieces, strict=False))
    names = [f"{name}: " if name else "" for name in event.names] or [""] * len(event.pieces)
    pieces = ", ".join([f"{name}{nodes} nodes x{uses}"
                        for name, (nodes, uses) in zip(names, event.pieces, strict=True)])
    return "\n".join([f"regions: {len(event.pieces)} pieces compiled ({pieces}), {unique} of {total} nodes, in "
                      f"{sum(event.seconds):.2f} s; about {saved:.2f} s saved",
                      *[f"regions: no piece of its own: {why}" for why in event.refused]])


_TEXTS: dict[type[events.Event], Callable[[Any], str]] = {
    events.CaptureStarted: lambda e: f"capture {short(e.name)} ({e.file}:{e.line})",
    events.CaptureFinished: lambda e: (f"captured {short(e.name)}: {e.graph_nodes} graph nodes, {e.guards} guards, "
                                       f"{e.seconds * 1000:.1f} ms"),
    events.CaptureProgress: lambda e: (f"capturing {short(e.name)}: {e.seconds:.0f} s, {e.iterations:,} loop "
                                       f"iterations, {e.operations:,} graph nodes, at {e.filename}:{e.line}"),
    events.GraphBreak: break_text,
    events.Recompile: _recompile, events.GraphCut: _graph_cut,
    events.ComputedAhead: lambda e: (f"guard of {short(e.name)}: computes in each call what decides the capture "
                                     f"(fullgraph): {e.cause}"
                                     + ("" if e.line is None else f"\n  at {e.filename}:{e.line}")),
    events.ProgramRaised: lambda e: (f"eager {short(e.name)}: the program raises {e.error}"
                                     + ("" if e.line is None else f"\n  at {e.filename}:{e.line}")),
    events.EagerFallback: lambda e: f"eager {'call: ' * e.name.startswith('a ')}{short(e.name)}: {e.why}",
    events.InternalFailure: lambda e: (
        f"internal error in {short(e.name)}: {type(e.error).__name__}: {e.error}\n"
        "  this is a bug in Stator; the call is run eagerly unless the option 'strict' is on"),
    events.CacheLimit: lambda e: (
        f"recompile limit: {short(e.name)} was captured {e.limit} times; calls that no entry accepts now run eagerly\n"
        "  remedy: make what changes from call to call a tensor, mark the size dynamic, or raise recompile_limit\n"
        "  more: python -m stator code SB021"),
    events.BackendCompiled: lambda e: f"backend {e.backend}: {e.graph_nodes} graph nodes, {e.seconds * 1000:.1f} ms",
    events.GraphShared: lambda e: f"backend {e.backend}: {e.graph_nodes} graph nodes, compiled before",
    events.PiecesCompiled: lambda e: (
        f"pieces: {e.done} of {e.pieces} compiled, {e.pieces - e.done} to go ({e.seconds:.1f} s)"),
    events.CompiledElsewhere: lambda e: (
        f"start: another process {'failed on' if e.failure else 'has compiled'} {e.name} after "
        f"{e.seconds:.1f} s{'; calls stay eager: ' + e.failure if e.failure else ''}"),
    events.SwappedIn: lambda e: (f"start: {e.name} runs compiled from now on, after {e.eager_calls} eager calls "
                                 f"(swapped in within {e.seconds:.2f} s)"),
    events.GraphKeptWhole: lambda e: f"regions: {e.graph_nodes} nodes compiled whole: {e.why}",
    events.EntryLoaded: lambda e: f"artifacts: {e.name} uses a stored entry with {e.guards} guards",
    events.CaptureAwaited: lambda e: f"artifacts: {e.name} has waited {e.seconds:.1f} s: {e.ended}",
    events.NotCached: lambda e: f"artifacts: {e.name}: {e.why}" + (f" ({e.filename}:{e.line})" if e.line else ""),
    events.ArtifactRefused: lambda e: f"artifacts: {e.path} is not used: {e.why}",
    events.ResumeCode: lambda e: f"resume code of {e.name}: {len(e.code.co_code)} bytes",
    events.LineTraced: lambda e: f"trace {e.filename}:{e.line} in {e.function}",
}


def summarize(log: Iterable[events.Event]) -> str:
    """The totals of a run, and each different graph break and recompile with how often it happened."""
    seen = list(log)
    captures = [event for event in seen if isinstance(event, events.CaptureFinished)]
    breaks = collections.Counter(event for event in seen if isinstance(event, events.GraphBreak))
    recompiles = collections.Counter(event for event in seen if isinstance(event, events.Recompile))
    fallbacks = sum(isinstance(event, events.EagerFallback) for event in seen)
    lines = [f"{len(captures)} captures, {sum(event.graph_nodes for event in captures)} graph nodes, "
             f"{sum(event.guards for event in captures)} guards, {sum(event.seconds for event in captures):.2f} s; "
             f"{breaks.total()} graph breaks, {recompiles.total()} recompiles, {fallbacks} eager calls"]
    lines += [f"{times}x {render(event)}" for counter in (breaks, recompiles) for event, times in counter.most_common()]
    lines += [render(event) for event in seen if isinstance(event, (events.InternalFailure, events.CacheLimit))]
    return "\n".join(lines)


# ---------------------------------------------------------------------- graphs and code objects


_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
          "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128"}


def graph_code(graph: fx.GraphModule) -> str:
    """One line for each node: its name, what it holds, how it is made; the user's line above where it changes."""
    lines: list[str] = []
    place = ""
    for node in graph.graph.nodes:
        text = (node.meta.get("stack_trace") or "").strip().rpartition("\n")[2].strip()
        if text.startswith("File ") and text != place:
            lines.append("# {}:{} in {}".format(*user_line(text)))
            place = text
        lines.append(graph_line(node))
    return "\n".join(lines)


def graph_line(node: fx.Node) -> str:
    """One node: `relu: f32[3] cpu = relu(add)`."""
    if node.op == "output":
        return f"return {node.args[0]}"
    if node.op == "placeholder":
        return f"{node.name}: {held_by(node)} = input  # {source_of(node)}"
    target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
    given = [repr_of(arg) for arg in node.args] + [f"{k}={repr_of(v)}" for k, v in node.kwargs.items()]
    return f"{node.name}: {held_by(node)} = {target}({', '.join(given)})"


def repr_of(arg: object) -> str:
    return arg if isinstance(arg, str) and not arg else str(arg) if hasattr(arg, "op") else repr(arg)


def source_of(node: fx.Node) -> str:
    source = node.meta.get("source")
    return source.text() if source is not None else str(node.target)


def user_line(text: str) -> tuple[str, int, str]:
    """(file, line, function) of one line of a stack."""
    filename, line, function = text.strip().removeprefix("File ").split(", ", 2)
    return filename.strip('"'), int(line.removeprefix("line ")), function.removeprefix("in ")


def held_by(node: fx.Node) -> str:
    """`f32[2, 3] cpu`, `int`, or a tuple of such."""
    return describe(node.meta.get("example_value"))


def describe(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        name = str(value.dtype).removeprefix("torch.")
        return f"{_SHORT.get(name, name)}[{', '.join(map(str, value.shape))}] {value.device}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(describe, value))})"
    return type(value).__name__


def graph_sizes(graph: fx.GraphModule) -> str:
    """The shape of every tensor of the graph."""
    return "\n".join(f"{node.name}: {held_by(node)}" for node in graph.graph.nodes
                     if node.op != "output" and node.meta.get("example_value") is not None)


def symbolic_inputs(graph: fx.GraphModule) -> list[str]:
    """The inputs with a size or value that may differ from call to call."""
    found = []
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if node.op != "placeholder" or value is None:
            continue
        sizes = list(getattr(value, "shape", ())) or [value]
        if any(type(size).__name__ in ("SymInt", "SymFloat", "SymBool") for size in sizes):
            found.append(f"{source_of(node)}: {describe(value) if hasattr(value, 'shape') else value}")
    return found


def effects_of(residual_source: str) -> list[str]:
    """The statements of a residual program that change something of the user: assignments to members, calls, del."""
    try:
        tree = ast.parse(residual_source)
    except SyntaxError:
        return []
    function = next((node for node in tree.body if isinstance(node, ast.FunctionDef)), None)
    return [ast.unparse(node) for node in (function.body if function is not None else ())
            if isinstance(node, ast.Delete | ast.AugAssign) or isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Call) or isinstance(node, ast.Assign)
            and any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)]


def disassembled(code: CodeType) -> str:
    text = io.StringIO()
    dis.dis(code, file=text, depth=0)
    return text.getvalue().rstrip()
