"""The shape environment of a trace, asked by rules that choose a kernel and by a compiler that has the graph."""

from __future__ import annotations

import operator

import pytest
import sympy
import torch
import torch.utils._pytree as pytree
from torch import fx
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode, InnerTensorKey

from stator.breaks import Break
from stator.shapes.environment import NamedSource, TraceEnvironment
from stator.shapes.symbol_nodes import SymbolNodes, _is_contiguous, _is_small_batch, follow
from stator.source import Local


def size_of(env: TraceEnvironment, hint: int) -> torch.SymInt:
    source = NamedSource(Local("size", 0))
    return env.create_symintnode(env.create_symbol(hint, source), hint=hint, source=source)


def test_a_choice_of_kernels_takes_nothing_for_empty() -> None:
    env = TraceEnvironment()
    number = env.create_unbacked_symint()
    with env.any_kernel():
        assert not bool(number == 0)
        assert bool(number != 0)
        with pytest.raises(GuardOnDataDependentSymNode):
            bool(number > 5)
    with pytest.raises(GuardOnDataDependentSymNode):
        bool(number == 0)


def test_a_compiler_settles_nothing_and_adds_no_guard() -> None:
    env = TraceEnvironment()
    number, size = env.create_unbacked_symint(), size_of(env, 5)
    env.settle = lambda value: True
    assert bool(number > 5)
    with env.compiling():
        assert not bool(number == 0)
        with pytest.raises(GuardOnDataDependentSymNode):
            bool(number > 5)
        assert bool(size > 0) and not env.relied  # true of 1 as well
        assert not bool(size == 1)
    assert env.relied == {size.node.expr} and not env.guards
    assert bool(number > 5)
    assert not bool(size == 1) and not env.guards  # outside, 0 and 1 are constants of their own


def test_a_number_whose_origin_is_not_in_the_graph() -> None:
    env, graph = TraceEnvironment(), fx.Graph()
    nodes = SymbolNodes(graph, env)
    number = env.create_unbacked_symint()
    with pytest.raises(Break, match="whose origin is not in the graph"):
        nodes.node_of(number + 1)
    given = graph.placeholder("given")
    given.meta["example_value"] = number
    nodes.add_number_input = {number.node.expr: given}.__getitem__
    nodes.numbers[number.node.expr] = (number, None)  # type: ignore[assignment]
    assert given in nodes.node_of(number + 1).all_input_nodes


def test_parts_of_results_are_followed() -> None:
    graph = fx.Graph()
    pair = graph.placeholder("pair")
    pair.meta["example_value"] = (torch.ones(2), torch.zeros(3))
    second = follow(graph, pair, (pytree.SequenceKey(1),), lambda divisor: divisor)
    assert second.target is operator.getitem and second.args == (pair, 1)
    assert second.meta["example_value"] is pair.meta["example_value"][1]
    inner = follow(graph, second, (InnerTensorKey("shape"),), lambda divisor: divisor)
    assert inner.target is getattr and inner.meta["example_value"] == (3,)


@pytest.mark.parametrize(("value", "contiguous", "small"), [
    (torch.ones(2, 3, 4), True, True), (torch.ones(16, 3, 4), True, False), (torch.ones(3, 4), True, False),
    (torch.ones(2, 3, 4).transpose(1, 2), False, True), (torch.ones(2, 1, 4).transpose(0, 1), True, True),
    (torch.ones(2, 3, 4)[:, ::2], False, True), (3, False, False), (torch.ones(2, 3, 4, device="meta"), True, False),
])  # fmt: skip
def test_layouts_of_which_every_kernel_gives_the_same(value: object, contiguous: bool, small: bool) -> None:
    assert (_is_contiguous(value), _is_small_batch(value)) == (contiguous, small)


def test_symbols_are_told_by_the_names_of_the_program() -> None:
    env, graph = TraceEnvironment(), fx.Graph()
    nodes = SymbolNodes(graph, env)
    number = env.create_unbacked_symint()
    mask = graph.placeholder("mask")
    nodes.definitions[number.node.expr] = (graph.call_method("item", (mask,)), ())
    assert nodes.in_words(-number.node.expr > 2.5, lambda node: "mask.max().item()") == "-mask.max().item() > 2.5"
    assert nodes.in_words(sympy.Symbol("s9") > 2, lambda node: "") == ""


def test_places_of_guards_are_texts() -> None:
    place = TraceEnvironment()._get_sloc()
    assert place.framework_loc == ""  # torch 2.11 formats anything else as a frame
    assert str(place) == "()"
