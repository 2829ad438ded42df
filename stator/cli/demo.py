"""Capture a small model and show what came of it: `make demo`.

In: a HuggingFace Llama, or the model of demo_model where transformers is not installed.  Out, on the terminal:
the graph, the guards, the residual source, and what capture and a call cost beside torch._dynamo, measured here
and now.
"""

from __future__ import annotations

import argparse
import gc
import re
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table
from torch._subclasses.fake_tensor import FakeTensorMode

import stator
from stator.cli import demo_llama, demo_model

STEPS = 5
WIDTH_OF_A_FILE = 120
CAPTURES = 5
BATCHES = 20
CALLS_IN_A_BATCH = 50

BARE_GRAPH = "the graph alone"
Compile = Callable[[Callable[..., Any]], Callable[..., Any]]
Implementations = dict[str, tuple[Compile, Callable[[], None]]]
USES_LLAMA = demo_llama.available()
WHAT = f"a HuggingFace Llama of {demo_llama.LAYERS} layers, random weights" if USES_LLAMA else \
    "a decoder of two transformer blocks (stator/cli/demo_model.py; with transformers installed, a Llama)"


def build() -> tuple[torch.nn.Module, torch.Tensor]:
    """A fresh model and its input."""
    return demo_llama.build() if USES_LLAMA else demo_model.build()


class DemoFailed(Exception):
    """Something that the demo shows is missing; the text names it."""


def implementations() -> Implementations:
    """How each implementation compiles and forgets. torch.compile(backend="eager") is torch._dynamo alone."""
    return {
        "stator": (lambda fn: stator.compile(fn, backend="eager"), stator.reset),
        "torch._dynamo": (lambda fn: torch.compile(fn, backend="eager"), torch.compiler.reset),
    }


def announce(console: Console, step: int, text: str) -> None:
    console.print(f"[bold cyan]\\[{step}/{STEPS}][/] {text}", highlight=False)


def field_of(explained: object, name: str) -> Any:
    """A field of what `stator.explain` returned."""
    if not hasattr(explained, name):
        raise DemoFailed(f"stator.explain returned {type(explained).__name__}, which has no field {name!r}")
    return getattr(explained, name)


def body_of(graph: torch.fx.GraphModule) -> str:
    """The graph's code without its signature, without renamings of inputs and without clearing of names."""
    lines = [re.sub(r";  \w+( = \w+)* = None.*$", "", line) for line in graph.code.splitlines()]
    return "\n".join(line for line in lines if re.match(r"    (return|\w+ = .*[(\[@+*/-])", line))


def show_text(console: Console, title: str, text: str, most: int | None, language: str = "python") -> None:
    """At most that many lines of the text under a title, and how many were left out."""
    lines = text.strip("\n").splitlines()
    shown = lines if most is None else [
        line if len(line) <= console.width else f"{line[:console.width - 3]}..." for line in lines[:most]]
    console.rule(f"[bold]{title}", align="left")
    console.print(Syntax("\n".join(shown), language, background_color="default", word_wrap=True))
    if len(lines) > len(shown):
        console.print(f"    ... {len(lines) - len(shown)} more lines (--full shows them)", style="dim")


def show_capture(console: Console, full: bool) -> None:
    """The graph, the guards and the residual source of the model's first call."""
    model, tokens = build()
    with torch.no_grad():
        explained = stator.explain(model)(tokens)
    graphs, guards, residuals = (field_of(explained, name) for name in ("graphs", "guards", "residuals"))
    breaks = field_of(explained, "graph_break_count")
    if not graphs:
        raise DemoFailed(f"nothing was captured: {field_of(explained, 'break_reasons')}")
    most = None if full else 24
    for number, graph in enumerate(graphs, start=1):
        kinds = [node.op for node in graph.graph.nodes]
        inputs, operations = kinds.count("placeholder"), sum(kind.startswith("call_") for kind in kinds)
        title = f"graph {number} of {len(graphs)}: {inputs} inputs, {operations} operations"
        show_text(console, title, graph.code if full else body_of(graph), most)
    show_text(console, f"guards: {len(guards)}", "\n".join(guard.text() for guard in guards), None if full else 16)
    for number, source in enumerate(residuals, start=1):
        show_text(console, f"residual program {number} of {len(residuals)}", source, most)
    console.print(f"{len(graphs)} graph(s), {breaks} graph break(s)", style="bold")


def check_answer(console: Console) -> None:
    """The compiled call equals the eager call: values, type and side effect."""
    eager, tokens = build()
    captured, _ = build()
    compiled = stator.compile(captured, backend="eager")
    with torch.no_grad():
        for call in (1, 2):
            expected, actual = eager(tokens), compiled(tokens)
            same = torch.equal(expected.logits, actual.logits) and type(actual) is type(expected)
            # The demo's own decoder also leaves a side effect behind.
            if not same or getattr(captured, "last_shape", None) != getattr(eager, "last_shape", None):
                raise DemoFailed(f"call {call}: the compiled model differs from eager")
    console.print("    equal to eager on a first and a second call", style="green")


