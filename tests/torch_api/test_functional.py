"""torch.func, custom operators, `__torch_function__`, modes and odd tensors inside captured code, beside eager."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.func import functional_call, grad, grad_and_value, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing._internal.two_tensor import TwoTensor

sys.path.insert(0, str(Path(__file__).parents[1]))

import stator  # noqa: E402
from torch_api.side_by_side import Counting, Watching, World, compare  # noqa: E402


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")


def pulled(x: torch.Tensor) -> Any:
    y, pull = vjp(lambda t: (t.sin(), t.sum()), x)
    return y, pull((torch.ones(3, 3), torch.tensor(2.0)))


def closed_over(x: torch.Tensor) -> Any:
    w = x * 2
    return grad(lambda t: (t * w).sum())(x), grad(lambda a, b: (a * b).sum(), argnums=(0, 1))(x, x)


layer = nn.Linear(3, 2)


def per_sample(x: torch.Tensor) -> Any:
    def loss(parameters: Any, row: torch.Tensor) -> torch.Tensor:
        return functional_call(layer, parameters, (row[None],)).pow(2).sum()

    return vmap(grad(loss), in_dims=(None, 0))({k: v.detach() for k, v in layer.named_parameters()}, x)


WHOLE: dict[str, Callable[[torch.Tensor], Any]] = {
    "grad": lambda x: grad(lambda t: (t**2).sum())(x),
    "grad with aux": lambda x: grad(lambda t, k: ((t**2).sum(), {"a": t * k}), has_aux=True)(x, 3),
    "grad and value": lambda x: grad_and_value(lambda t: t.sin().sum())(x),
    "grad twice": lambda x: grad(lambda t: grad(lambda u: (u**3).sum())(t).sum())(x),
    "closed over": closed_over,
    "per sample": per_sample,
    "jvp": lambda x: jvp(torch.sin, (x,), (torch.ones_like(x),)),
    "vjp": pulled,
    "jacrev": lambda x: jacrev(lambda t: t.sin().sum(0))(x),
    "jacfwd": lambda x: jacfwd(lambda t: t.sin().sum(0))(x),
    "hessian": lambda x: hessian(lambda t: t.sin().sum())(x[0]),
    "vmap": lambda x: vmap(lambda a, b: (a * b, a + 1), in_dims=(1, None), out_dims=(0, 1))(x, torch.ones(3)),
    "vmap of vmap": lambda x: vmap(vmap(lambda t: t * 2))(x),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("wants_grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("name", WHOLE)
def test_transforms_are_captured_whole(name: str, wants_grad: bool, backend: str) -> None:
    seen = compare(lambda: World(WHOLE[name], lambda i: (torch.randn(3, 3).requires_grad_(wants_grad),)), 3, backend,
                   0.0 if backend == "eager" else 1e-6)
    assert not seen.breaks and seen.captures == [1, 0, 0], (seen.causes, seen.captures)


def test_an_outer_gradient_flows_through_grad() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return grad(lambda t: (t**3).sum())(x).sum()

    def world() -> World:
        x = torch.randn(3, requires_grad=True)

        def look() -> Any:
            function(x).backward()
            return x.grad

        return World(function, lambda i: (x,), look)

    compare(world)


def test_a_wrong_result_of_the_function_raises_as_in_eager() -> None:
    seen = compare(lambda: World(lambda x: grad(lambda t: t * 2)(x), lambda i: (torch.randn(3),)))
    assert set(seen.breaks) <= {"SB016", "SB001", "SB005"}


# ---------------------------------------------------------------------- operators and overrides


@torch.library.custom_op("stator_tests::unfaked", mutates_args=())
def unfaked(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@torch.library.custom_op("stator_tests::filled", mutates_args={"x"})
def filled(x: torch.Tensor, value: float) -> None:
    x.fill_(value)


def test_custom_operators() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        filled(x, 3.0)
        return x * 2

    assert not compare(lambda: World(function, lambda i: (torch.randn(3),))).breaks
    assert compare(lambda: World(lambda x: unfaked(x) + 1, lambda i: (torch.randn(3),))).breaks == ["SB017"]


class Duck:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        plain = [value.tensor if isinstance(value, cls) else value for value in args]
        return func.__name__, len(types), func(*plain, **(kwargs or {}))


class Silent:
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return NotImplemented


def ducks(x: torch.Tensor) -> Any:
    duck = Duck(x)
    return (torch.add(duck, 1), F.relu(duck), F.linear(x, duck), torch.overrides.has_torch_function((x, duck)),
            torch.overrides.has_torch_function_unary(x), torch.sin(input=x))


def test_objects_with_a_torch_function_are_asked() -> None:
    assert not compare(lambda: World(ducks, lambda i: (torch.randn(2, 2),))).breaks
    compare(lambda: World(lambda x: torch.add(Silent(), x), lambda i: (torch.randn(2),)))
    assert not compare(lambda: World(lambda x: x + Duck(x), lambda i: (torch.randn(2),))).breaks


@pytest.mark.parametrize("kind", [Counting, Watching])
def test_modes_inside_see_what_they_see_in_eager(kind: Any) -> None:
    def world() -> World:
        mode = kind()

        def function(x: torch.Tensor) -> torch.Tensor:
            with mode:
                y = x * 2
            return y + 1

        return World(function, lambda i: (torch.randn(3),), lambda: mode.seen)

    assert set(compare(world).breaks) == ({"SB005"} if kind is Watching else set())


@pytest.mark.parametrize("kind", [Counting, Watching])
def test_modes_around_a_compiled_call_see_what_they_see_in_eager(kind: Any) -> None:
    import stator

    def function(x: torch.Tensor) -> torch.Tensor:
        return (x * 2).sin()

    compiled = stator.compile(function, backend="eager")
    compiled(torch.ones(2))
    for _ in range(2):
        with kind() as expected:
            function(torch.ones(2))
        with kind() as found:
            compiled(torch.ones(2))
        assert found.seen == expected.seen


ODD: dict[str, Callable[[int], torch.Tensor]] = {
    "sparse": lambda i: torch.eye(3).to_sparse(),
    "sparse rows": lambda i: torch.eye(3).to_sparse_csr(),
    "complex": lambda i: torch.randn(3, 3, dtype=torch.complex64),
    "wrapper subclass": lambda i: TwoTensor(torch.ones(3, 3) * i, torch.zeros(3, 3)),
    "parameter": lambda i: nn.Parameter(torch.ones(3, 3) * i),
}


@pytest.mark.parametrize("name", ODD)
def test_odd_tensors_are_captured_or_broken_and_right(name: str) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return torch.matmul(x, torch.ones(3, 3, dtype=x.dtype)) if name != "wrapper subclass" else (x * 2).sin()

    def plain(x: torch.Tensor) -> Any:
        result = function(x)
        return (result.a, result.b) if isinstance(result, TwoTensor) else result.to_dense()

    seen = compare(lambda: World(plain, lambda i: (ODD[name](i).detach(),), lambda: None), tolerance=1e-6)
    assert set(seen.breaks) <= {"SB017", "SB005"}, seen.causes


def test_quantised_and_nested_tensors_break() -> None:
    def quantised(x: torch.Tensor) -> Any:
        q = torch.quantize_per_tensor(x, 0.1, 0, torch.qint8)
        return q.dequantize(), q.int_repr()

    assert set(compare(lambda: World(quantised, lambda i: (torch.randn(3),))).breaks) == {"SB017"}
    rows = [torch.randn(2, 3), torch.randn(4, 3)]
    seen = compare(lambda: World(lambda: torch.nested.nested_tensor(rows).to_padded_tensor(0.0), lambda i: ()))
    assert set(seen.breaks) <= {"SB017", "SB001"}


def test_keys_made_of_classes_are_found() -> None:
    table = {(int, Duck): 1.5, (Duck, Duck): 2.5, ((Duck,), int): 3.0}
    pairs = {(Duck, Duck), (int, Duck)}

    def function(x: torch.Tensor) -> Any:
        return x * table[Duck, Duck] + table[(Duck,), int], (int, Duck) in pairs, (Duck, int) in pairs, len(table)

    assert not compare(lambda: World(function, lambda i: (torch.randn(3),))).breaks


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_function_that_writes_to_what_it_captures_raises_as_in_eager(backend):
    layer = torch.nn.BatchNorm1d(4)

    def program(x):
        return torch.func.grad(lambda y: layer(y).square().sum())(x)
    x = torch.randn(5, 4)
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        program(x)
    with pytest.raises(RuntimeError, match="would mutate a captured Tensor"):
        stator.compile(program, backend=backend)(x)


def refused_by_torch(x: torch.Tensor, numbers: torch.Tensor) -> Any:
    said = []
    for function, given in ((lambda t: t.sum(), numbers), (lambda t: (t > 0).sum(), x), (lambda t: (t.sum(), t > 0), x)):
        for transform in (grad, jacrev, lambda f: lambda t: vjp(f, t)[0]):
            try:
                said.append(transform(function)(given))
            except (RuntimeError, TypeError) as error:
                said.append((type(error).__name__, str(error)))
    return x + 1, said


def test_derivatives_of_integers_are_refused_as_in_eager() -> None:
    compare(lambda: World(refused_by_torch, lambda i: (torch.randn(3), torch.arange(3))), calls=2)


def test_the_function_that_vjp_returns_is_called_later() -> None:
    def program(x: torch.Tensor, k: torch.Tensor) -> Any:
        return vjp(lambda t: {"a": (t * k).sin(), "b": t.sum()}, x)

    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for step in range(2):
        x, k = torch.randn(3), torch.tensor(2.0 + step)
        (made, pull), (expected, other) = compiled(x, k), program(x, k)
        torch.testing.assert_close(made, expected)
        for scale in (1.0, 3.0):
            cotangents = {"a": torch.full((3,), scale), "b": torch.tensor(0.5)}
            torch.testing.assert_close(pull(cotangents), other(cotangents))
        with pytest.raises(RuntimeError, match="Expected pytree structure of cotangents"):
            pull((torch.ones(3), torch.ones(())))
