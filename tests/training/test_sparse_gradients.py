"""Steps with sparse gradients: tables with sparse=True under the optimizers that take them, beside eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

from stator import events
from tests.torch_api.side_by_side import World, compare

Make = Callable[[Any], Any]
UPDATES: dict[str, Make] = {
    "SGD": lambda p: torch.optim.SGD(p, 0.1),
    "SGD with foreach": lambda p: torch.optim.SGD(p, 0.1, foreach=True),
    "SGD with momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9),
    "Adagrad": lambda p: torch.optim.Adagrad(p, 0.1, lr_decay=0.01),
    "Adagrad with foreach": lambda p: torch.optim.Adagrad(p, 0.1, foreach=True, maximize=True),
    "SparseAdam": lambda p: torch.optim.SparseAdam(p, 0.1),
    "SparseAdam, maximize": lambda p: torch.optim.SparseAdam(p, torch.tensor(0.1), maximize=True),
}


def words(number: int) -> torch.Tensor:
    """Places of a table: some twice, another number of them in call 2."""
    return torch.tensor([[1, 2, number], [2, 2, 5]] if number != 2 else [[3, 3]])


def parts(grad: torch.Tensor | None) -> Any:
    if grad is None or not grad.is_sparse:
        return grad
    return grad._indices().clone(), grad._values().clone(), grad.is_coalesced(), grad.shape, grad.requires_grad


def look_at(model: nn.Module, optimizer: Any) -> Callable[[], Any]:
    return lambda: (dict(model.state_dict()), [parts(each.grad) for each in model.parameters()], [
        [value if not isinstance(value, torch.Tensor) or not value.is_sparse else parts(value)
         for value in state.values()] for state in optimizer.state.values()])


def trained(make: Make, model: nn.Module, loss_of: Callable[[Any], Any], arguments: Any = words,
            zero: dict[str, bool] | None = None) -> World:
    optimizer = make(model.parameters())

    def step(given: Any) -> Any:
        if zero is not None:
            optimizer.zero_grad(**zero)
        loss = loss_of(given)
        loss.backward()
        optimizer.step()
        return loss.detach()
    return World(step, lambda number: (arguments(number),), look_at(model, optimizer))


def table_alone(make: Make) -> World:
    table = nn.Embedding(10, 4, sparse=True)
    return trained(make, table, lambda given: table(given).pow(2).sum(), zero={})


def require_whole(make: Callable[[], World], backend: str, calls: int = 5) -> None:
    report = compare(make, calls, backend, 0.0 if backend == "eager" else 1e-5)
    assert not report.causes, report.causes
    assert any(event.graph is not None for event in report.of(events.CaptureFinished))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", UPDATES)
def test_table(name: str, backend: str) -> None:
    require_whole(lambda: table_alone(UPDATES[name]), backend)


class Words(nn.Module):
    """A table, a recurrent layer and dense layers."""

    def __init__(self, padded: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(10, 4, sparse=True, padding_idx=2 if padded else None)
        self.recurrent, self.last = nn.LSTM(4, 4, batch_first=True), nn.Linear(4, 2)

    def forward(self, given: torch.Tensor) -> torch.Tensor:
        return self.last(self.recurrent(self.table(given))[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ["SGD with momentum", "Adagrad"])
def test_beside_dense_layers(name: str, backend: str) -> None:
    def make() -> World:
        model = Words(padded=True)
        return trained(UPDATES[name], model, lambda given: model(given).pow(2).mean(), zero={})
    require_whole(make, backend)


def test_two_optimizers() -> None:
    """As torch's documentation has it: SparseAdam for the tables, Adam for the rest."""
    def make() -> World:
        model = Words()
        dense = torch.optim.Adam([*model.recurrent.parameters(), *model.last.parameters()], 0.01)
        sparse = torch.optim.SparseAdam(list(model.table.parameters()), 0.01)
        schedule = torch.optim.lr_scheduler.ExponentialLR(sparse, 0.9)

        def step(given: Any) -> Any:
            model.zero_grad()
            loss = model(given).pow(2).mean()
            loss.backward()
            dense.step()
            sparse.step()
            schedule.step()
            return loss
        return World(step, lambda number: (words(number),), look_at(model, sparse))
    require_whole(make, "eager", calls=7)
    require_whole(make, "aot_eager")


@pytest.mark.parametrize("kind", ["bag", "bag of means", "twice", "dense too", "empty", "transposed", "double"])
def test_kinds_of_lookups(kind: str) -> None:
    def make() -> World:
        table: Any = nn.EmbeddingBag(10, 4, sparse=True, mode="mean" if "means" in kind else "sum") if "bag" in kind \
            else nn.Embedding(10, 4, sparse=True, dtype=torch.float64 if kind == "double" else None)

        def loss_of(given: Any) -> Any:
            if kind == "empty":
                given = given[:0]
            found = table(given.t() if kind == "transposed" else given).pow(2).sum()
            if kind == "twice":
                found = found + table(given + 1).sum()
            return found + table.weight.sin().sum() if kind == "dense too" else found
        return trained(UPDATES["SGD"], table, loss_of, zero={})
    require_whole(make, "eager")


