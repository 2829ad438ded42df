"""fullgraph=True: branches on data captured both ways, and values that a guard computes ahead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import stator
from stator import events
from stator.report.text import render
from tests.breaks.capture import compare
from tests.comparison import same_as_eager

UP, DOWN = torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[-1.0, 2.0], [-3.0, -4.0]])
MIXED = torch.tensor([[1.0, -2.0], [-3.0, 4.0]])
INPUTS = [(UP,), (DOWN,), (MIXED,), (UP * 3,), (UP,)]
PROGRAMS: dict[str, Any] = {}


def program(function: Any) -> Any:
    PROGRAMS[function.__name__] = function
    return function


@program
def both_ways(x):
    if not torch.isfinite(x).all() or x.sum() > 0:
        x = torch.clamp(x, -1, 1)
    return x + 1


@program
def rows_that_are_chosen(x):
    out = torch.zeros_like(x)
    for row in (x.sum(-1) > 0).nonzero():
        out[row] = x[row] * 2
    return out


@program
def condition_of_a_loop(x):
    rounds = 0
    x = x.abs()
    while x.sum() > 1:
        x = x / 2
        rounds += 1
    return x, rounds


@program
def way_that_writes(x):
    out = torch.zeros_like(x)
    chosen = x[x > 0]
    if chosen.numel() > 0:
        out.add_(chosen.mean())
    return out


@program
def ways_of_other_shapes(x):
    if x.sum() > 0:
        return x.flatten()
    return x[:1], "negative"


@program
def condition_behind_a_write(x):
    total = x.sum(0)
    total[0] = 5
    total.mul_(x[0, 0])
    return [x, total] if total.min() > 0 else total


@program
def largest_of_tensors(x):
    return max(x[0, 0], x[1, 1]) * 2, min([x[0, 0], x[0, 1], x[1, 0]]), max(x[0], x[1], key=lambda row: row.sum())


@program
def sorted_tensors(x):
    return sorted(x.flatten())


@program
def number_decides(x):
    largest = x.abs().max().item()
    if largest > 3:
        x = x / largest
    return x


@program
def near_another(x):
    return {"near": x} if torch.allclose(x, UP, atol=0.5) else x.allclose(UP * 3, 1e-3)


@program
def raises_by_value(x):
    try:
        return {3: x + 1, -4: x - 1}[int(x[1].sum())]
    except KeyError as error:
        return x, error.args


@program
def more_than_the_tensor_has(x):
    x = x.detach()
    chosen = torch.masked_select(x[0], x > 0), x[0].masked_select(torch.stack([x > 0, x > 0]))
    return [each + 1 if each.numel() > 2 else each - 1 for each in chosen]


@program
def elements_at_places_of_data(x):
    a = torch.zeros_like(x)
    for row in range(2):
        place, other = int(x[row, 0].abs() > 2), int(x[row].argmax())
        if x[row, place].item() > 0:
            a[row, place] = x[row, place] * 2
        else:
            a[row, other] = x[row, other] - 1
        a[row] *= a[row, other].item()
    return a


@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_whole(name: str) -> None:
    same_as_eager(PROGRAMS[name], *INPUTS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_with_gradients(name: str) -> None:
    same_as_eager(PROGRAMS[name], *[(x.clone().requires_grad_(),) for (x,) in INPUTS])


@pytest.mark.parametrize("name", ["rows_that_are_chosen", "condition_of_a_loop", "condition_behind_a_write"])
def test_under_aot(name: str) -> None:
    same_as_eager(PROGRAMS[name], *INPUTS, backend="aot_eager")


def test_another_size() -> None:
    same_as_eager(condition_of_a_loop, (UP,), (torch.ones(3, 5),), (torch.ones(7),), (DOWN,))


def test_input_that_is_written_before_the_condition() -> None:
    def function(x, y):
        x.add_(y)
        out = []
        while x.sum() > 8:
            x.sub_(1)
            out.append(x.clone())
        return out

    same_as_eager(function, (UP, UP), (DOWN, UP), (MIXED, MIXED), (UP, -UP))


def test_two_names_for_the_memory_of_a_condition() -> None:
    def function(x, y):
        x.mul_(2)
        steps = 0
        while y.sum() > steps:
            steps += 7
        return steps, x + y

    def calls():
        one, other = UP.clone(), UP.clone()
        return [(one, other), (one, one), (DOWN.clone(), UP.clone()), (one[0], one[1]), (other, other)]

    eager = [function(*each) for each in calls()]
    compiled = stator.compile(function, backend="eager", fullgraph=True)
    for (steps, value), args in zip(eager, calls(), strict=True):
        try:
            found = compiled(*args)
        except stator.Unsupported:  # an alias of what is written to has no copy of its own
            continue
        assert found[0] == steps and torch.equal(found[1], value)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(6, 4)
        self.experts = nn.ModuleList(nn.Linear(6, 6) for _ in range(4))

    def forward(self, x):
        weights, chosen = self.gate(x).softmax(-1).topk(2, -1)
        mask = F.one_hot(chosen, 4).permute(2, 1, 0)
        out = torch.zeros_like(x)
        for (expert,) in (mask.sum((-1, -2)) > 0).nonzero():
            place, token = torch.where(mask[expert])
            out.index_add_(0, token, self.experts[expert](x[token]) * weights[token, place, None])
        return out


def test_weights_of_a_module_decide() -> None:
    torch.manual_seed(0)
    model, x = Experts(), torch.randn(3, 6)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    for step in range(4):
        with torch.no_grad():
            model.gate.bias.copy_(torch.eye(4)[step] * 20)
        torch.testing.assert_close(compiled(x), model(x))


def test_layers_dropped_at_random() -> None:
    class Dropping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(6, 6) for _ in range(2))

        def forward(self, x):
            for layer in self.layers:
                if self.training and torch.rand([]) < 0.5:
                    continue
                x = layer(x)
            return x

    model, x = Dropping(), torch.randn(3, 6)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    for seed in range(3):
        torch.manual_seed(seed)
        expected, following = model(x), torch.rand(3)
        torch.manual_seed(seed)
        found = compiled(x)
        assert torch.equal(found, expected) and torch.equal(torch.rand(3), following)


def test_random_conditions_are_no_guard() -> None:
    def function(x):
        out = []
        while torch.nn.functional.dropout(x, 0.5).sum() > 3 + len(out):
            out.append(x)
        return out

    with pytest.raises(stator.Unsupported):
        stator.compile(function, backend="eager", fullgraph=True)(UP * 2)


def test_a_float_that_leaves_as_text_is_no_guard() -> None:
    with pytest.raises(stator.Unsupported):
        stator.compile(lambda x: {f"{x.sum().item():.3f}": x}[f"{x.sum().item():.3f}"], backend="eager",
                       fullgraph=True)(UP)


def test_too_many_ways_raise() -> None:
    compiled = stator.compile(condition_of_a_loop, backend="eager", fullgraph=True)
    with pytest.raises(Exception, match="recompile"):
        for step in range(1, 40):
            x = torch.full((2,), 2.0**step)
            found, expected = compiled(x), condition_of_a_loop(x)
            assert torch.equal(found[0], expected[0]) and found[1] == expected[1]


def test_an_event_names_the_line() -> None:
    with events.record() as log:
        stator.compile(condition_of_a_loop, backend="eager", fullgraph=True)(UP)
    [found] = [event for event in log if isinstance(event, events.ComputedAhead)]
    assert found.line == condition_of_a_loop.__code__.co_firstlineno + 4
    assert "computes in each call" in render(found) and found.cause in render(found)


def test_without_fullgraph_it_breaks() -> None:
    for function in (condition_of_a_loop, rows_that_are_chosen):
        assert stator.explain(function)(UP).graph_break_count > 0
        compare(function, INPUTS, backend="eager")


def test_the_setting_turns_it_off() -> None:
    with pytest.raises(stator.Unsupported):
        stator.compile(condition_of_a_loop, backend="eager", fullgraph=True, options={"capture_control_flow": False})(UP)