def capture_seconds(compile_it: Compile, forget: Callable[[], None]) -> float:
    """CPU time of one cold capture and its first call."""
    forget()
    FakeTensorMode.cache_clear()
    model, tokens = build()
    gc.collect()
    with torch.no_grad():
        start = time.process_time()
        compile_it(model)(tokens)
        return time.process_time() - start


def call_seconds(call: Callable[..., Any], inputs: tuple[Any, ...]) -> float:
    start = time.thread_time()
    for _ in range(CALLS_IN_A_BATCH):
        call(*inputs)
    return (time.thread_time() - start) / CALLS_IN_A_BATCH


def bare_graph() -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """The captured graph by itself, and the inputs it gets: what a call costs without any front end."""
    model, tokens = build()
    kept: list[tuple[Callable[..., Any], tuple[Any, ...]]] = []

    def keep(graph: torch.fx.GraphModule, example_inputs: list[Any]) -> Callable[..., Any]:
        def call(*inputs: object) -> Any:
            kept.append((graph.forward, inputs))
            return graph.forward(*inputs)

        return call

    stator.reset()
    stator.compile(model, backend=keep)(tokens)
    if len(kept) != 1:
        raise DemoFailed(f"the model was expected to be one graph, and {len(kept)} ran")
    return kept[0]


def measure_captures(console: Console) -> dict[str, float]:
    """Median seconds of a cold capture for each implementation, taken in turns."""
    seconds: dict[str, list[float]] = {name: [] for name in implementations()}
    with console.status("") as status:
        for number in range(CAPTURES + 1):
            for name, (compile_it, forget) in implementations().items():
                status.update(f"capture {number} of {CAPTURES}: {name}" if number else f"warming up {name}")
                seconds[name].append(capture_seconds(compile_it, forget))
    # The first capture of each also imports and initialises, so it does not count.
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def measure_calls(console: Console) -> dict[str, float]:
    """Median seconds of a call of the bare graph and of each implementation's compiled model, in turns."""
    with torch.no_grad(), console.status("") as status:
        targets = {BARE_GRAPH: bare_graph()}
        for name, (compile_it, forget) in implementations().items():
            forget()
            model, tokens = build()
            targets[name] = (compile_it(model), (tokens,))
        seconds: dict[str, list[float]] = {name: [] for name in targets}
        for number in range(BATCHES + 1):
            status.update(f"batch {number} of {BATCHES}" if number else "warming up")
            for name, target in targets.items():
                seconds[name].append(call_seconds(*target))
    return {name: statistics.median(values[1:]) for name, values in seconds.items()}


def cost_table(captures: dict[str, float], calls: dict[str, float]) -> Table:
    """One row for the bare graph, one for each implementation, one for the ratio."""
    table = Table(title="What it cost (CPU time, median, backend eager)", title_justify="left")
    for heading in ("", "capture, cold", "one call", "beyond the graph"):
        table.add_column(heading, justify="right" if heading else "left")
    floor = calls[BARE_GRAPH]
    table.add_row(BARE_GRAPH, "", f"{floor * 1e6:.1f} us", "")
    for name, seconds in captures.items():
        beyond = calls[name] - floor
        table.add_row(name, f"{seconds * 1e3:.1f} ms", f"{calls[name] * 1e6:.1f} us", f"{beyond * 1e6:.1f} us")
    ours, theirs = captures
    added = [calls[name] - floor for name in (ours, theirs)]
    table.add_row(f"{theirs} / {ours}", f"{captures[theirs] / captures[ours]:.1f}x",
                  f"{calls[theirs] / calls[ours]:.2f}x",
                  f"{added[1] / added[0]:.1f}x" if added[0] > 0 else "below the noise")
    return table


def run(console: Console, full: bool) -> None:
    announce(console, 1, WHAT)
    model, _ = build()
    modules, numbers = len(list(model.modules())), sum(each.numel() for each in model.parameters())
    console.print(f"    {modules} modules, {numbers:,} parameters")
    announce(console, 2, "capture: stator.explain(model)(tokens)")
    show_capture(console, full)
    announce(console, 3, 'run: stator.compile(model, backend="eager")')
    check_answer(console)
    announce(console, 4, f"capture time: {CAPTURES} cold captures each, in turns")
    captures = measure_captures(console)
    announce(console, 5, f"calls: {BATCHES} batches of {CALLS_IN_A_BATCH} calls each, in turns")
    console.print(cost_table(captures, measure_calls(console)))


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m stator.cli.demo", description="Capture a small model.")
    parser.add_argument("--full", action="store_true", help="show all lines of graphs, guards and sources")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_A_FILE)
    try:
        run(console, chosen.full)
    except (DemoFailed, stator.StatorError) as failure:
        Console(stderr=True).print(f"demo failed: {failure}", style="bold red", markup=False)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
