"""Explain the compilation of one call.

In: the events of the call, its guards and residual programs, and what each break cost.  Out: `Explanation`, whose text
names every graph, every break with its one root cause, and where the time went.
"""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from stator import events
from stator.report.families import Family, fold
from stator.report.frames import is_library, render_problem
from stator.report.names import short_file, translate, user_lines
from stator.report.text import render

if TYPE_CHECKING:
    from torch import fx


@dataclass(frozen=True)
class BreakReason:
    """One graph break, however often the call went through it."""

    reason: str
    code: str
    user_stack: tuple[Any, ...]  # outermost first: filename, lineno, name
    remedy: str = ""
    text: str = ""  # the whole story: cause, the user's lines, the remedy
    passages: int = 0  # how often the call went through it
    native_microseconds: float = 0.0  # in the unsupported instruction itself, per passage
    added_microseconds: float = 0.0  # what breaking adds to each passage

    def __str__(self) -> str:
        return self.reason


@dataclass
class Explanation:
    """Graphs, breaks, guards and times of one compiled call."""

    graphs: list[Any]
    guards: list[Any]
    residuals: list[str]
    break_reasons: list[BreakReason]
    value: Any = None
    capture_seconds: float = 0.0
    backend_seconds: float = 0.0
    eager: list[str] = field(default_factory=list)  # what ran eagerly, and why
    regions: list[str] = field(default_factory=list)  # graphs that were compiled in pieces, or why not
    guard_microseconds: float = 0.0  # of checking all guards once, measured
    guard_costs: list[tuple[str, float]] = field(default_factory=list)  # the same by kind of guard
    terms: events.Terms = ()

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def graph_break_count(self) -> int:
        return len(self.break_reasons)

    @property
    def ops_per_graph(self) -> list[int]:
        return [len(operations(graph)) for graph in self.graphs]

    @property
    def op_count(self) -> int:
        return sum(self.ops_per_graph)

    def __str__(self) -> str:
        return self.text()

    def text(self, full: bool = False) -> str:
        """Graphs, breaks and families of guards; `full`: every guard."""
        lines = [f"{self.graph_count} graphs, {self.op_count} operations, {self.graph_break_count} graph breaks, "
                 f"{len(self.guards)} guards; captured in {self.capture_seconds * 1e3:.1f} ms, "
                 f"of that {self.backend_seconds * 1e3:.1f} ms in the backend"]
        for number, graph in enumerate(self.graphs):
            lines.append(f"graph {number}: {_summary(graph)}")
        for number, found in enumerate(self.break_reasons):
            lines.append(f"break {number}: {_indented(found.text)}")
            lines.append(f"  passed {found.passages}x; each costs {found.added_microseconds:.1f} us beside the "
                         f"{found.native_microseconds:.1f} us of the instruction itself")
        lines += [f"eager: {_indented(reason)}" for reason in self.eager]
        lines += self.regions
        lines.append(f"guards: {len(self.guards)}, checked in {self.guard_microseconds:.1f} us a call")
        line_of = user_lines(self.guards)
        for family in self.families:
            lines.append(f"  {family}")
            shown = family.guards if full else family.guards[:3]
            lines += [f"    {translate(guard.text(), self.terms)}{_place(line_of(guard))}" for guard in shown]
            lines += [f"    ... {len(family.guards) - 3} more"] if len(family.guards) > len(shown) else []
        return "\n".join(lines)

    @property
    def families(self) -> list[Family]:
        """The guards by family, with the microseconds of checking each alone."""
        return fold(self.guards, self.guard_costs)


def operations(graph: fx.GraphModule) -> list[fx.Node]:
    """The nodes of a graph module that compute something."""
    return [node for node in graph.graph.nodes if node.op in ("call_function", "call_method", "call_module")]


def _summary(graph: fx.GraphModule) -> str:
    nodes = operations(graph)
    names = collections.Counter(str(getattr(node.target, "__name__", node.target)) for node in nodes)
    inputs = sum(node.op == "placeholder" for node in graph.graph.nodes)
    most = ", ".join(f"{name} x{count}" if count > 1 else name for name, count in names.most_common(8))
    return f"{len(nodes)} operations on {inputs} inputs ({most}{', ...' if len(names) > 8 else ''})"


def _indented(text: str) -> str:
    return text.replace("\n", "\n  ")


def _place(where: Sequence[Any] | None) -> str:
    if where is None:
        return ""
    return f"   # {'inside ' if is_library(where[0]) else ''}{short_file(where[0])}:{where[1]}"


def build_explanation(log: Iterable[events.Event], guards: list[Any], residuals: list[str],
                      costs: Iterable[tuple[Any, float, float]], value: object) -> Explanation:
    """Put together what the events of one call say."""
    found = Explanation([], guards, residuals, [], value)
    seen: dict[events.GraphBreak, list[tuple[float, float]]] = {}
    for event in log:
        if isinstance(event, events.CaptureFinished):
            found.capture_seconds += event.seconds
            found.guard_microseconds += event.guard_microseconds
            found.guard_costs += event.kind_microseconds
            found.terms += tuple(term for term in event.terms if term not in found.terms)
            if event.graph is not None:
                found.graphs.append(event.graph)
        elif isinstance(event, events.BackendCompiled):
            found.backend_seconds += event.seconds
        elif isinstance(event, (events.GraphCut, events.GraphKeptWhole)):
            found.regions.append(render(event))
        elif isinstance(event, events.GraphBreak):
            seen.setdefault(event, [])
        elif isinstance(event, (events.EagerFallback, events.InternalFailure)):
            found.eager.append(event.why if isinstance(event, events.EagerFallback) else repr(event.error))
    for event, native, added in costs:
        seen.setdefault(event, []).append((native, added))
    found.break_reasons = [_reason(event, passages) for event, passages in seen.items()]
    return found


def _reason(event: events.GraphBreak, passages: list[tuple[float, float]]) -> BreakReason:
    stack = tuple(types.SimpleNamespace(filename=f.filename, lineno=f.line, name=f.function) for f in event.stack)
    text = render_problem(event.code, event.title, event.cause, event.remedy, event.filename, event.line, event.stack)
    count = max(len(passages), 1)
    return BreakReason(f"{event.code} {event.title}: {event.cause}", event.code, stack, event.remedy, text,
                       len(passages), sum(native for native, _ in passages) / count,
                       sum(added for _, added in passages) / count)
