"""Unused results are computed where they may fail: a compiler would drop them, and their error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import stator
from stator.emit.residual import residual

GOOD, BAD = torch.tensor([0, 1]), torch.tensor([0, 9])


def unused(x: Any, index: Any) -> Any:
    x[index]
    return x.sum()


def used_by_what_nobody_uses(x: Any, index: Any) -> Any:
    scratch = x[index] * 2
    scratch.add_(1)
    scratch.view(-1).mul_(2)
    return x.sum()


def unused_beside_writes(x: Any, index: Any) -> Any:
    F.embedding(index, x.view(3, 1))
    y = x * 2
    y[index % 3] = 1
    return y.sum()


def written_by_index_to_what_nobody_uses(x: Any, index: Any) -> Any:
    scratch = torch.zeros(3)
    scratch[index] = x[0].detach()
    scratch.index_fill_(0, index, 2)
    return x.sum()


def sparse_and_unused(x: Any, index: Any) -> Any:
    x.to_sparse()
    torch.sparse_coo_tensor(index[None], x[:2], (10,))
    return x.sum()


def nothing_returned(x: Any, index: Any) -> Any:
    x.gather(0, index)


def outcome(function: Callable[..., Any], index: Any, grad: bool) -> Any:
    x = torch.arange(3.0, requires_grad=grad)
    try:
        result = function(x, index)
        if grad and result is not None:
            result.backward()
    except IndexError as error:
        return repr(error)
    except RuntimeError as error:
        return repr(error)
    return repr((result, x, x.grad))


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("program", [unused, used_by_what_nobody_uses, unused_beside_writes,
                                     written_by_index_to_what_nobody_uses, sparse_and_unused, nothing_returned])
def test_the_error_is_met(program: Callable[..., Any], grad: bool) -> None:
    compiled = stator.compile(program, backend="aot_eager")
    for index in (GOOD, BAD, GOOD, BAD):
        expected, found = outcome(program, index, grad), outcome(compiled, index, grad)
        assert found.replace("CompiledFunctionBackward", "SumBackward0") == expected


def outputs_of(program: Callable[..., Any], *args: Any) -> int:
    compiled = stator.compile(program, backend="aot_eager")
    compiled(*args)
    graph = compiled.entries()[0][2].residual.graph.graph
    return len(graph.output_node().args[0])


def test_what_is_used_or_cannot_fail_is_no_output() -> None:
    def program(x: Any, cache: Any, index: Any) -> Any:
        x.cos()
        cache.index_copy_(0, index, x[index])
        scratch = torch.zeros(3)
        part = scratch[1:]
        part.copy_(x[index])
        torch._assert_async((x[index] < 9).all())
        return scratch + 1

    assert outputs_of(program, torch.arange(3.0), torch.zeros(3), GOOD) == 1
    assert outputs_of(unused, torch.arange(3.0), GOOD) == 2


def test_without_it_the_error_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(residual, "errors_to_meet", lambda graph, outputs: ())
    compiled = stator.compile(unused, backend="aot_eager")
    compiled(torch.arange(3.0), GOOD)
    assert "IndexError" not in outcome(compiled, BAD, False)


def a_list_where_there_is_nothing(x: Any) -> Any:
    x[:, [0, 1]]
    return x + 1


def a_list_out_of_bounds(x: Any) -> Any:
    x[[20]]
    return x + 1


def a_tuple_of_places_handled(x: Any) -> Any:
    try:
        x[(0, 20),]
    except IndexError as error:
        return str(error)
    return x + 1


def written_by_a_list(x: Any) -> Any:
    try:
        x[:, [0, 1]] = 1
    except IndexError as error:
        return str(error)
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [a_list_where_there_is_nothing, a_list_out_of_bounds, a_tuple_of_places_handled,
                                     written_by_a_list], ids=lambda program: program.__name__)
def test_a_list_as_an_index_may_be_out_of_bounds(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    for shape in ((10, 0), (10, 3), (30, 2)):
        seen = []
        for function in (program, compiled):
            x = torch.zeros(shape)
            try:
                seen.append((str(function(x)), x.tolist()))
            except IndexError as error:
                seen.append((str(error), x.tolist()))
        assert seen[1] == seen[0]


def seen_as_wider_numbers(x: Any) -> Any:
    try:
        x[:, 1:].view(torch.float32)
    except RuntimeError as error:
        return str(error)
    return x + 1


def test_what_a_view_says_of_where_a_tensor_begins(recwarn: pytest.WarningsRecorder) -> None:
    compiled = stator.compile(seen_as_wider_numbers, backend="eager")
    for width in (5, 5, 9, 12, 8, 13):
        x = torch.zeros(4, width, dtype=torch.uint8)
        assert str(compiled(x)) == str(seen_as_wider_numbers(x))
    assert not [each for each in recwarn if each.category is RuntimeWarning]


def accumulated_into(x: Any, out: Any) -> Any:
    try:
        torch.logcumsumexp(x, 0, out=out)
    except RuntimeError as error:
        return str(error), out
    return x + 1, out


def accumulated_into_unhandled(x: Any, out: Any) -> Any:
    torch.logcumsumexp(x, 0, out=out)
    return torch.sin(x, out=x)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [accumulated_into, accumulated_into_unhandled], ids=lambda p: p.__name__)
def test_a_result_of_another_dtype_than_out(program: Any, backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    for dtype in (torch.float32, torch.float64, torch.float16):
        seen = []
        for function in (program, compiled):
            out = torch.zeros(3, dtype=dtype)
            try:
                seen.append((str(function(torch.ones(3), out)), out.tolist()))
            except RuntimeError as error:
                seen.append((str(error), out.tolist()))
        assert seen[1] == seen[0]
