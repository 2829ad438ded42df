"""Gradients of values that were made of an input before the graph wrote to it: as in eager, whatever the backward pass saves."""

from __future__ import annotations

import copy
import importlib
from typing import Any

import pytest
import torch
from functorch.compile import aot_module_simplified, make_boxed_func, min_cut_rematerialization_partition

import stator
from stator.backends import compilation
from tests.comparison import Programs

PROGRAMS = Programs()


class Model(torch.nn.Module):
    def __init__(self, forward: Any) -> None:
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("steps", torch.zeros(3, dtype=torch.int8))
        self.register_buffer("matrix", torch.ones(3, 3).tril())
        self.body = forward

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.body(self, x)
        return result


@PROGRAMS
def write_then_read(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.count.add_(2)
    return x * m.w * m.count


@PROGRAMS
def read_then_write(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * (m.count + 1)
    m.count.add_(2)
    return y


@PROGRAMS
def read_through_a_view(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * torch.exp(m.matrix.t()[0])
    m.matrix.mul_(2)
    return y


@PROGRAMS
def another_dtype(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * (m.steps.float() + 1).exp()
    m.steps.add_(1)
    return y


@PROGRAMS
def write_of_a_part(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * (m.matrix[0] + 1)
    m.matrix[0] = x.detach()
    return y


@PROGRAMS
def running_mean(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w
    m.count.lerp_(y.detach(), 0.5)
    return (y - m.count) ** 2


@PROGRAMS
def parameter_behind_autograd(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * (m.w.detach() * 2)
    m.w.data.add_(1)
    return y


@PROGRAMS
def write_outside_of_the_graph(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * (m.matrix + 1).sum(0)
    m.matrix.t_()
    m.matrix.add_(1)
    return y


@PROGRAMS
def checkpoint_reads_again(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.utils.checkpoint.checkpoint(lambda t: (t * m.w).sin() * (m.count + 1), x, use_reentrant=False)
    m.count.add_(2)
    return y


@PROGRAMS
def write_behind_a_boundary(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = x * m.w * (m.count + 1).exp()
    y.retain_grad()
    m.count.add_(2)
    return y * 2


@PROGRAMS
def reentrant_checkpoint_reads_again(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = torch.utils.checkpoint.checkpoint(lambda t: (t * m.w).sin() * (m.count + 1), x * m.w, use_reentrant=True)
    m.count.add_(2)
    return y


def run_as_it_is(gm: Any, inputs: Any) -> Any:
    return make_boxed_func(gm.forward)


def users_own(gm: Any, inputs: Any) -> Any:
    return aot_module_simplified(gm, inputs, fw_compiler=run_as_it_is, bw_compiler=run_as_it_is,
                                 partition_fn=min_cut_rematerialization_partition)


def trained(model: Any, compiled: Any) -> list[torch.Tensor]:
    out = []
    for scale in (1.0, 2.0):
        y = compiled(torch.ones(3) * scale)
        y.sum().backward()
        out += [y.detach().clone(), model.w.grad.clone(), *(each.clone() for each in model.buffers())]
    return out


def gradients_differ(name: str, backend: Any) -> bool:
    eager = Model(PROGRAMS[name])
    model = copy.deepcopy(eager)
    expected = trained(eager, eager)
    got = trained(model, stator.compile(model, backend=backend))
    return not all(torch.allclose(left.float(), right.float()) for left, right in zip(expected, got, strict=True))


@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_equal_eager(name: str) -> None:
    assert not gradients_differ(name, "aot_eager")


@pytest.mark.parametrize("backend", ["eager", users_own, "aot_eager_decomp_partition"])
@pytest.mark.parametrize("name", ["read_then_write", "read_through_a_view", "running_mean", "checkpoint_reads_again",
                                  "reentrant_checkpoint_reads_again"])
def test_with_other_backends(name: str, backend: Any) -> None:
    assert not gradients_differ(name, backend)


@pytest.mark.parametrize("name", ["write_then_read", "running_mean", "read_through_a_view", "checkpoint_reads_again"])
def test_with_inductors_partition(name: str) -> None:
    assert not gradients_differ(name, "inductor")


def test_arguments_too() -> None:
    def f(c: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = w * (c.float() + 1).exp()
        c.add_(2)
        return y

    gradients = []
    for fn in (f, stator.compile(f, backend="aot_eager")):
        w = torch.ones(2, requires_grad=True)
        fn(torch.ones(2, dtype=torch.int8), w).sum().backward()
        gradients.append(w.grad)
    assert torch.equal(*gradients)


def test_gradients_need_the_saved_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compilation, "save_values", lambda *args: None)
    assert gradients_differ("read_then_write", "aot_eager")


def test_inductor_keeps_graphs_with_checkpoints_apart() -> None:
    """The keys of torch's caches on disk do not contain marks of nodes."""
    def plain(m: Any, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = (x * m.w).sin() * (m.count + 1)
        m.count.add_(2)
        return y

    PROGRAMS["without_a_checkpoint"] = plain
    for name in ("without_a_checkpoint", "checkpoint_reads_again", "without_a_checkpoint"):
        assert not gradients_differ(name, "inductor")


def test_a_batch_norm_saves_what_torch_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_fx = importlib.import_module("torch._inductor.compile_fx")
    saved: list[int] = []

    def count(graph: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
        saved.append(len(graph.graph.output_node().args[0]))
        return make_boxed_func(graph.forward)

    known = compile_fx.compile_fx

    def compile_to_count(graph: torch.fx.GraphModule, inputs: Any, inner_compile: Any = None, **options: Any) -> Any:
        return known(graph, inputs, inner_compile=count, **options)

    monkeypatch.setattr(compile_fx, "compile_fx", compile_to_count)
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 1), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Conv2d(4, 4, 1))
    x = torch.randn(2, 3, 5, 5)
    gradients = []
    with torch._inductor.config.patch(force_disable_caches=True):
        for compiled in (lambda model: torch.compile(model, backend=lambda graph, inputs: compile_fx.compile_fx(graph, inputs)),
                         lambda model: stator.compile(model, backend="inductor"), lambda model: model):
            model = copy.deepcopy(layers)
            compiled(model)(x).sum().backward()
            gradients.append([each.grad for each in model.parameters()] + [each.clone() for each in model.buffers()])
    assert len(saved) == 4 and saved[:2] == saved[2:]
    for got in gradients[:2]:
        torch.testing.assert_close(got, gradients[2])