KEPT: list[tuple[str, dict[str, bool] | None]] = [("added to", None), ("zeroed", {"set_to_none": False})]


@pytest.mark.parametrize(("how", "zero"), KEPT)
def test_kept_gradients_break_at_the_pass(how: str, zero: dict[str, bool] | None) -> None:
    """A gradient that is there already: eager itself lists its places anew."""
    def make() -> World:
        table = nn.Embedding(10, 4, sparse=True)
        return trained(UPDATES["SGD"], table, lambda given: table(given).pow(2).sum(), zero=zero)
    report = compare(make, 4)
    assert {cause for cause in report.causes if "backward" not in cause} == set(), (how, report.causes)


def test_reads_of_a_gradient() -> None:
    """Whether it is coalesced, and how many elements it has, its values decide: a break at that read."""
    table = nn.Embedding(10, 4, sparse=True)

    def make() -> World:
        table = nn.Embedding(10, 4, sparse=True)

        def step(given: Any) -> Any:
            table.zero_grad()
            table(given).pow(2).sum().backward()
            grad: Any = table.weight.grad
            return grad.is_sparse, grad.to_dense(), grad.coalesce()._values(), grad.is_coalesced(), grad
        return World(step, lambda number: (words(number),), lambda: parts(table.weight.grad))
    report = compare(make, 3)
    assert report.causes and all("sparse" in cause for cause in report.causes), report.causes
    assert table.weight.grad is None


@pytest.mark.parametrize("how", ["hook", "post hook", "kept graph", "create_graph", "function", "retain", "branch"])
def test_passes_that_break(how: str) -> None:
    class Doubled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:  # type: ignore[override]
            return grad * 2

    def make() -> World:
        table = nn.Embedding(10, 4, sparse=True)
        seen: list[Any] = []
        if how == "hook":
            table.weight.register_hook(lambda grad: seen.append(grad.shape))
        if how == "post hook":
            table.weight.register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.is_sparse))

        def step(given: Any) -> Any:
            table.zero_grad()
            found = table(given)
            if how == "function":
                found = Doubled.apply(found)
            if how == "retain":
                found.retain_grad()
            if how == "branch" and found.sum() > 0:
                found = found * 2
            loss = found.pow(2).sum()
            if how == "kept graph":
                loss.backward(retain_graph=True)
                return loss.detach()
            loss.backward(create_graph=how == "create_graph")
            return loss.detach(), list(seen)
        return World(step, lambda number: (words(number),), lambda: parts(table.weight.grad))
    compare(make, 4)


def test_an_optimizer_that_refuses() -> None:
    def make() -> World:
        return table_alone(lambda p: torch.optim.Adam(p, 0.1))
    compare(make, 3)  # the same error, and the same state


@pytest.mark.parametrize("name", ["weight decay", "clipping"])
def test_errors_of_eager(name: str) -> None:
    def make() -> World:
        table = nn.Embedding(10, 4, sparse=True)
        optimizer = torch.optim.Adagrad(table.parameters(), 0.1, weight_decay=0.1 if name == "weight decay" else 0)

        def step(given: Any) -> Any:
            optimizer.zero_grad()
            table(given).pow(2).sum().backward()
            if name == "clipping":
                nn.utils.clip_grad_norm_(table.parameters(), 1.0)
            optimizer.step()
        return World(step, lambda number: (words(number),), look_at(table, optimizer))
    compare(make, 3)


def test_table_that_shares_memory_with_the_words() -> None:
    """The places of a gradient lie on the memory of the argument, as in eager."""
    def make() -> World:
        table = nn.Embedding(10, 4, sparse=True)

        def step(given: Any) -> Any:
            table.zero_grad()
            table(given).sum().backward()
            given.add_(1)
            return given
        return World(step, lambda number: (words(number),), lambda: parts(table.weight.grad))
    compare(make, 3)
    compare(make, 3, "aot_eager", 1e-5)


def test_layout_of_a_dense_gradient_of_a_penalty() -> None:
    """Rules in Python lay out the second derivative of a convolution otherwise than its kernel."""
    def make() -> World:
        torch.manual_seed(0)
        table = nn.Embedding(5, 4, sparse=True)
        kernel = nn.Conv1d(2, 2, 1)

        def step(given: Any) -> Any:
            for each in (table.weight, kernel.weight, kernel.bias):
                each.grad = None
            found = table(given).flatten(0, -2).tanh().unflatten(1, (2, 2))
            loss = kernel(found).abs().mean()
            slopes = torch.autograd.grad(loss, [table.weight, kernel.weight], create_graph=True)
            (loss + sum(each.pow(2).sum() for each in slopes)).backward()
            return loss.detach()
        return World(step, lambda number: (words(number).clamp(max=4),),
                     lambda: (parts(table.weight.grad), kernel.weight.grad, kernel.bias.grad))
    compare(make, 3)
