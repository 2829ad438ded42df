"""Pieces whose passes are called directly: one node of autograd, gradients where eager has them, no more memory."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch._dynamo.utils import counters

import stator
from stator import events
from stator.backends import autograd_passes
from stator.backends.regions import compilation

LAYERS = 6


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(8, 16), nn.Linear(16, 8), nn.LayerNorm(8)

    def forward(self, x):
        y = self.down(F.gelu(self.up(self.norm(x))))
        return x + y * torch.sigmoid(y) - torch.tanh(x).sin() * 0.1 + y.cos()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.one, self.two = nn.Linear(8, 3), nn.Linear(8, 3)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.one(x), self.two(x)


@pytest.fixture(scope="module")
def sides():
    torch.manual_seed(0)
    model = Model()
    with events.record() as log:
        compiled = stator.compile(model, backend="aot_eager")
        compiled(torch.randn(4, 8, requires_grad=True))
    assert [event for event in log if isinstance(event, events.GraphCut)]
    return model, compiled


def gradients(run, model, use):
    model.zero_grad()
    torch.manual_seed(1)
    x = torch.randn(4, 8, requires_grad=True)
    use(run(x))
    return [x.grad, *[each.grad for each in model.parameters()]]


def test_one_node(sides):
    one, two = sides[1](torch.randn(4, 8, requires_grad=True))
    assert one.grad_fn is two.grad_fn and type(one.grad_fn).__name__ == "PiecesBackward"


@pytest.mark.parametrize("use", [
    lambda out: (out[0].sum() + out[1].square().sum()).backward(),
    lambda out: (out[0].t().sin().sum() + out[1][::2].sum()).backward(),
    lambda out: (out[0].sum().backward(retain_graph=True), out[1].sum().backward()),
], ids=["both", "strided gradients", "retain_graph"])
def test_gradients(sides, use):
    model, compiled = sides
    for one, other in zip(gradients(model, model, use), gradients(compiled, model, use), strict=True):
        assert torch.equal(one, other)


def test_an_output_without_a_gradient(sides):
    """As from a whole graph, where eager has None for parameters that are not reached."""
    model, compiled = sides
    found = gradients(compiled, model, lambda out: out[0].sum().backward())
    for one, other in zip(gradients(model, model, lambda out: out[0].sum().backward()), found, strict=True):
        assert torch.equal(torch.zeros_like(other) if one is None else one, other)


def test_a_second_backward_raises(sides):
    out = sides[1](torch.randn(4, 8, requires_grad=True))[0].sum()
    out.backward()
    with pytest.raises(RuntimeError, match="second time"):
        out.backward()


def test_a_weight_that_changes_before_backward_raises(sides):
    model, compiled = sides
    out = compiled(torch.randn(4, 8, requires_grad=True))[0].sum()
    with torch.no_grad():
        model.layers[2].up.weight.add_(0)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        out.backward()


def test_saved_tensors_are_freed(sides):
    out = sides[1](torch.randn(4, 8, requires_grad=True))[0].sum()
    kept: list[weakref.ref[torch.Tensor]] = [weakref.ref(each) for each in out.grad_fn.next_functions[0][0].saved_tensors]
    assert kept
    out.backward()
    del out  # whose history leads to the input
    gc.collect()
    parameters = {id(each) for each in sides[0].parameters()}
    assert all(ref() is None or id(ref()) in parameters for ref in kept)


def test_saved_bytes_are_those_of_the_whole_graph(sides):
    model, compiled = sides
    whole = stator.compile(model, backend="aot_eager", options={"regions": "off"})

    def saved(run):
        memory = {}
        x = torch.randn(4, 8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(
                lambda each: memory.setdefault(each.untyped_storage()._cdata, each), lambda each: each):
            out = run(x)
        own = {each.untyped_storage()._cdata for each in model.parameters()}
        assert out
        return sum(each.untyped_storage().nbytes() for place, each in memory.items() if place not in own)

    assert saved(compiled) <= 1.02 * saved(whole)


def test_a_wrong_order_of_gradients_is_found(sides, monkeypatch):
    """The tests above can fail: with gradients dropped, they do."""
    monkeypatch.setattr(autograd_passes, "laid_out", lambda grad, size, stride, kind: torch.zeros(size))
    model, compiled = sides
    with pytest.raises(AssertionError):
        test_gradients(sides, lambda out: out[0].sum().backward())


def test_explain_lists_the_pieces():
    torch.manual_seed(0)
    text = str(stator.explain(Model(), backend="aot_eager")(torch.randn(4, 8, requires_grad=True)))
    assert "pieces compiled" in text and f"x{LAYERS}" in text


@pytest.mark.parametrize("grad", [False, True])
def test_passes_that_are_found_in_the_cache_are_called_directly(grad, monkeypatch):
    torch.manual_seed(0)
    model = Model()
    found = []
    find = compilation.direct_passes
    monkeypatch.setattr(compilation, "direct_passes", lambda *args: found.append(find(*args)) or found[-1])
    for _ in range(2):
        found.clear()
        counters.clear()
        stator.reset()
        compiled = stator.compile(model, options={"regions": [Layer]})
        with torch.set_grad_enabled(grad):
            compiled(torch.randn(4, 8, requires_grad=grad))
    assert counters["aot_autograd"]["autograd_cache_hit"] == len(found) > 1 and all(found)
    if grad:
        for left, right in zip(gradients(compiled, model, lambda out: (out[0] - out[1]).sum().backward()),
                               gradients(model, model, lambda out: (out[0] - out[1]).sum().backward()), strict=True):
            torch.testing.assert_close(left, right)
    else:
        with torch.no_grad():
            x = torch.randn(4, 8)
            torch.testing.assert_close(compiled(x), model(x))


class Inside(Model):
    """Autocast and a stretch without gradients inside the graph; grad mode as it was, or left off behind it."""

    def __init__(self, leave_off=False):
        super().__init__()
        self.leave_off = leave_off

    def forward(self, x):
        with torch.no_grad():
            shift = self.one(x).sum() * 0.01
        with torch.autocast("cpu", torch.bfloat16):
            x = super().forward(x + shift)[0]
        x = x.float() * 2
        if self.leave_off:
            torch.set_grad_enabled(False)
        return x


def run_inside(regions, leave_off=False):
    torch.manual_seed(0)
    model, x = Inside(leave_off), torch.randn(4, 8, requires_grad=True)
    with events.record() as log, torch.enable_grad():
        out = stator.compile(model, backend="aot_eager", options={"regions": regions})(x)
        mode, autocast = torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")
    cut = [event for event in log if isinstance(event, events.GraphCut)]
    node = type(out.grad_fn).__name__
    out.sum().backward()
    return (out, mode, autocast, [x.grad, *[each.grad for each in model.parameters()]]), node, bool(cut)


@pytest.mark.parametrize("leave_off", [False, True])
def test_settings_inside_a_graph(leave_off):
    (whole, *facts, gradients_of_whole), _, _ = run_inside("off", leave_off)
    (out, *found, gradients_of_pieces), node, cut = run_inside("auto", leave_off)
    assert cut and node == "PiecesBackward"
    assert facts == found == [not leave_off, False] and torch.equal(whole, out)
    for one, other in zip(gradients_of_whole, gradients_of_pieces, strict=True):
        assert (one is None) is (other is None) and (one is None or torch.equal(one, other))
