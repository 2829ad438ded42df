"""Recurrent layers: what is known of them without running them, sequences of many lengths, and what compilers get."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.backends import pieces
from tests.torch_api.side_by_side import World, compare

KINDS = ("LSTM", "GRU", "RNN")
RECURRENT = (torch.lstm, torch.gru, torch.rnn_tanh)


def facts(results: Any) -> Any:
    sequence, ends = results
    return [(each.shape, each.stride(), each.storage_offset(), each.dtype, each.requires_grad, each.is_leaf)
            for each in (sequence, *(ends if isinstance(ends, tuple) else (ends,)))]


@pytest.mark.parametrize("kind", [*KINDS, "projected"])
def test_layouts_are_eagers(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Read inside captured code, where only the rule can have said them."""
    monkeypatch.setenv("STATOR_STRICT", "1")
    cases = itertools.product((False, True), (False, True), (1, 2), (1, 3), (1, 4), (False, True), (False, True))
    for first, both, layers, batch, length, grad, biased in cases:
        more: dict[str, Any] = {"proj_size": 2} if kind == "projected" else {}
        model = getattr(nn, "LSTM" if more else kind)(
            5, 6, layers, bias=biased, batch_first=first, bidirectional=both, **more)

        def told(x: Any, model: Any = model) -> Any:
            return facts(model(x))

        x = torch.randn((batch, length, 5) if first else (length, batch, 5))
        with torch.set_grad_enabled(grad):
            assert stator.compile(told, backend="eager", fullgraph=True)(x) == told(x)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_layouts_of_other_dtypes_and_strides(dtype: torch.dtype) -> None:
    model = nn.GRU(5, 6, 2).to(dtype)

    def told(x: Any, h: Any) -> Any:
        return facts(model(x, h))

    x, h = torch.randn(3, 4, 5).to(dtype).transpose(0, 1), torch.randn(2, 6, 3).to(dtype).transpose(1, 2)
    assert stator.compile(told, backend="eager", fullgraph=True)(x, h) == told(x, h)


