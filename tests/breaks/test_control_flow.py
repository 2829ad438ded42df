"""options={"capture_control_flow": True}: branches on tensors as torch.cond."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.breaks.capture import compare
from tests.comparison import Report

UP, DOWN, LARGE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0]), torch.tensor([1.0, 2.0, 30.0])
WEIGHT = nn.Parameter(torch.tensor([0.5, 0.25, 2.0]))
SCALE = 2.0
COUNT = 0


def check(program: Any, backend: Any = "eager", **settings: Any) -> Report:
    """Equal to eager with and without gradients, for inputs that take every way."""
    options = {"capture_control_flow": True}
    with_grad = [(each.clone().requires_grad_(),) for each in (UP, DOWN, LARGE)]
    compare(program, with_grad, backend=backend, options=options, **settings)
    return compare(program, [(UP,), (DOWN,), (LARGE,), (UP,)], backend=backend, options=options, **settings)


# ---------------------------------------------------------------------- captured whole


def statement(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x - 1
    return y * 2


def ternary(x):
    return x.sin() if x.sum() > 0 else x.cos()


def returns(x):
    if x.sum() > 0:
        return x * 2
    return x * 3


def without_else(x):
    if x.sum() > 0:
        x = x * 2
    return x + 1


def passes_the_input_on(x):
    if x.sum() > 0:
        x = x * 2
    return x


def chain(x):
    if x.sum() > 0 and x.max() < 5:
        return x + 1
    elif not x.min() < -3 or x.max() > 20:
        return x - 1
    else:
        return x * 0


def in_a_loop(x):
    for i in range(3):
        if x.sum() > i:
            x = x * 2 - 5
    return x


def value_of_and(x):
    return (x.sum() > 0) and (x.max() > 1)


def value_of_or(x):
    return (x.sum() > 0) or (x.max() > 1)


def value_of_not(x):
    n = not x.sum() > 0
    return n, x + 1 if n else x - 1


def value_of_bool(x):
    return bool(x.sum() > 0)


def numbers(x):
    if x.sum():  # a float tensor
        return x + 1
    return x - 1


def item(x):
    return x * 2 if x.sum().item() > 0 else x * 3


def with_parameters(x):
    return WEIGHT + x if x.sum() > 0 else WEIGHT * x * SCALE


def structures(x):
    a, b = (x + 1, [x + 2]) if x.sum() > 0 else (x - 1, [x - 2])
    kept = {"a": a + 3, "n": 3} if x.max() > 2 else {"a": a * 2, "n": 3}
    return a, b, kept


def helper(x):
    if x.sum() > 0:
        return torch.relu(x)
    return torch.tanh(x)


def calls_helpers(x):
    return helper(x) + helper(-x)


def nested(x):
    if x.sum() > 0:
        if x.max() > 20:
            y = x * 2
        else:
            y = x * 3
    else:
        y = helper(x)
    return y


def handles_inside(x):
    if x.sum() > 0:
        try:
            y = x + {}["missing"]
        except KeyError:
            y = x + 1
    else:
        y = x
    return y + 1


def without_gradients_inside(x):
    if x.sum() > 0:
        with torch.no_grad():
            scale = x.detach().max() + 1
        return x * scale
    return x * 1


def local_containers(x):
    if x.sum() > 0:
        parts = []
        for i in range(3):
            parts.append(x + i)
        y = torch.stack(parts).sum(0)
    else:
        y = sum([x, x])
    return y


def chain_of_copies(x):
    y = x + 1
    z = y
    if x.sum() > 0:
        z = y * 2
    if x.max() > 20:
        z = z * 2
    return z


class Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x):
        return self.a(x) if x.sum() > 0 else self.b(x)


CAPTURED = [statement, ternary, returns, without_else, passes_the_input_on, chain, in_a_loop, value_of_and, value_of_or,
            value_of_not, value_of_bool, numbers, item, with_parameters, structures, calls_helpers, nested,
            handles_inside, without_gradients_inside, local_containers, chain_of_copies]


@pytest.mark.parametrize("program", CAPTURED, ids=lambda each: each.__name__)
def test_captured_whole(program: Any) -> None:
    seen = check(program)
    assert not seen.breaks and len(seen.graph_modules) == 1, [event.cause for event in seen.of(events.GraphBreak)]
    assert not seen.of(events.Recompile)


@pytest.mark.parametrize("program", [statement, passes_the_input_on, chain, nested, item], ids=lambda each: each.__name__)
def test_captured_with_aot_autograd(program: Any) -> None:
    seen = check(program, backend="aot_eager")
    assert not seen.breaks


def test_the_graph_holds_the_operator_and_both_ways() -> None:
    graphs: list[Any] = []

    def keep(gm: Any, example_inputs: Any) -> Any:
        graphs.append(gm)
        return gm

    compiled = stator.compile(statement, backend=keep, fullgraph=True, options={"capture_control_flow": True})
    for x in (UP, DOWN):
        assert compiled(x).equal(statement(x))
    nodes = graphs[0].graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
    assert len(graphs) == 1 and len(nodes) == 1
    bodies = [graphs[0].get_submodule(node.target).code for node in nodes[0].args[1:3]]
    assert "+ 1" in bodies[0] and "- 1" in bodies[1]
    assert compiled(UP).equal(statement(UP))


def test_gradients_flow_through_the_way_taken() -> None:
    module = Module()
    compiled = stator.compile(module, backend="eager", fullgraph=True, options={"capture_control_flow": True})
    for x in (UP, DOWN):
        module.zero_grad()
        module(x).sum().backward()
        expected = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        module.zero_grad()
        compiled(x).sum().backward()
        found = [None if p.grad is None else p.grad.clone() for p in module.parameters()]
        assert [g is None for g in found] == [g is None for g in expected]
        assert all(g is None or g.equal(e) for g, e in zip(found, expected, strict=True))


def test_a_tensor_passed_on_is_the_very_tensor() -> None:
    compiled = stator.compile(passes_the_input_on, backend="eager", fullgraph=True,
                              options={"capture_control_flow": True})
    for _ in range(2):
        down = DOWN.clone()
        assert compiled(down) is down
        assert compiled(UP) is not UP


def test_sizes_may_be_symbols() -> None:
    def program(x, n):
        if x.sum() > 0:
            y = x.view(x.shape[1], x.shape[0]).t().contiguous() * n
        else:
            y = x + torch.arange(x.shape[0] * x.shape[1]).view(x.shape)
        return y + x.shape[0]

    calls = [(torch.ones(4, 5), 3), (-torch.ones(6, 5), 4), (torch.ones(7, 8), 5)]
    for backend in ("eager", "aot_eager"):
        seen = compare(program, calls, backend=backend, dynamic=True, options={"capture_control_flow": True})
        assert not seen.breaks and len(seen.graph_modules) == 1


def test_facts_of_the_way_not_taken_are_guarded() -> None:
    global SCALE
    compiled = stator.compile(with_parameters, backend="eager", options={"capture_control_flow": True})
    try:
        assert compiled(UP).equal(with_parameters(UP))
        SCALE = 5.0
        assert compiled(DOWN).equal(with_parameters(DOWN))
    finally:
        SCALE = 2.0


def test_random_numbers_are_drawn_by_the_way_taken_alone() -> None:
    def program(x):
        return x + torch.rand(3) if x.sum() > 0 else x + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"capture_control_flow": True})
    for x in (UP, DOWN, UP):
        torch.manual_seed(3)
        expected, state = program(x), torch.get_rng_state()
        torch.manual_seed(3)
        assert compiled(x).equal(expected) and torch.get_rng_state().equal(state)


# ---------------------------------------------------------------------- not captured: the ordinary break


def appends(x):
    out = []
    if x.sum() > 0:
        out.append(x + 1)
    else:
        out.append(x - 1)
    return out


def prints(x):
    if x.sum() > 0:
        print("up")
        y = x + 1
    else:
        y = x - 1
    return y


def writes_a_global(x):
    global COUNT
    if x.sum() > 0:
        COUNT = 1
        return x + 1
    return x - 1


def writes_a_cell(x):
    n = 0

    def count(y):
        nonlocal n
        n += 1
        return y * n

    y = count(x) if x.sum() > 0 else x * 3
    return y, n


def advances_an_iterator(x):
    rest = iter([1, 2, 3])
    y = x * next(rest) if x.sum() > 0 else x * 3
    return y, list(rest)


def advances_a_generator(x):
    rest = (i for i in range(4))
    y = x * next(rest) if x.sum() > 0 else x * 3
    return y, list(rest)


def changes_an_attribute(x):
    class Holder:
        n = 1

    holder = Holder()
    if x.sum() > 0:
        holder.n = 2
        y = x + 1
    else:
        y = x - 1
    return y, holder.n


def in_place(x):
    y = x * 1
    if x.sum() > 0:
        y.add_(1)
    return y


def in_place_on_a_view(x):
    y = x * 1
    if x.sum() > 0:
        y[1:].add_(1)
        z = y + 1
    else:
        z = y + 2
    return y, z


def different_shapes(x):
    return x[:2] if x.sum() > 0 else x


def different_types(x):
    return x.int() if x.sum() > 0 else x


def different_numbers(x):
    n = 1 if x.sum() > 0 else 2
    return x + n


def one_unbound(x):
    if x.sum() > 0:
        y = x + 1
    try:
        return y
    except UnboundLocalError:
        return x


def raises(x):
    if x.sum() > 0:
        y = x + 1
    else:
        y = x.view(17)
    return y


def loops(x):
    while x.sum() > 0:
        x = x - 1
    return x


def breaks_out(x):
    for i in range(4):
        if x.sum() > i * 10:
            break
        x = x + 1
    return x, i


def leaves_settings(x):
    if x.sum() > 0:
        torch.set_grad_enabled(False)
    y = x + 1
    torch.set_grad_enabled(True)
    return y


def two_names(x):
    y = x + 1
    z = y
    if x.sum() > 0:
        z = y * 2
    return y, z


def written_later(x):
    y = x + 1
    z = y
    if x.sum() > 0:
        z = y * 2
    z.mul_(3)
    return y, z


def view_of_the_input(x):
    y = x[:]
    if x.sum() > 0:
        y = x * 2
    return y


def asked_which(x):
    y = x + 1
    z = y
    if x.sum() > 0:
        z = y * 2
    return z is y


BREAKING = [appends, prints, writes_a_global, writes_a_cell, advances_an_iterator, advances_a_generator,
            changes_an_attribute, in_place, in_place_on_a_view, different_shapes, different_types, different_numbers,
            one_unbound, raises, loops, breaks_out, leaves_settings, two_names, written_later, view_of_the_input,
            asked_which]


@pytest.mark.parametrize("program", BREAKING, ids=lambda each: each.__name__)
def test_not_captured_and_equal(program: Any) -> None:
    global COUNT
    COUNT = 0
    seen = check(program)
    assert "SB002" in seen.breaks


def test_aliasing_of_what_comes_out() -> None:
    compiled = stator.compile(two_names, backend="eager", options={"capture_control_flow": True})
    y, z = compiled(DOWN)
    assert y is z
    compiled = stator.compile(view_of_the_input, backend="eager", options={"capture_control_flow": True})
    down = DOWN.clone()
    compiled(down)[0] = 7
    assert down[0] == 7


def test_the_cause_says_what_was_in_the_way() -> None:
    seen = check(appends)
    assert "it changes a list" in seen.of(events.GraphBreak)[0].cause
    assert "dtype" in check(different_types).of(events.GraphBreak)[0].cause
    with pytest.raises(stator.Unsupported, match="condition of a loop"):
        stator.compile(loops, backend="eager", fullgraph=True, options={"capture_control_flow": True})(UP)


def test_off_by_default() -> None:
    assert compare(statement, [(UP,), (DOWN,)]).breaks == ["SB002"]
