"""torch.autograd.forward_ad inside captured code: tangents beside eager's, and what cannot be captured."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.autograd.forward_ad as fwAD
from torch import nn

import stator
from torch_api.side_by_side import World, compare

T = torch.Tensor


@pytest.fixture(autouse=True)
def strict(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("STATOR_STRICT", "1")
    yield
    assert fwAD._current_level == -1
    with fwAD.dual_level():  # torch refuses a second one, were one left open
        pass


def product(x: T, t: T) -> Any:
    y = (x * 2).sin() + (x * 2).sin()  # operations that the trace has met before
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        primal, tangent = fwAD.unpack_dual((d * d).sin() + y)
    return primal, tangent, fwAD._current_level


def without_tangent(x: T, t: T) -> Any:
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        return fwAD.unpack_dual(x * 2), fwAD.unpack_dual(d > 1).tangent, fwAD.unpack_dual(d.detach()).tangent


def forgotten_at_the_end(x: T, t: T) -> Any:
    with fwAD.dual_level():
        y = fwAD.make_dual(x, t) * 2
    with fwAD.dual_level():
        return fwAD.unpack_dual(y).tangent, y


def in_place(x: T, t: T) -> Any:
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        y, z = d.clone(), torch.zeros(3)
        y.mul_(d)
        z.copy_(y)
        z[0] = d[1]
        return [fwAD.unpack_dual(each).tangent for each in (y, z, z.view(3, 1)[0], d.data)]


def an_alias(x: T, t: T) -> Any:
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        d.add_(1)
        primal, tangent = fwAD.unpack_dual(d)
    return x, primal, tangent


def by_a_decorator(x: T, t: T) -> Any:
    @fwAD.dual_level()
    def inner(x: T) -> Any:
        return fwAD.unpack_dual(fwAD.make_dual(x, t) * x).tangent
    with torch.no_grad():
        return inner(x)


def left_by_an_exception(x: T, t: T) -> Any:
    try:
        with fwAD.dual_level():
            fwAD.make_dual(x, t)
            raise ValueError
    except ValueError:
        return x + fwAD._current_level


def refused(x: T, t: T) -> Any:
    said = []
    try:
        fwAD.make_dual(x, t)
    except RuntimeError as error:
        said.append(str(error))
    with fwAD.dual_level():
        try:
            fwAD.make_dual(x.long(), t)
        except ValueError as error:
            said.append(str(error))
        try:
            fwAD.enter_dual_level()
        except RuntimeError as error:
            said.append(str(error))
    return x + 1, said


def of_a_module(x: T, t: T) -> Any:
    names = dict(MODULE.named_parameters())
    with fwAD.dual_level():
        duals = {name: fwAD.make_dual(p, torch.ones_like(p)) for name, p in names.items()}
        out = torch.func.functional_call(MODULE, duals, (fwAD.make_dual(x, t),))
        return fwAD.unpack_dual(out).tangent


def with_tangents_off(x: T, t: T) -> Any:
    with fwAD._set_fwd_grad_enabled(False):
        with fwAD._set_fwd_grad_enabled(True), fwAD._set_fwd_grad_enabled(False):
            found = torch.func.jvp(lambda y: y.sin().sum(), (x,), (t,))
        seen = torch._C._is_fwd_grad_enabled()  # type: ignore[attr-defined]
    with fwAD.dual_level():
        d = fwAD.make_dual(x, t)
        with fwAD._set_fwd_grad_enabled(False):
            y = d * 2
        return found, seen, fwAD.unpack_dual(y).tangent, fwAD.unpack_dual(d * 3).tangent


torch.manual_seed(0)
MODULE = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3), nn.Softmax(-1))
WHOLE: list[Callable[..., Any]] = [product, without_tangent, forgotten_at_the_end, in_place, an_alias, by_a_decorator,
                                   left_by_an_exception, refused, of_a_module, with_tangents_off]


def arguments(step: int) -> tuple[T, T]:
    return torch.arange(1.0, 4.0) + step, torch.full((3,), 2.0 + step)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("function", WHOLE, ids=lambda function: function.__name__)
def test_captured_whole(function: Callable[..., Any], backend: str) -> None:
    seen = compare(lambda: World(function, arguments), calls=3, backend=backend, tolerance=1e-6)
    assert not seen.breaks, seen.causes
    assert seen.captures == [1, 0, 0]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_gradients_of_tangents(backend: str) -> None:
    compiled = stator.compile(product, backend=backend, fullgraph=True)
    for step in range(2):
        found = []
        for call in (product, compiled):
            x, t = (each.requires_grad_() for each in arguments(step))
            primal, tangent, _ = call(x, t)
            found.append((primal, tangent, *torch.autograd.grad((primal * tangent).sum(), (x, t))))
        torch.testing.assert_close(found[0], found[1])


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: T) -> T:
        ctx.save_for_forward(x)
        return x**2

    @staticmethod
    def jvp(ctx: Any, tangent: T) -> T:
        return 20 * ctx.saved_tensors[0] * tangent


def with_a_rule_of_its_own(d: T) -> T:
    return Square.apply(d)


def branching(d: T) -> T:
    return d * 3 if d.sum() > 0 else d * 4


def copied(d: T) -> T:
    return copy.deepcopy(d)


def mapped(d: T) -> T:
    return torch.vmap(lambda row: row * 2)(d)


def differentiated(d: T) -> T:
    return torch.func.grad(lambda d: (d**2).sum())(d)


def broken(d: T) -> T:
    stator.graph_break()
    return d * 2


@pytest.mark.parametrize("inner", [with_a_rule_of_its_own, branching, copied, mapped, differentiated, broken],
                         ids=lambda function: function.__name__)
def test_what_tangents_do_not_pass_through_breaks(inner: Callable[[T], T]) -> None:
    """The level is entered between two graphs, and what is inside it runs eagerly."""
    def function(x: T, t: T) -> Any:
        y = x + 1
        with fwAD.dual_level():
            return y, fwAD.unpack_dual(inner(fwAD.make_dual(x, t)))

    seen = compare(lambda: World(function, arguments), calls=3)
    assert set(seen.breaks) == {"SB016"}, seen.causes


def test_around_the_call_it_runs_eagerly() -> None:
    def function(x: T, t: T) -> Any:
        return fwAD.unpack_dual(fwAD.make_dual(x, t).sin()).tangent

    compiled = stator.compile(function, backend="eager")
    for _ in range(2):
        with fwAD.dual_level():
            assert torch.equal(compiled(*arguments(0)), function(*arguments(0)))
        assert fwAD._current_level == -1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_graph_that_fails_leaves_the_level(backend: str) -> None:
    def function(x: T, t: T, i: T) -> Any:
        with fwAD.dual_level():
            return fwAD.unpack_dual(fwAD.make_dual(x, t)[i] * 2).tangent

    places = (1, 7, 2)
    compare(lambda: World(function, lambda step: (*arguments(step), torch.tensor([places[step]]))), calls=3, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_level_that_is_left_open_is_open_after_the_call(backend: str) -> None:
    def function(x: T, t: T) -> Any:
        fwAD.enter_dual_level()
        return fwAD.make_dual(x, t) * 2

    compiled = stator.compile(function, backend=backend)
    for _ in range(2):
        made = compiled(*arguments(0))
        assert fwAD._current_level == 0
        found = fwAD.unpack_dual(made)
        fwAD.exit_dual_level()
        assert torch.equal(found.tangent, arguments(0)[1] * 2) and torch.equal(found.primal, arguments(0)[0] * 2)


def test_a_trace_that_stops_inside_a_level_leaves_it() -> None:
    def function(x: T, t: T) -> Any:
        with fwAD.dual_level():
            d = fwAD.make_dual(x, t)
            stator.graph_break()
            return fwAD.unpack_dual(d * 2).tangent

    with pytest.raises(stator.Unsupported):
        stator.compile(function, backend="eager", fullgraph=True)(*arguments(0))
    with fwAD.dual_level():
        assert fwAD.unpack_dual(fwAD.make_dual(*arguments(0))).tangent is not None


def test_the_setting_around_the_call_is_guarded() -> None:
    def doubled(x: T, t: T) -> Any:
        with fwAD.dual_level():
            return fwAD.unpack_dual(fwAD.make_dual(x, t) * 2).tangent

    def switched(x: T) -> T:
        torch._C._set_fwd_grad_enabled(False)  # type: ignore[attr-defined]
        return x * 2

    compiled = stator.compile(doubled, backend="aot_eager", fullgraph=True)
    for enabled in (True, False, True):
        with fwAD._set_fwd_grad_enabled(enabled):
            assert str(compiled(*arguments(0))) == str(doubled(*arguments(0)))
    with fwAD._set_fwd_grad_enabled(True):
        stator.compile(switched, backend="aot_eager", fullgraph=True)(arguments(0)[0])
        assert not torch._C._is_fwd_grad_enabled()  # type: ignore[attr-defined]
