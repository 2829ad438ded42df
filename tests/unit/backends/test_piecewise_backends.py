"""Backends of serving engines: the graph is split at attention, its pieces are compiled for each size and recorded.

As in vLLM: a custom operator writes into a tensor that the program has allocated, its layer is found by name in a
context that the engine sets, pieces between attention calls are compiled for a symbolic size and once more for sizes
that are asked for.  As in SGLang: pieces are recorded for some sizes, largest first, into shared buffers, and others
run padded.  Recordings are CUDA graphs where there is a GPU; elsewhere calls on static buffers stand for them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import fx, nn
from torch.fx.passes.split_module import split_module
from torch.nn import functional

import stator
from stator import events

WIDTH, HEADS, LAYERS = 16, 2, 3
CONTEXT: dict[str, Any] = {}


@torch.library.custom_op("piecewise::attention", mutates_args=("output",))
def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, output: torch.Tensor, layer: str
) -> None:
    """Attention over the tokens of the batch and a cache that only the engine knows."""
    keys, values = CONTEXT["cache"][layer]
    CONTEXT["calls"].append((layer, query.shape[0]))
    heads = [
        each.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1)
        for each in (query, torch.cat([keys, key]), torch.cat([values, value]))
    ]
    result = functional.scaled_dot_product_attention(*heads)
    output.copy_(result.transpose(0, 1).reshape(query.shape))


@attention.register_fake
def _(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, output: torch.Tensor, layer: str) -> None:
    return None


class Block(nn.Module):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.name = f"layers.{number}.attention"
        self.norm, self.qkv, self.out = (
            nn.LayerNorm(WIDTH),
            nn.Linear(WIDTH, 3 * WIDTH),
            nn.Linear(WIDTH, WIDTH),
        )

    def forward(self, x: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        query, key, value = (self.qkv(self.norm(x)) + positions[:, None] * 0.01).chunk(3, dim=-1)
        output = torch.empty_like(query)
        torch.ops.piecewise.attention(query, key, value, output, self.name)
        return x + self.out(output)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(32, WIDTH)
        self.layers = nn.ModuleList([Block(number) for number in range(LAYERS)])

    def forward(self, ids: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, positions)
        return x.relu()


@contextlib.contextmanager
def forward_context() -> Iterator[list[tuple[str, int]]]:
    generator = torch.Generator().manual_seed(0)
    CONTEXT["calls"] = []
    CONTEXT["cache"] = {
        f"layers.{number}.attention": [torch.randn(4, WIDTH, generator=generator) for _ in range(2)]
        for number in range(LAYERS)
    }
    try:
        yield CONTEXT["calls"]
    finally:
        CONTEXT.clear()


def is_attention(node: fx.Node) -> bool:
    return node.op == "call_function" and node.target in (
        torch.ops.piecewise.attention,
        torch.ops.piecewise.attention.default,
    )


def split(graph: fx.GraphModule) -> tuple[fx.GraphModule, list[str]]:
    """The graph as pieces, and the names of those without attention."""
    piece_of: dict[fx.Node, int] = {}
    number = 0
    for node in graph.graph.nodes:
        if node.op not in ("placeholder", "output"):
            number += is_attention(node)
            piece_of[node] = number
            number += is_attention(node)
    whole = split_module(graph, None, piece_of.__getitem__, keep_original_order=True)  # type: ignore[arg-type]
    parts = {name: part for name, part in whole.named_children() if isinstance(part, fx.GraphModule)}
    return whole, [name for name, part in parts.items() if not any(map(is_attention, part.graph.nodes))]


class Piece:
    """One piece: its code for any size; for sizes in `recorded`, a recording over static buffers."""

    def __init__(self, graph: fx.GraphModule, recorded: Sequence[int]) -> None:
        self.graph, self.recorded, self.recordings = graph, recorded, {}
        self.compiled: list[int] = []

    def __call__(self, *args: Any) -> Any:
        tensors = [each for each in args if isinstance(each, torch.Tensor)]
        size = next((each for each in args if type(each) is int), tensors[0].shape[0])
        if size not in self.recorded:
            return self.graph(*args)
        if size not in self.recordings:
            self.compiled.append(size)
            self.recordings[size] = record(self.graph, args)
        return self.recordings[size](*args)


def record(graph: fx.GraphModule, args: tuple[Any, ...]) -> Callable[..., Any]:
    """Replay with static inputs and outputs: a CUDA graph, or a call that copies as one does."""
    static = [
        each.clone() if isinstance(each, torch.Tensor) and not isinstance(each, nn.Parameter) else each
        for each in args
    ]
    cuda = (
        torch.cuda.CUDAGraph()
        if any(isinstance(each, torch.Tensor) and each.is_cuda for each in args)
        else None
    )
    if cuda is not None:
        graph(*static)
        with torch.cuda.graph(cuda):
            outputs = graph(*static)
    else:
        outputs = graph(*static)

    def replay(*given: Any) -> Any:
        for mine, new in zip(static, given, strict=True):
            if isinstance(mine, torch.Tensor) and mine is not new:
                mine.copy_(new)
        if cuda is not None:
            cuda.replay()
        else:
            for mine, new in zip(leaves(outputs), leaves(graph(*static)), strict=True):
                mine.copy_(new)
        return outputs

    return replay


def leaves(outputs: Any) -> Sequence[torch.Tensor]:
    return outputs if isinstance(outputs, (tuple, list)) else (outputs,)


class PiecewiseBackend:
    def __init__(self, recorded: Sequence[int] = ()) -> None:
        self.recorded, self.graphs, self.pieces = recorded, [], []

    def __call__(self, graph: fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        self.graphs.append(graph)
        whole, names = split(graph)
        for name in names:
            piece = Piece(getattr(whole, name), self.recorded)
            self.pieces.append(piece)
            whole.__dict__[name] = piece  # before the submodule of that name
            delattr(whole, name) if name in whole._modules else None
            whole.__dict__[name] = piece
        return whole.forward


def tokens(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.arange(count) % 32, torch.arange(count)


def run(backend: PiecewiseBackend, sizes: Sequence[int], **settings: Any) -> list[events.Event]:
    """Every size beside eager; the captures of all of them."""
    torch.manual_seed(0)
    model, seen = Model().eval(), []
    stop = events.subscribe(seen.append)
    try:
        compiled = stator.compile(model, backend=backend, fullgraph=True, **settings)
        for size in sizes:
            ids, positions = tokens(size)
            for each in (ids, positions):
                stator.mark_dynamic(each, 0)
            with torch.no_grad():
                with forward_context() as calls:
                    expected, wanted = model(ids, positions), list(calls)
                with forward_context() as calls:
                    torch.testing.assert_close(compiled(ids, positions), expected)
                assert calls == wanted
    finally:
        stop()
    return [each for each in seen if isinstance(each, events.CaptureFinished)]


def test_one_graph_split_at_attention_serves_all_sizes() -> None:
    backend = PiecewiseBackend()
    assert len(run(backend, [7, 3, 12, 2])) == 1
    (graph,) = backend.graphs
    assert sum(map(is_attention, graph.graph.nodes)) == LAYERS and len(backend.pieces) == LAYERS + 1
    assert any(
        node.op == "placeholder" and isinstance(node.meta.get("example_value"), torch.SymInt)
        for node in graph.graph.nodes
    )


def test_pieces_are_recorded_for_some_sizes() -> None:
    backend = PiecewiseBackend(recorded=(8, 4))
    assert len(run(backend, [5, 8, 4, 8, 6, 4])) == 1
    assert [piece.compiled for piece in backend.pieces] == [[8, 4]] * (LAYERS + 1)


def test_without_guards_as_serving_engines_ask_for_it() -> None:
    backend = PiecewiseBackend(recorded=(4,))
    captures = run(backend, [6, 4, 9], options={"guard_filter_fn": lambda guards: [False] * len(guards)})
    assert len(captures) == 1


@pytest.mark.parametrize("sizes", [(1, 3), (9, 16)])
def test_calls_are_padded_to_a_recorded_size(sizes: tuple[int, ...]) -> None:
    """As SGLang does: largest first, then every batch runs padded to the next recorded size."""
    torch.manual_seed(0)
    backend, model = PiecewiseBackend(recorded=(16, 8, 4)), Model().eval()
    compiled = stator.compile(model, backend=backend, fullgraph=True, dynamic=True)

    def padded(function: Callable[..., torch.Tensor], count: int) -> torch.Tensor:
        room = next(size for size in (4, 8, 16) if size >= count)
        ids, positions = (functional.pad(each, (0, room - count)) for each in tokens(count))
        with forward_context():
            return function(ids, positions)[:count].clone()

    with torch.no_grad():
        for size in (16, 8, 4, *sizes):
            torch.testing.assert_close(padded(compiled, size), padded(model, size))
    assert len(backend.graphs) == 1 and {tuple(piece.compiled) for piece in backend.pieces} == {(16, 8, 4)}
