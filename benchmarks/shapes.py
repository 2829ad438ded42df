"""Sizes and values that change from call to call: how often each side compiles, how long it takes, what runs eagerly.

    python -m benchmarks.shapes [--only TEXT] [--steps N] [--json FILE]

In: programs and models called with changing sizes, numbers, texts, functions and lists.  Out: a table for both sides,
measured in one process: graphs compiled, CPU seconds for all calls together, and calls that ran without a graph (what
a side does when it has given up).  Every result is compared with eager.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import random
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import stator
from benchmarks.sides import SIDES, Side
from stator import _core
from stator.guards.lower import lower
from tests.models.torchvision_ops import declare_missing

WIDTH_OF_A_FILE = 140
X = torch.arange(8.0)


@dataclass
class Outcome:
    """One program on one side."""

    calls: int = 0
    graphs: int = 0
    eager_calls: int = 0
    wrong: int = 0
    seconds: float = 0.0


class Counter:
    """A backend that runs graphs as they are and counts."""

    def __init__(self) -> None:
        self.graphs = self.runs = 0

    def __call__(self, graph: torch.fx.GraphModule, example_inputs: Any) -> Callable[..., Any]:
        self.graphs += 1

        def run(*inputs: Any) -> Any:
            self.runs += 1
            return graph.forward(*inputs)

        return run


@dataclass(frozen=True)
class Scene:
    """Calls of one program, whose state is fresh each time it is built.

    Each item is the callable, its arguments, and the callable to compare with where it is another one.
    """

    name: str
    build: Callable[[int], Iterator[tuple[Any, ...]]]
    quiet: int = 0  # calls that have no tensor operation in them


SCENES: list[Scene] = []


def scene(name: str, quiet: int = 0) -> Any:
    def register(build: Any) -> Any:
        SCENES.append(Scene(name, build, quiet))
        return build
    return register


# ---------------------------------------------------------------------- the recompile table


@scene("batch size x10")
def batch_size(steps: int) -> Iterator[Any]:
    def program(x: Any) -> Any:
        return (x * 2).sum(0)
    for n in range(1, 11):
        yield program, (torch.ones(n, 4),)


@scene("int attribute x20")
def int_attribute(steps: int) -> Iterator[Any]:
    class Model:
        step = 0

        def forward(self, x: Any) -> Any:
            self.step = self.step + 1
            return x * self.step

    compiled, reference = Model().forward, Model().forward
    for _ in range(20):
        yield compiled, (X,), reference


def closures(make: Callable[[Any], Any], values: list[Any], compiled_each: bool) -> Iterator[Any]:
    def outer(x: Any, function: Any) -> Any:
        return function(x) + 1
    for value in values:
        yield (make(value), (X,)) if compiled_each else (outer, (X, make(value)))


def _scaled(k: Any) -> Any:
    return lambda x: x * k


def _tagged(text: str) -> Any:
    return lambda x: x + len(text)


def _through(function: Any) -> Any:
    return lambda x: function(x) * 2


_VALUES: dict[str, tuple[Any, list[Any]]] = {
    "int": (_scaled, list(range(2, 22))),
    "str": (_tagged, ["n" * k for k in range(20)]),
    "function": (_through, [eval(f"lambda x: x - {k}") for k in range(20)]),
}
for _kind, (_make, _values) in _VALUES.items():
    scene(f"20 closures over {_kind}, each compiled")(
        lambda steps, make=_make, values=_values: closures(make, values, True))
    scene(f"20 closures over {_kind}, as an argument")(
        lambda steps, make=_make, values=_values: closures(make, values, False))


@scene("list length x15, its length")
def list_length(steps: int) -> Iterator[Any]:
    def program(x: Any, items: list[Any]) -> Any:
        return x * len(items) + (1 if items else 0)
    for n in range(1, 16):
        yield program, (X, [X] * n)


@scene("list length x15, a loop")
def list_loop(steps: int) -> Iterator[Any]:
    def program(x: Any, items: list[Any]) -> Any:
        for item in items:
            x = x + item
        return x * 2
    for n in range(1, 16):
        yield program, (X, [X + i for i in range(n)])


@scene("a first call without tensor ops", quiet=1)
def first_call(steps: int) -> Iterator[Any]:
    state = {"ready": False}

    def program(x: Any) -> Any:
        return x * 2 + 1 if state["ready"] else None
    for n in range(10):
        state["ready"] = n > 0
        yield program, (X,)


@scene("float argument x20")
def float_argument(steps: int) -> Iterator[Any]:
    def program(x: Any, rate: float) -> Any:
        return x * rate
    for n in range(20):
        yield program, (X, n * 0.25 + 0.1)


# ---------------------------------------------------------------------- models


def shuffled(steps: int, largest: int = 64) -> list[int]:
    numbers = list(range(1, largest + 1))
    random.Random(0).shuffle(numbers)
    return numbers[:steps]


declare_missing()


def model_scene(name: str, library: str) -> Any:
    def register(build: Any) -> Any:
        if importlib.util.find_spec(library) is not None:
            scene(name)(build)
        return build
    return register


def of_tokens(build: Callable[[], Any], steps: int, batches: bool, lengths: bool) -> Iterator[Any]:
    """A language model over batches and lengths 1..64 in random order; what does not change is 4."""
    model = build()
    for batch, length in zip(shuffled(steps), reversed(shuffled(steps)), strict=True):
        yield model, (torch.randint(0, 64, (batch if batches else 4, length if lengths else 4)),)


def llama() -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, vocab_size=64,
                                        num_attention_heads=4, num_key_value_heads=2, use_cache=False)).eval()


def bert() -> Any:
    from transformers import BertConfig, BertModel

    torch.manual_seed(0)
    return BertModel(BertConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                                vocab_size=64)).eval()


_SWEEPS = (("batch", True, False), ("length", False, True), ("batch and length", True, True))
for _name, _build in (("Llama", llama), ("BERT", bert)):
    for _what, _batches, _lengths in _SWEEPS:
        model_scene(f"{_name}, {_what} 1..64", "transformers")(
            lambda steps, build=_build, batches=_batches, lengths=_lengths: of_tokens(build, steps, batches, lengths))


@model_scene("ViT, batch 1..64", "transformers")
def vit(steps: int) -> Iterator[Any]:
    from transformers import ViTConfig, ViTModel

    torch.manual_seed(0)
    model = ViTModel(ViTConfig(hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
                               image_size=16, patch_size=8)).eval()
    for batch in shuffled(steps):
        yield model, (torch.randn(batch, 3, 16, 16),)


@model_scene("UNet, height and width in steps of 8", "diffusers")
def unet(steps: int) -> Iterator[Any]:
    from diffusers import UNet2DModel

    torch.manual_seed(0)
    build: Any = UNet2DModel
    model = build(sample_size=16, in_channels=3, out_channels=3, layers_per_block=1, block_out_channels=(8, 16),
                  norm_num_groups=4, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
                  up_block_types=("AttnUpBlock2D", "UpBlock2D"), attention_head_dim=4).eval()
    for height, width in zip(shuffled(steps, 8) * 3, shuffled(steps, 7) * 3, strict=False):
        yield model, (torch.randn(1, 3, 8 * height, 8 * width), torch.tensor(10))


@model_scene("GCN, nodes and edges", "torch_geometric")
def gcn(steps: int) -> Iterator[Any]:
    from torch_geometric.nn import GCN

    torch.manual_seed(0)
    model = GCN(8, 16, num_layers=2, out_channels=4).eval()
    for nodes, edges in zip(shuffled(steps), reversed(shuffled(steps)), strict=True):
        yield model, (torch.randn(nodes, 8), torch.randint(0, nodes, (2, edges * 3)))


# ---------------------------------------------------------------------- measuring


def equal(want: Any, got: Any) -> bool:
    if isinstance(want, torch.Tensor):
        return torch.allclose(want, got, atol=1e-4, rtol=1e-4)
    if isinstance(want, (tuple, list)):
        return all(map(equal, want, got))
    if hasattr(want, "to_tuple"):
        return equal(want.to_tuple(), got.to_tuple())
    return bool(want == got)


def measure(each: Scene, side: Side, steps: int) -> Outcome:
    side.make_cold()
    counter, outcome = Counter(), Outcome()
    compiled: dict[int, Any] = {}
    kept: list[Any] = []
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for program, args, *others in each.build(steps):
            kept.append(program)
            want = (others[0] if others else program)(*args)
            started = time.process_time()
            if id(program) not in compiled:
                compiled[id(program)] = side.compile(program, counter)
            runs = counter.runs
            got = compiled[id(program)](*args)
            outcome.seconds += time.process_time() - started
            outcome.calls += 1
            outcome.eager_calls += counter.runs == runs
            outcome.wrong += not equal(want, got)
    outcome.graphs = counter.graphs
    outcome.eager_calls -= each.quiet
    return outcome


def table_of(figures: dict[str, dict[str, Outcome]]) -> Table:
    table = Table(title="Compiles, CPU seconds of all calls, calls without a graph", title_justify="left")
    table.add_column("what changes")
    table.add_column("calls", justify="right")
    for side in SIDES:
        for heading in ("compiles", "seconds", "eager"):
            table.add_column(f"{side}\n{heading}", justify="right")
    for name, by_side in figures.items():
        row = [name, str(next(iter(by_side.values())).calls)]
        for outcome in by_side.values():
            wrong = f" ({outcome.wrong} WRONG)" if outcome.wrong else ""
            row += [f"{outcome.graphs}{wrong}", f"{outcome.seconds:.2f}", str(outcome.eager_calls)]
        table.add_row(*row)
    return table


def guard_cost() -> tuple[int, float]:
    """A typical set of relations between sizes: how many, and nanoseconds to check all of them."""
    def program(x: Any, y: Any, n: int) -> Any:
        if x.shape[0] % 8 == 0 and x.shape[0] * x.shape[1] < 4096 and n <= x.shape[0]:
            return x[:n] @ y
        return x

    compiled: Any = stator.compile(program, backend="eager", dynamic=True)
    args = (torch.ones(16, 5), torch.ones(5, 7), 3)
    compiled(*args)
    guards, _, tag = compiled.entries()[0]
    relations = [guard for guard in tag.guards if guard.kind.name == "SHAPE"]
    lowered = lower(relations, [])
    alone = _core.GuardProgram(lowered.nodes, lowered.checks, lowered.wanted, len(args))
    empty = lower([], [])
    nothing = _core.GuardProgram(empty.nodes, empty.checks, empty.wanted, len(args))
    samples: dict[Any, list[float]] = {each: [] for each in (alone, nothing)}
    for _ in range(30):
        for each, found in samples.items():
            started = time.process_time_ns()
            for _ in range(20_000):
                each.check(args)
            found.append((time.process_time_ns() - started) / 20_000)
    return len(relations), statistics.median(samples[alone]) - statistics.median(samples[nothing])


def run_all(only: str, steps: int) -> dict[str, dict[str, Outcome]]:
    warm = Scene("warm-up", lambda steps: iter([(lambda x: x + 1, (X,))]))
    for side in SIDES.values():
        measure(warm, side, steps)
    return {each.name: {side.name: measure(each, side, steps) for side in SIDES.values()}
            for each in SCENES if only in each.name}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.shapes", description=__doc__)
    parser.add_argument("--only", default="", help="only what has this text in its name")
    parser.add_argument("--steps", type=int, default=64, help="calls of each model")
    parser.add_argument("--json", type=Path, default=Path("out/shapes.json"), help="where the figures go")
    chosen = parser.parse_args(arguments)
    torch.set_num_threads(1)
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_A_FILE)
    figures = run_all(chosen.only, chosen.steps)
    console.print(table_of(figures))
    relations, nanoseconds = guard_cost()
    console.print(f"checking {relations} relations between sizes: {nanoseconds:.0f} ns", style="dim")
    chosen.json.parent.mkdir(parents=True, exist_ok=True)
    chosen.json.write_text(json.dumps({name: {side: asdict(outcome) for side, outcome in by_side.items()}
                                       for name, by_side in figures.items()}, indent=2) + "\n")
    return int(any(outcome.wrong for by_side in figures.values() for outcome in by_side.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
