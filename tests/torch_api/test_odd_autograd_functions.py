"""autograd.Functions as they should not be used, and are: made into objects, and with too few gradients."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: int) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.k = k
        return x * x * k

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        x, = ctx.saved_tensors
        return grad * x * 20 * ctx.k, None


class Short(torch.autograd.Function):
    """Autograd refuses its gradients, once there is a backward pass."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, k: int) -> torch.Tensor:
        return x.sin() * k

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:
        return grad


def story(program: Any, times: int = 1) -> Any:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        x = torch.arange(3.0, requires_grad=True)
        for _ in range(times):
            program(x).sum().backward()
    assert x.grad is not None
    return x.grad.tolist(), [str(each.message) for each in told if "instantiated" in str(each.message)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program, breaks", [
    (lambda x: Square().apply(x, 3) + 1, False),
    (lambda x: (lambda function: function.apply(x, 3) + function.apply(x, 2))(Square()), True),
    (lambda x: [Square(), x * 2][1], False),
])
def test_an_object_of_a_function(program: Any, breaks: bool, backend: str) -> None:
    with events.record() as log:
        compiled = stator.compile(program, backend=backend)
        assert story(compiled) == story(program)
    assert any(isinstance(event, events.GraphBreak) for event in log) is breaks
    assert story(compiled)[0] == story(program)[0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_too_few_gradients(backend: str) -> None:
    compiled = stator.compile(lambda x: Short.apply(x, 3) * 2, backend=backend, fullgraph=True)
    x = torch.arange(3.0, requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # AOTAutograd cannot trace it: it runs as it is
        assert torch.equal(compiled(x), Short.apply(x, 3) * 2)
        with pytest.raises(RuntimeError, match="incorrect number of gradients"):
            compiled(x).sum().backward()


class ForwardAlone(torch.autograd.Function):
    """Good as long as nobody asks for a gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_no_backward_at_all(backend: str) -> None:
    compiled = stator.compile(lambda x: ForwardAlone.apply(x) + 1, backend=backend, fullgraph=True)
    for _ in range(2):
        x = torch.arange(3.0, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            made = compiled(x)
        assert torch.equal(made, x * 3 + 1) and made.requires_grad
        with pytest.raises(NotImplementedError, match="must implement either the backward"):
            made.sum().backward()


class Marking(torch.autograd.Function):
    """Some results have no gradient, and say so to nobody but autograd."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        made, marked = x * 2, x * 5
        ctx.mark_non_differentiable(marked)
        return made, marked, x.long()

    @staticmethod
    def backward(ctx: Any, grad: Any, marked: Any, whole: Any) -> Any:
        return grad * 2 + marked.sum() * 7 + whole.sum() * 9


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_results_without_a_gradient(backend: str) -> None:
    told = []
    for run in (Marking.apply, stator.compile(lambda x: Marking.apply(x), backend=backend, fullgraph=True)):
        x = torch.arange(3.0, requires_grad=True)
        results = run(x)
        sum(each.sum() for each in results if each.requires_grad).backward()
        told.append(([each.requires_grad for each in results], x.grad.tolist()))
    assert told[0] == told[1]


class InAList(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x * 2, [x.detach() * 3]

    @staticmethod
    def backward(ctx: Any, grad: Any, other: Any) -> Any:
        return grad * 2


class OfNothing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return 3

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad


@pytest.mark.parametrize("function", [InAList, OfNothing])
def test_results_that_are_no_tensors(function: Any) -> None:
    compiled = stator.compile(lambda x: (function.apply(x), x + 1), backend="eager", options={"strict": True})
    with events.record() as log:
        for _ in range(2):
            x = torch.arange(3.0, requires_grad=True)
            assert str(compiled(x)) == str((function.apply(x), x + 1))
    assert {event.code for event in log if isinstance(event, events.GraphBreak)} == {"SB016"}
