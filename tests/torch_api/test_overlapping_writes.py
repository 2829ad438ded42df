"""Writes that AOTAutograd does not do as eager does: to overlapping memory, and to views that a graph returns."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.graph.analysis import shared_memory
from tests.comparison import Programs
from tests.torch_api.overlapping import INPUTS, apart, outcome

overlapping, returned = Programs(), Programs()


@overlapping
def one_tensor_twice_in_a_list(x, y):
    torch._foreach_add_([x, x], 1)
    return x * y


@overlapping
def lists_that_cross(x, y):
    torch._foreach_add_([x, y], [y, x])
    return x + y


@overlapping
def a_list_of_a_tensor_and_its_view(x, y):
    z = x * 2
    torch._foreach_mul_([z, z[1:]], [y, y[1:]])
    return z


@overlapping
def copies_that_cross(x, y):
    torch._foreach_copy_([x, y], [y, x])


@overlapping
def an_operator_by_name(x, y):
    torch.ops.aten._foreach_add_.Scalar([x, x[1:]], 1)
    return x


@overlapping
def an_optimizer_with_one_parameter_twice(x, y):
    with torch.no_grad():
        weight, moment, square, step = x.detach() * 1, torch.zeros(4), torch.zeros(4), torch.tensor(1.0)
        grad = y.detach() * 0.1
        torch._fused_adam_([weight, weight], [grad, grad], [moment, moment], [square, square], [], [step, step],
                           lr=0.1, beta1=0.9, beta2=0.99, weight_decay=0.0, eps=1e-8, amsgrad=False, maximize=False)
        return weight, moment, square


@overlapping
def a_view_of_a_written_input(x, y):
    x.add_(1)
    return x[1:], y.view(2, 2)


@overlapping
def a_view_of_the_other_input(x, y):
    x.add_(1)
    return y[1:]


@overlapping
def an_input_added_to_another(x, y):
    x.add_(y)
    return x


@overlapping
def written_behind_autograd(x, y):
    x.detach()[1:].zero_()
    return x * y


@overlapping
def written_through_data(x, y):
    x.data.add_(1)
    return x * y


@overlapping
def an_expanded_tensor(x, y):
    expanded = x[:1].expand(4)
    expanded.add_(1)
    return expanded


@overlapping
def an_item_of_an_expanded_tensor(x, y):
    expanded = torch.zeros(1, 1).expand(2, 4)
    expanded[0].add_(x)
    return expanded


@overlapping
def windows(x, y):
    z = x * y
    z.unfold(0, 2, 1).mul_(2)
    return z


@overlapping
def a_part_to_an_overlapping_part(x, y):
    z = x * y
    z[1:] = z[:-1]
    return z


@overlapping
def a_transposed_self(x, y):
    z = (x * y).view(2, 2)
    z.add_(z.t())
    return z


@overlapping
def a_result_into_its_argument(x, y):
    with torch.no_grad():
        z = (x * y).view(2, 2)
        torch.mm(z, z, out=z)
        return z


@overlapping
def elements_of_itself(x, y):
    z = x * y
    z.index_add_(0, torch.tensor([0, 1, 1, 0]), z)
    return z


@overlapping
def a_list_with_a_leaf(x, y):
    torch._foreach_maximum_([x, y], [y * 2, x * 3])
    return x + y


@overlapping
def the_second_input_first(x, y):
    y.add_(1)
    x.add_(2)
    return x + y


@returned
def parts_of_a_result(x, y):
    return (x * y).chunk(2)


@returned
def parts_of_a_written_input(x, y):
    x.add_(1)
    return torch.chunk(x, 2)


@returned
def parts_of_an_input(x, y):
    return x.view(2, 2).unbind(1)


@returned
def one_part_and_what_it_is_part_of(x, y):
    z = x * y
    first, second = z.split(2)
    return first.view(1, 2), z, first * second


@returned
def parts_of_what_is_written_afterwards(x, y):
    z = x * y
    first, second = z.split(2)
    z.mul_(2)
    return first, second


@returned
def parts_made_without_gradients(x, y):
    with torch.no_grad():
        first, second = (x * 2).split(2)
    return first, second * y[:2]


@returned
def written_through_a_view(x, y):
    z = x * y
    z.view(2, 2).mul_(2)
    return z


@returned
def a_complex_number_written_by_parts(x, y):
    z = torch.complex(x, y)
    z.real.add_(1)
    return torch.view_as_real(z), z.imag


@returned
def stages_of_a_solver(x, y):
    stages = torch.empty(4, 3)
    stages[..., 0] = x
    for number in range(2):
        stages[..., number + 1] = stages[..., :number + 1].sum(-1) * y
    return stages, stages[..., -1]


@pytest.mark.parametrize("then", ["differentiate", "write, differentiate"])
@pytest.mark.parametrize("name", [*overlapping, *returned])
def test_equals_eager(name: str, then: str) -> None:
    """One compiled function is called with inputs that share memory in every way."""
    program = {**overlapping, **returned}[name]
    compiled = stator.compile(program, backend="aot_eager", recompile_limit=len(INPUTS) + 1)
    for make in (*INPUTS, *INPUTS[1:6]):
        expected = outcome(program, make, then)
        assert outcome(compiled, make, then) == expected, make.__name__


def left_to_eager(program: Any) -> list[str]:
    with events.record() as log:
        stator.compile(program, backend="aot_eager")(*apart()[0])
    return [event.why for event in log if isinstance(event, events.EagerFallback)]


def halves(x, y):
    z = (x * y).view(2, 2)
    z[:, :1].add_(z[:, 1:])
    z[:, 0] = z[:, 1]
    z[0].mul_(z[0])
    torch.add(z, 1, out=z)
    return z


def every_other(x, y):
    z = x * y
    z[::2].add_(z[1::2])
    torch._foreach_add_([z[:2], z[2:]], [y[:2], y[2:]])
    return z


@pytest.mark.parametrize("program", [halves, every_other])
def test_parts_that_lie_apart_are_compiled(program: Any) -> None:
    assert left_to_eager(program) == []


def test_the_reason_is_told() -> None:
    (why,) = left_to_eager(one_tensor_twice_in_a_list)
    assert "writes twice to one memory" in why


LAYOUTS = [(size, stride, offset) for size in ((2, 3), (3, 2), (1, 4), (4,)) for offset in (0, 1, 2, 5)
           for stride in ((4, 1), (1, 4), (2, 1), (3, 2), (0, 1), (1,), (2,), (5,)) if len(size) == len(stride)]


@pytest.mark.parametrize("size, stride, offset", LAYOUTS)
def test_layouts(size: Any, stride: Any, offset: int) -> None:
    """Every common element is found; few are found in vain."""
    places = torch.arange(40)
    one = places.as_strided(size, stride, offset)
    own = one.flatten().tolist()
    assert shared_memory.overlaps_itself(one) >= (len(set(own)) != len(own))
    for other_size, other_stride, other_offset in LAYOUTS:
        other = places.as_strided(other_size, other_stride, other_offset)
        assert shared_memory.may_overlap(one, other) >= (not set(own).isdisjoint(other.flatten().tolist()))


SWITCHES = [
    ("stator.graph.analysis.shared_memory.overlaps_itself", lambda tensor: False, "an_expanded_tensor"),
    ("stator.graph.analysis.shared_memory.may_overlap", lambda a, b: False, "one_tensor_twice_in_a_list"),
    ("stator.graph.analysis.shared_memory.is_pointwise", lambda target: True, "elements_of_itself"),
    ("stator.graph.analysis.shared_memory.overlapping_inputs", lambda inputs, written: False, "a_view_of_the_other_input"),
    ("stator.graph.analysis.shared_memory.refuses_writes", lambda tensor: True, "the_second_input_first"),
    ("stator.backends.compilation.take_views_out", lambda gm, grad: (gm, lambda compiled: compiled),
     "parts_of_a_written_input"),
    ("stator.backends.returned_views.refuse_later_writes", lambda graph, chains: None,
     "parts_of_what_is_written_afterwards"),
    ("stator.backends.aot.detach_view", lambda value: value, "written_through_a_view"),
]


@pytest.mark.parametrize("mechanism, replacement, name", SWITCHES, ids=[switch[0] for switch in SWITCHES])
def test_is_noticed(mechanism: str, replacement: Any, name: str, monkeypatch: Any) -> None:
    """Without a mechanism, a program differs from eager."""
    program = {**overlapping, **returned}[name]
    expected = [outcome(program, make, "write, differentiate") for make in INPUTS]
    monkeypatch.setattr(mechanism, replacement)
    monkeypatch.setattr("stator.graph.analysis.autograd_boundaries.saves_written_tensors", lambda graph: False)  # which would hide some
    compiled = stator.compile(program, backend="aot_eager", recompile_limit=len(INPUTS) + 1)
    assert [outcome(compiled, make, "write, differentiate") for make in INPUTS] != expected
