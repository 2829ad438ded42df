"""Deep copies of tensors that share a storage: the copies share one, whichever of them is copied first."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import stator
from tests.comparison.eager_and_compiled import call, same_as_eager


class Breaks:
    """Its copy breaks the graph, with the memo in use."""

    def __deepcopy__(self, memo: dict[int, Any]) -> int:
        stator.graph_break()
        return len(memo)


def with_buffers(**buffers: torch.Tensor) -> nn.Module:
    module = nn.Module()
    for name, buffer in buffers.items():
        module.register_buffer(name, buffer)
    return module


def shifted(copied: Any, which: Any = 0) -> Any:
    """Write to one of the copies; the others show the write where they share its memory."""
    copied[which].add_(1)
    return copied


def buffers_of(module: nn.Module) -> dict[str, torch.Tensor]:
    return dict(module.named_buffers(remove_duplicate=False))


def copied_twice(x: torch.Tensor, memo: dict[Any, Any]) -> Any:
    return shifted([copy.deepcopy(x, memo), copy.deepcopy(x.view(4), memo)]), "torch" in memo, len(memo)


def parameter_beside(x: torch.Tensor) -> Any:
    module = nn.Module()
    module.weight = nn.Parameter(x)
    module.register_buffer("part", module.weight.data[1:])
    mine = copy.deepcopy(module)
    mine.part.add_(1)  # type: ignore[operator]
    return mine.weight, mine.part


def bytes_of(copied: Any) -> Any:
    copied[0].add_(1)
    return copied[0], list(copied[1])


PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "a view behind": lambda x: shifted(copy.deepcopy({"t": x, "v": x[1:]}), "t"),
    "a view before": lambda x: shifted(copy.deepcopy({"v": x[1:], "t": x}), "t"),
    "overlapping views": lambda x: shifted(copy.deepcopy([x[:3], x[1:]])),
    "transposed": lambda x: shifted(copy.deepcopy([x.view(2, 2), x.view(2, 2).T])),
    "detached": lambda x: shifted(copy.deepcopy([x, x.detach()])),
    "data": lambda x: shifted(copy.deepcopy([x.data, x]), 1),
    "of the same layout": lambda x: shifted(copy.deepcopy([x, x.view(4)])),
    "another dtype": lambda x: shifted(copy.deepcopy([x, x.view(torch.int32)])),
    "made in the graph": lambda x: (lambda y: shifted(copy.deepcopy([y, y.view(4), y[2:]]), 1))(x * 2),
    "storage behind": lambda x: bytes_of(copy.deepcopy([x, x.untyped_storage()])),
    "storage before": lambda x: bytes_of(copy.deepcopy([x.untyped_storage(), x])[::-1]),
    "buffers": lambda x: shifted(buffers_of(copy.deepcopy(with_buffers(a=x, b=x[1:]))), "a"),
    "tied buffers": lambda x: shifted(buffers_of(copy.deepcopy(with_buffers(a=x, b=x))), "b"),
    "a parameter and a view": parameter_beside,
    "one memo": lambda x: copied_twice(x, {}),
    "two memos": lambda x: shifted([copy.deepcopy(x), copy.deepcopy(x.view(4))]),
    "a break between": lambda x: shifted(copy.deepcopy([x, Breaks(), x[1:]])),
    "a break between, in the graph": lambda x: (lambda y: shifted(copy.deepcopy([y, Breaks(), y.view(4)])))(x * 2),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_copies_share_storages(name: str, backend: str) -> None:
    x = torch.arange(4.0)
    same_as_eager(PROGRAMS[name], call(x), call(x + 1), fullgraph=False, backend=backend)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_memo_from_outside(backend: str) -> None:
    compiled = stator.compile(copied_twice, backend=backend)
    for _ in range(2):
        (mine, theirs) = ({}, {})
        got, expected = compiled(torch.arange(4.0), mine), copied_twice(torch.arange(4.0), theirs)
        assert [each.tolist() for each in got[0]] == [each.tolist() for each in expected[0]]
        assert got[1:] == expected[1:]
        assert len(mine["torch"]) == len(theirs["torch"]) == 1


def test_tensors_of_their_own_are_captured_whole() -> None:
    same_as_eager(lambda x: shifted(copy.deepcopy([x, x + 1, x * 2])), call(torch.arange(4.0)), graphs=1)


class Counts:
    """Its copy is the contents of the memo."""

    def __deepcopy__(self, memo: dict[Any, Any]) -> Any:
        return [key for key in memo if not isinstance(key, int)], sorted(type(each).__name__ for each in memo.values())


@pytest.mark.parametrize("held", [
    lambda x: [x, Counts()], lambda x: [x * 2, Counts(), x], lambda x: {"a": [x], "b": Counts()},
    lambda x: [Counts(), x, Counts()], lambda x: [[1], (1, [2]), Counts()]])
def test_the_memo_that_a_copied_object_reads(held: Callable[[torch.Tensor], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        return copy.deepcopy(held(x)), x + 1

    same_as_eager(program, call(torch.ones(2)), call(torch.ones(2)), fullgraph=False, strict=True)
