"""Inputs that the program gives another layout in place: sizes are read off them, and compilers see them, as they came."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence, unpad_sequence

import stator
from stator import events

Program = Callable[..., Any]


def transposed(x: torch.Tensor, other: torch.Tensor) -> Any:
    before = x + 1
    x.transpose_(0, 1)
    return torch.arange(x.shape[1]), x * 2, before, x[:, torch.arange(x.shape[1]) < torch.tensor([other.shape[0]])]


def with_a_dimension(x: torch.Tensor, other: torch.Tensor) -> Any:
    x.t_()
    x.unsqueeze_(0)
    return x.shape, x * other.shape[0], torch.zeros(x.shape[2])


def resized(x: torch.Tensor, other: torch.Tensor) -> Any:
    x.resize_(x.shape[0] + 2, 2)
    x.fill_(1)
    return x.sum(), x.shape, other + x.shape[0]


def unpadded(x: torch.Tensor, other: torch.Tensor) -> Any:
    padded = pad_sequence([x, other])
    stator.graph_break()
    return unpad_sequence(padded, torch.tensor([len(x), len(other)])), padded


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [transposed, with_a_dimension, resized, unpadded])
def test_sizes_that_change(program: Program, backend: str) -> None:
    compiled = stator.compile(program, backend=backend)
    with events.record() as log:
        for size in (4, 5, 6, 7):
            ours, theirs = (torch.arange(size * 2.0).reshape(size, 2) for _ in range(2))
            other = torch.ones(size - 1, 2)
            assert str(compiled(ours, other)) == str(program(theirs, other)), size
            assert torch.equal(ours, theirs) and ours.stride() == theirs.stride()
    assert program is resized or not [event for event in log if isinstance(event, events.EagerFallback)]


def test_compilers_see_what_comes() -> None:
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        placeholder = next(iter(graph.graph.nodes)).meta["example_value"]
        seen.extend((tuple(inputs[0].shape), inputs[0].stride(), tuple(placeholder.shape)))
        return graph.forward

    stator.compile(with_a_dimension, backend=backend)(torch.ones(4, 2), torch.ones(3, 2))
    assert seen == [(4, 2), (2, 1), (4, 2)]


def test_an_input_that_is_only_written_to_is_shown_as_it_is() -> None:
    seen: list[bool] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        seen.append(inputs[0]._is_view())
        return graph.forward

    stator.compile(lambda x: x.add_(1) * 2, backend=backend)(torch.ones(4))
    assert seen == [False]


def test_a_graph_that_fails_leaves_the_layout_to_the_program() -> None:
    def taken(x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
        x.transpose_(0, 1)
        return x[index] * 2

    compiled = stator.compile(taken, backend="eager")
    for index in (1, 3):
        ours, theirs = torch.ones(4, 2), torch.ones(4, 2)
        for function, x in ((compiled, ours), (taken, theirs)):
            if index == 1:
                function(x, torch.tensor([index]))
            else:
                with pytest.raises(IndexError):
                    function(x, torch.tensor([index]))
        assert ours.shape == theirs.shape == (2, 4)


def test_sizes_read_after_a_change_of_layout() -> None:
    """The node that reads a size says which symbol it reads, whatever shape the tensor has by then."""
    def fn(x):
        x.t_()
        return x * x.shape[0]

    compiled = stator.compile(fn, backend="eager")
    ours, theirs = torch.arange(6.0).reshape(3, 2), torch.arange(6.0).reshape(3, 2)
    for _ in range(4):
        assert torch.equal(compiled(ours), fn(theirs))


def test_an_input_that_gets_other_memory() -> None:
    """The given part lay behind the end of the memory that the input has by the end."""
    def fn(x, y):
        x.set_(y.clone())
        return x + 1

    for backend in ("eager", "aot_eager"):
        compiled = stator.compile(fn, backend=backend)
        ours, theirs = torch.arange(12.0)[8:], torch.arange(12.0)[8:]
        for size in (4, 5, 6):
            assert torch.equal(compiled(ours, torch.ones(size)), fn(theirs, torch.ones(size)))
            assert torch.equal(ours, theirs)


def test_an_input_that_gets_other_memory_before_the_graph_fails() -> None:
    def fn(x, y, index):
        x.set_(y.clone())
        return x[index]

    compiled = stator.compile(fn, backend="eager")
    for index in (torch.tensor([0]), torch.tensor([9])):
        outcomes = []
        for call in (fn, compiled):
            x = torch.arange(12.0)[8:]
            whole = x._base
            try:
                result = call(x, torch.ones(3), index).tolist()
            except IndexError as error:
                result = type(error)
            outcomes.append((result, x.tolist(), x.storage_offset(), whole.tolist()))
        assert outcomes[0] == outcomes[1]


def test_compilers_see_an_input_on_memory_of_its_own() -> None:
    """`set_` has let it go by the end of the trace."""
    seen: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        seen.extend(each.untyped_storage() for each in inputs)
        return graph.forward

    def program(x: torch.Tensor, other: torch.Tensor) -> Any:
        before = x + 1
        x.set_(other)
        return before, x * 2

    x, other = torch.ones(5, 2), torch.zeros(3)
    before, after = stator.compile(program, backend=backend, fullgraph=True)(x, other)
    assert torch.equal(before, torch.full((5, 2), 2.0)) and torch.equal(after, other) and x.data_ptr() == other.data_ptr()
    assert seen[0]._cdata != seen[1]._cdata and [storage.nbytes() for storage in seen] == [40, 12]
