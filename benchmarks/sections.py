"""The parts of `make bench`: what each measures, and its table.

In: how often to measure, and which names.  Out: figures as JSON holds them, and tables of them beside torch._dynamo's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from benchmarks import breaks, capture, many_entries, memory, model_calls, overhead
from benchmarks.samples import Sample
from benchmarks.sides import DYNAMO, SIDES, STATOR, Side
from benchmarks.workloads import WORKLOADS

Figures = dict[str, Any]  # by row
MODEL = 32  # layers of the Llama whose memory is measured


@dataclass(frozen=True)
class Effort:
    rounds: int  # captures, processes
    batches: int  # of calls
    calls: int  # in a batch
    sides: tuple[Side, ...]


@dataclass(frozen=True)
class Section:
    name: str
    rows: Callable[[], list[str]]
    measure: Callable[[str, Effort], Any]
    table: Callable[[Figures], Table]


def ratio(ours: float, theirs: float) -> str:
    return f"{theirs / ours:.1f}x" if ours > 0 else "-"


def start_table(title: str, *headings: str, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < left else "right")
    return table


def beside(by_side: dict[str, Any], scale: float, unit: str) -> list[str]:
    """Both sides' medians and spreads, and the ratio."""
    samples = {side: Sample.from_json(found) for side, found in by_side.items()}
    texts = [samples[side].text(scale, unit) if side in samples else "-" for side in SIDES]
    both = STATOR.name in samples and DYNAMO.name in samples
    return [*texts, ratio(samples[STATOR.name].median, samples[DYNAMO.name].median) if both else "-"]


# ---- capture

def measure_capture(name: str, effort: Effort) -> Any:
    results = capture.measure(WORKLOADS[name], list(effort.sides), effort.rounds, lambda: None)
    return {side: {"seconds": found.seconds.as_json(), "graphs": found.graphs, "operations": found.operations}
            for side, found in results.items()}


def capture_table(figures: Figures) -> Table:
    table = start_table("Capture, cold, backend eager: CPU time, median (quartiles)", "workload", "stator",
                        "torch._dynamo", "faster", "graphs", "operations")
    for name, by_side in figures.items():
        table.add_row(name, *beside({side: found["seconds"] for side, found in by_side.items()}, 1e3, "ms"),
                      *(" / ".join(str(found[key]) for found in by_side.values()) for key in ("graphs", "operations")))
    return table


# ---- what a call adds to its graph

def measure_overhead(name: str, effort: Effort) -> Any:
    samples = overhead.measure(overhead.CASES[name], list(effort.sides), effort.batches, effort.calls, lambda: None)
    return {target: sample.as_json() for target, sample in samples.items()}


def overhead_table(figures: Figures) -> Table:
    table = start_table("A compiled call: CPU time, median (quartiles)", "call", "bare graph", "stator",
                        "torch._dynamo", "stator adds", "torch._dynamo adds", "less")
    for name, by_target in figures.items():
        samples = {target: Sample.from_json(found) for target, found in by_target.items()}
        added = {side: samples[side].median - samples[overhead.GRAPH].median for side in SIDES if side in samples}
        table.add_row(
            name,
            *(samples[key].text(1e-3, "us") if key in samples else "-" for key in (overhead.GRAPH, *SIDES)),
            *(f"{added[side] / 1e3:.2f} us" if side in added else "-" for side in SIDES),
            ratio(added[STATOR.name], added[DYNAMO.name]) if len(added) == 2 else "-",
        )
    return table


# ---- guards and dispatch alone

def measure_guards(name: str, effort: Effort) -> Any:
    samples = model_calls.measure(model_calls.programs()[name](), effort.batches)
    return {side: sample.as_json() for side, sample in samples.items()}


def guards_table(figures: Figures) -> Table:
    table = start_table("Binding, guards, inputs and result of a call, its graph costing nothing: CPU time, median "
                        "(quartiles)", "call", "stator", "torch._dynamo", "less")
    for name, by_side in figures.items():
        table.add_row(name, *beside(by_side, 1e-3, "us"))
    return table


# ---- many entries, and one more

def measure_entries(name: str, effort: Effort) -> Any:
    found = many_entries.measure(int(name.split()[0]), min(effort.batches, many_entries.BATCHES))
    return {side: {key: sample.as_json() for key, sample in each.items()} for side, each in found.items()}


def entries_table(figures: Figures) -> Table:
    table = start_table("Many entries of one function: CPU time, median (quartiles)", "entries", "call: stator",
                        "torch._dynamo", "less", "one more entry: stator", "torch._dynamo", "less")
    for name, by_side in figures.items():
        table.add_row(name, *beside({side: found["call"] for side, found in by_side.items()}, 1e-3, "us"),
                      *beside({side: found["compile"] for side, found in by_side.items()}, 1e3, "ms"))
    return table


# ---- memory

def measure_memory(name: str, effort: Effort) -> Any:
    return {side: {key: sample.as_json() for key, sample in found.items()}
            for side, found in memory.compare(MODEL, effort.rounds).items()}


def memory_table(figures: Figures) -> Table:
    table = start_table("Memory of a capture: MiB above what the process held, median (quartiles)", "capture", "",
                        "stator", "torch._dynamo", "less", left=2)
    for name, by_side in figures.items():
        for number, key in enumerate(("peak", "kept")):
            table.add_row("" if number else name, key,
                          *beside({side: found[key] for side, found in by_side.items()}, 1, "MiB"))
    return table


# ---- graph breaks

def measure_breaks(name: str, effort: Effort) -> Any:
    contenders = [each for each in breaks.CONTENDERS if each.side in (*effort.sides, breaks.EAGER)]
    found = breaks.measure(name, contenders, effort.rounds, lambda: None)
    return {contender: broken.as_json() for contender, broken in found.items()}


def breaks_table(figures: Figures) -> Table:
    table = start_table("Graph breaks, backend eager: CPU time, median (quartiles)", "program", "compiled by", "graphs",
                        "breaks", "first call", "later call", left=2)
    for name, by_contender in figures.items():
        for number, (contender, found) in enumerate(by_contender.items()):
            first, later = Sample.from_json(found["capture"]), Sample.from_json(found["call"])
            table.add_row("" if number else name, contender, str(found["graphs"]), str(found["breaks"]),
                          first.text(1e3, "ms"), later.text(1e6, "us"))
    return table


SECTIONS = (
    Section("capture", lambda: list(WORKLOADS), measure_capture, capture_table),
    Section("overhead", lambda: list(overhead.CASES), measure_overhead, overhead_table),
    Section("guards", lambda: list(model_calls.programs()), measure_guards, guards_table),
    Section("entries", lambda: [f"{count} entries" for count in many_entries.COUNTS], measure_entries, entries_table),
    Section("breaks", lambda: list(breaks.PROGRAMS), measure_breaks, breaks_table),
    Section("memory", memory.rows, measure_memory, memory_table),
)