@pytest.mark.parametrize("wrong", ["state", "features", "weights", "empty"])
def test_what_does_not_fit_is_refused_as_eager_refuses_it(wrong: str) -> None:
    def make() -> World:
        weights = [*nn.GRU(5, 6).parameters()][:3 if wrong == "weights" else 4]

        def call(x: Any, h: Any) -> Any:
            return torch.gru(x, h, weights, True, 1, 0.0, False, False, False)
        length = 0 if wrong == "empty" else 4
        return World(call, lambda i: (torch.zeros(length, 3, 4 if wrong == "features" else 5),
                                      torch.zeros(1, 2 if wrong == "state" else 3, 6)))
    compare(make, calls=2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", KINDS)
def test_one_graph_for_all_lengths(kind: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")

    def make() -> World:
        model, last = getattr(nn, kind)(4, 3, 2, batch_first=True), nn.Linear(3, 2)

        def step(x: Any) -> Any:
            sequence, ends = model(x)
            return last(sequence), ends, sequence.shape
        return World(step, lambda i: (torch.randn(2 + i % 3, 5 + 2 * i, 4, generator=torch.Generator().manual_seed(i)),),
                     lambda: [each.grad for each in model.parameters()])
    seen = compare(make, calls=5, backend=backend, tolerance=1e-6)
    assert not seen.breaks and not seen.fallbacks and sum(seen.captures) <= 3, seen


def compiled_targets(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    found: list[Any] = []

    def watched(gm: Any, step: Any) -> Any:
        module = module_of(gm, step)
        found.extend(node.target for node in module.graph.nodes)
        return module
    module_of = pieces.module_of
    monkeypatch.setattr(pieces, "module_of", watched)
    return found


def training(model: nn.Module, around: Callable[[], Any] | None = None) -> World:
    """A step that learns, with arithmetic before and after the layer, under a context if there is one."""
    last = nn.Linear(3, 2)

    def step(x: Any) -> Any:
        x = x * 2
        if around is None:
            sequence, ends = model(x)
        else:
            with around():
                sequence, ends = model(x.relu())
                sequence = sequence + sequence.mean()
        out = last(sequence.float()).tanh()
        out.sum().backward()
        return out, sequence, ends, sequence.requires_grad, torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    return World(step, lambda i: (torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(i)),),
                 lambda: [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"),
                          *[each.grad for each in (*model.parameters(), *last.parameters())]])


CONTEXTS: dict[str, Callable[[], Any] | None] = {
    "plain": None,
    "no_grad": torch.no_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("kind", KINDS)
def test_compilers_are_spared(kind: str, context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    targets = compiled_targets(monkeypatch)
    seen = compare(lambda: training(getattr(nn, kind)(4, 3, 2, dropout=0.5), CONTEXTS[context]), calls=3,
                   backend="aot_eager", tolerance=1e-6)
    assert not seen.fallbacks and targets and not [each for each in targets if each in RECURRENT]


def test_a_compiler_of_the_users_gets_one_graph_but_under_autocast() -> None:
    from torch._dynamo.backends.debugging import aot_eager

    for context, expected in (("plain", 1), ("autocast", 2)):
        graphs: list[Any] = []

        def backend(gm: Any, inputs: Any, graphs: list[Any] = graphs) -> Any:
            graphs.append(gm)
            return aot_eager(gm, inputs)
        compare(lambda context=context: World(  # type: ignore[misc]
            (lambda step: lambda x: step(x)[:3])(forward_only(CONTEXTS[context])),
            lambda i: (torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(i)),)),
            calls=2, backend=backend, tolerance=1e-2 if context == "autocast" else 1e-6)
        assert len(graphs) == expected, context


def forward_only(around: Callable[[], Any] | None) -> Callable[[Any], Any]:
    model, last = nn.LSTM(4, 3), nn.Linear(3, 2)

    def step(x: Any) -> Any:
        if around is None:
            sequence, ends = model(x * 2)
        else:
            with around():
                sequence, ends = model(x * 2)
        return last(sequence.float()), sequence, ends
    return step


def test_a_layer_that_cannot_be_cut_out_is_compiled() -> None:
    """A number that only the graph knows goes from one side of the layer to the other."""
    model = nn.GRU(4, 3)

    def step(x: Any) -> Any:
        sequence, end = model(x)
        count = (x[:, 0, 0] > 0).sum().item()
        return sequence * count, end, count

    compiled = stator.compile(step, backend="aot_eager")
    with events.record() as log:
        for number in range(2):
            x = torch.randn(5, 3, 4, generator=torch.Generator().manual_seed(number))
            torch.testing.assert_close(compiled(x), step(x))
    assert not [event for event in log if isinstance(event, events.EagerFallback)]


@pytest.mark.parametrize("context", ["no_grad", "autocast"])
def test_settings_hold_at_every_boundary(context: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Backward hooks are autograd boundaries too: a region of autocast goes on behind one, and ends where the program ends it."""
    monkeypatch.setenv("STATOR_STRICT", "1")

    def make() -> World:
        first, second = nn.Linear(4, 4), nn.Linear(4, 4)
        heard: list[Any] = []
        first.register_full_backward_hook(lambda module, inner, outer: heard.append(outer[0].dtype))

        def step(x: Any) -> Any:
            with CONTEXTS[context]():  # type: ignore[misc]
                y = second(first(x + 1)).relu()
            z = second(first(y.float()))
            z.sum().backward()
            return y, z, y.dtype, y.requires_grad
        return World(step, lambda i: (torch.randn(3, 4, generator=torch.Generator().manual_seed(i)),),
                     lambda: [torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"), list(heard),
                              *[each.grad for each in (*first.parameters(), *second.parameters())]])
    seen = compare(make, calls=2, backend="aot_eager", tolerance=1e-2 if context == "autocast" else 1e-6)
    assert not seen.fallbacks
