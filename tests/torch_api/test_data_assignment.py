"""`p.data = t` inside captured code: memory, gradients and aliases as eager leaves them; captured or broken as promised."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from tests.torch_api.side_by_side import Register, World, compare

whole, whole_in_eager, broken = Register(), Register(), Register()


def values(*shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def layer() -> nn.Linear:
    torch.manual_seed(1)
    return nn.Linear(4, 4)


def world(step: Any, look: Any, wants_grad: bool = False) -> World:
    return World(step, lambda i: (values(2, 4, seed=i).requires_grad_(wants_grad),), look)


@whole
def after_the_last_use() -> World:
    model = layer()

    def step(x: Any) -> Any:
        for parameter in model.parameters():
            parameter.data = parameter.data - 0.1 * x.mean()
        return x + 1
    return world(step, lambda: model)


@whole
def in_place() -> World:
    model = layer()

    def step(x: Any) -> Any:
        model.weight.data *= 0.5
        model.weight.data -= 0.1
        model.bias.data += x.mean(0)
        return model(x)
    return world(step, lambda: model)


@whole
def assigned_and_read_again() -> World:
    model = layer()

    def step(x: Any) -> Any:
        model.weight.data = model.weight.data * 2
        model.weight.data = model.weight.data + 1
        model.weight.data.clamp_(max=1.5)
        model.weight.data += 0.25
        return x.sum()
    return world(step, lambda: model)


@whole
def moved_to_where_it_is() -> World:
    model = layer()

    def step(x: Any) -> Any:
        return model.to(x.device)(x), model.float()(x), nn.Linear(4, 2).to(x.dtype).cpu().weight.shape
    return world(step, lambda: (model, model.weight.data_ptr() > 0), True)


@whole_in_eager
def moved_to_another_type() -> World:
    model = layer()

    def step(x: Any) -> Any:
        return model.to(torch.float64)(x.double()), model.weight.dtype
    return world(step, lambda: model, True)


@whole
def shared_with_what_is_kept() -> World:
    model, kept = layer(), [None]

    def step(x: Any) -> Any:
        made = model.weight.data * 0.5
        model.weight.data = made
        kept[0] = made
        return x + 1
    return world(step, lambda: (model, kept[0].data_ptr() == model.weight.data_ptr()))


@whole
def failing_later() -> World:
    model = layer()

    def step(x: Any, index: Any) -> Any:
        model.weight.data = model.weight.data * 0.5
        return x[index]
    return World(step, lambda i: (values(2, 4, seed=i), torch.tensor([0, 9 if i == 1 else 1])), lambda: model)


@whole
def used_again() -> World:
    model = layer()

    def step(x: Any) -> Any:
        y = model(x)
        model.weight.data = model.weight.data * 0.5
        return y + model(x)
    return world(step, lambda: model)


@whole
def its_number_asked_again() -> World:
    flag = [torch.tensor(True)]

    def step(x: Any, switch: Any) -> Any:
        switch.data = torch.tensor(False)
        return x if switch else -x

    def arguments(i: int) -> Any:
        flag[0] = torch.tensor(True)
        return values(3, seed=i), flag[0]
    return World(step, arguments, lambda: flag[0])


@whole_in_eager
def turned_in_place() -> World:
    model = layer()

    def step(x: Any) -> Any:
        turned = model.weight.data
        turned.t_()
        model.weight.data = turned
        return x + 1
    return world(step, lambda: model)


@whole
def moved_in_place() -> World:
    model = layer()

    def step(x: Any, y: Any) -> Any:
        moved = model.weight.data
        moved.set_(y)
        model.weight.data = moved
        return model(x)
    return World(step, lambda i: (values(2, 4, seed=i), values(4, 4, seed=i + 4)), lambda: model)


@whole
def of_another_size() -> World:
    kept: list[Any] = []

    def step(x: Any, y: Any) -> Any:
        x.data = y
        return x * 2

    def arguments(i: int) -> Any:
        kept[:] = [values(2, 3), values(4, seed=i)]
        return tuple(kept)
    return World(step, arguments, lambda: (kept[0], kept[0].data_ptr() == kept[1].data_ptr()))


def moved(step: Any, wants_grad: bool = False, shape: tuple[int, ...] = (6,)) -> World:
    """Four tensors, what each of them is afterwards, and which of them share memory."""
    kept: list[Any] = []

    def arguments(i: int) -> Any:
        kept[:] = [values(*shape, seed=10 * i + j).requires_grad_(wants_grad) for j in range(4)]
        return tuple(kept)

    def look() -> Any:
        return list(kept), [[one.data_ptr() == other.data_ptr() for one in kept] for other in kept], \
            [each.is_leaf for each in kept], [each.requires_grad for each in kept]
    return World(step, arguments, look)


@whole
def used_afterwards() -> World:
    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        x.data = y
        x.add_(1)
        return x, y * 2, x is y
    return moved(step)


@whole
def given_on_before_it_moves() -> World:
    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        x.data = a
        y.data = x
        x.data = b
        return a + 1
    return moved(step)


@whole
def its_owner_moves_afterwards() -> World:
    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        before = y + 1
        x.data = y
        y.data = torch.zeros([0])
        return x, before, y.shape, y.numel()
    return moved(step)


@whole
def leaves_that_want_gradients() -> World:
    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        before = y.detach() + 1
        x.data = y
        y.data = torch.zeros([0])
        return torch.tensor(x is y), x.shape, y.shape, before
    return moved(step, wants_grad=True)


@whole
def a_part_of_another() -> World:
    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        x.data = y[1:4]
        x += 1
        doubled = x * 2
        x.data = doubled
        x.mul_(2)
        return x.stride(), x.storage_offset(), doubled, len(x)
    return moved(step)


@whole
def exchanged() -> World:
    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        x.data, y.data = y.data, x.data
        x *= 2
        return x - y, a
    return moved(step)


@whole
def kept_by_autograd() -> World:
    weight = values(6, seed=5).requires_grad_()

    def step(x: Any, y: Any, a: Any, b: Any) -> Any:
        x.data = y
        loss = (weight * x).sum()
        return loss
    return moved(step)


@whole
def of_a_tensor_made_inside() -> World:
    def step(x: Any) -> Any:
        y = x * 2
        y.data = x + 1
        return y, y * 3
    return world(step, lambda: None, wants_grad=True)


@broken
def copied_afterwards() -> World:
    model = layer()

    def step(x: Any) -> Any:
        model.weight.data = model.weight.data * 0.5
        return copy.deepcopy(model.weight)
    return world(step, lambda: model)


@whole
def under_two_names_now_and_then() -> World:
    kept: list[Any] = [None]

    def step(x: Any, y: Any) -> Any:
        x.data = x.data * 2
        return y + 1

    def arguments(i: int) -> Any:
        kept[0] = values(3, seed=i)
        return kept[0], kept[0] if i == 1 else values(3, seed=i + 5)
    return World(step, arguments, lambda: kept[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", whole, ids=lambda make: make.__name__)
def test_captured_whole(make: Callable[[], World], backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    seen = compare(make, calls=4, backend=backend, tolerance=0.0 if backend == "eager" else 1e-6)
    assert not seen.breaks


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("make", [*whole_in_eager, *broken], ids=lambda make: make.__name__)
def test_broken_and_right(make: Callable[[], World], backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    seen = compare(make, calls=4, backend=backend, tolerance=0.0 if backend == "eager" else 1e-6)
    captured = backend == "eager" and make in whole_in_eager
    assert set(seen.breaks) == (set() if captured else {"SB006"})


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_backward_pass_sees_the_new_memory(backend: str) -> None:
    def make() -> World:
        model, given = layer(), []

        def step(x: Any) -> Any:
            loss = model(x).sum()
            model.weight.data = model.weight.data * 0.5
            loss.backward()
            return loss

        def arguments(i: int) -> Any:
            given[:] = [values(2, 4, seed=i).requires_grad_()]
            return tuple(given)
        return World(step, arguments, lambda: (model, given[0].grad, model.weight.grad))
    seen = compare(make, calls=3, backend=backend)
    assert seen.breaks == ["SB016"]


@pytest.mark.parametrize(("before", "compilers"), [(lambda p, x: p.detach().sum(), 1), (lambda p, x: p.data.sum(), 1),
                                                   (lambda p, x: (p * x).sum(), 0)])  # fmt: skip
def test_a_compiler_gets_the_graph_unless_autograd_has_kept_the_tensor(before: Any, compilers: int) -> None:
    graphs: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    def step(p: Any, x: Any) -> Any:
        loss = before(p, x) + x.sum()
        p.data = p.data * 0.5
        return loss

    results = []
    for function in (step, stator.compile(step, backend=backend)):
        p, x = nn.Parameter(values(4)), values(4, seed=5).requires_grad_()
        function(p, x).backward()
        results.append((p.data, p.grad, x.grad))
    torch.testing.assert_close(results[1], results[0])
    assert len(graphs) == compilers
