"""Values that a guard can promise: the program is captured whole, and never answers for other values."""

from __future__ import annotations

import copy
import operator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode

import stator
from stator import events
from stator.graph.values import known_values
from stator.shapes.policy import CONTENTS_LIMIT

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def branch_on_an_item(x, n):
    a, b, _ = n.tolist()
    return x * a if a > 3 else x.reshape(b, -1) + 1


@program
def branch_on_a_tensor(x, n):
    return x + 1 if (n > 2).any() else x - 1


@program
def constants_alone(x, n):
    mask = torch.ones(4, dtype=torch.long)
    mask[1:] = 2
    return x * 2 if mask.sum() > 6 else x


@program
def size_of_nonzero(x, n):
    found = (n > 1).nonzero()
    if found.shape[0] == 1:
        return x
    return x[: found.shape[0]] + found.sum()


@program
def written_before_it_is_read(x, n):
    m = n.clone()
    m[0] += 5
    view = m[:2]
    view.mul_(2)
    return x + 1 if m[0] > 12 else x - m[0]


@program
def argument_written_to(x, n):
    n.add_(1)
    return x + 1 if n[0] > 3 else x - 1


@program
def tensors_as_sizes(x, n):
    return F.pad(x, (n[0], n[1])), x.flatten()[:4].view(n[1] // n[1], -1).repeat(n[0], 1), x.new_zeros((n[0], 2))


@program
def size_of_a_slice_of_unknown_values(x, n):
    part = (x * 2)[: n[0], : n[1]]
    flat = part.flatten()
    return flat * 2 if flat.shape[0] > 1 else flat


@program
def size_of_a_repetition_of_unknown_values(x, n):
    rows = (x * 2).repeat_interleave(n[0], dim=0)
    columns = x.repeat_interleave(dim=1, repeats=n[1])
    return rows + 1 if rows.shape[0] > 8 else rows.flatten()[:4], columns * 2 if columns.shape[1] == 6 else columns


@program
def division_by_an_item(x, n):
    scale = min(8 / n[0].item(), 9 / n[1].item())
    return x * int(10 * scale)


@program
def products_of_truncated_floats(x, n):
    height, width = n[0].item(), n[1].item()
    best, most = 0, 0
    for rows, columns in ((6, 7), (5, 9), (11, 3)):
        scale = min(columns / width, rows / height)
        area = min(int(width * scale) * int(height * scale), width * height)
        if area > most:
            most, best = area, rows
    return x * best + most


@program
def groups_of_equal_values(x, n):
    kinds = n.tolist()
    runs = [kinds[0]]
    for kind in kinds[1:]:
        if kind != runs[-1]:
            runs.append(kind)
    return x * len(runs)


@program
def float_threshold(x, n):
    share = n.float().mean().item()
    return x * 2 if share > 1.5 else x


@program
def largest_of_two_tensors(x, n):
    bound = max(n[0], n[1])
    return x + 1 if 3 <= bound else x + bound


INPUTS = [torch.tensor([2, 3, 1]), torch.tensor([5, 4, 2]), torch.tensor([1, 1, 1]), torch.tensor([2, 3, 1])]


@pytest.mark.parametrize("name", PROGRAMS)
def test_whole_and_right_for_every_value(name: str) -> None:
    fn = PROGRAMS[name]
    x = torch.arange(24.0).view(4, 6)
    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    for n in INPUTS[:CONTENTS_LIMIT]:
        for _ in range(2):
            mine, theirs = n.clone(), n.clone()
            torch.testing.assert_close(compiled(x, mine), fn(x, theirs), rtol=0, atol=0)
            assert torch.equal(mine, theirs)


@pytest.mark.parametrize("name", PROGRAMS)
def test_many_values_break_and_stay_right(name: str) -> None:
    fn = PROGRAMS[name]
    x = torch.arange(24.0).view(4, 6)
    compiled = stator.compile(fn, backend="eager")
    for step in range(2 * CONTENTS_LIMIT + 2):
        n = torch.tensor([1 + step % 4, 1 + step % 3, step])
        torch.testing.assert_close(compiled(x, n.clone()), fn(x, n.clone()), rtol=0, atol=0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_under_aot(name: str) -> None:
    fn = PROGRAMS[name]
    x = torch.arange(24.0).view(4, 6)
    compiled = stator.compile(fn, backend="aot_eager", fullgraph=True)
    for n in INPUTS[:2]:
        torch.testing.assert_close(compiled(x, n.clone()), fn(x, n.clone()))


def refused(fn, *args) -> str:
    with pytest.raises(stator.Unsupported) as caught:
        stator.compile(fn, backend="eager", fullgraph=True, options={"capture_control_flow": False})(*args)
    return caught.value.code


def test_what_no_guard_should_promise() -> None:
    assert refused(lambda x: x + 1 if x.sum() > 0 else x - 1, torch.ones(3)) == "SB002"
    assert refused(lambda x: x + 1 if torch.rand(3).sum() > 0.5 else x, torch.ones(3)) == "SB002"
    assert refused(lambda n: n + 1 if n.sum() > 0 else n, torch.ones(1 << 19, dtype=torch.long)) == "SB002"
    assert refused(lambda n: n + 1 if (n + torch.randint(5, (3,))).sum() > 0 else n, torch.ones(3).long()) == "SB002"


def test_nothing_is_guarded_where_the_graph_keeps_the_number() -> None:
    def read(cache, n):
        return cache[: n.item()] + 1

    compiled = stator.compile(read, backend="eager", fullgraph=True)
    cache, seen = torch.arange(9.0), []
    for n in range(1, 9):
        torch.testing.assert_close(compiled(cache, torch.tensor(n)), read(cache, torch.tensor(n)))
        seen.append(len(compiled.entries()) if hasattr(compiled, "entries") else 1)
    assert seen[0] == seen[-1]
    assert not any("holds" in guard.text() for guard in stator.explain(read)(cache, torch.tensor(2)).guards)


def test_inputs_that_share_memory_with_a_written_one() -> None:
    def write_then_read(x, a, b):
        a.add_(3)
        return x + 1 if b[0] > 3 else x - 1

    x = torch.ones(3)
    compiled = stator.compile(write_then_read, backend="eager")
    for start in (1, 1, 0, 5):
        mine, theirs = torch.full((4,), start), torch.full((4,), start)
        torch.testing.assert_close(compiled(x, mine, mine[:2]), write_then_read(x, theirs, theirs[:2]))
        apart = torch.full((2,), start)
        torch.testing.assert_close(compiled(x, mine, apart), write_then_read(x, theirs, apart.clone()))


def test_what_was_found_for_values_is_not_remembered_for_metadata() -> None:
    def widen(x, n):
        return F.pad(x, (n[0], n[1]))

    x = torch.ones(2, 3)
    for left in (1, 2, 3):
        n = torch.tensor([left, left])
        torch.testing.assert_close(stator.compile(widen, backend="eager")(x, n), widen(x, n))


def test_a_buffer_given_as_a_size_is_a_constant_under_a_guard() -> None:
    class Padded(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("left", torch.tensor(2))

        def forward(self, x):
            right = self.left * 2 - 1
            return F.pad(x, (self.left, right))

    model, x = Padded(), torch.ones(2, 3)
    explained = stator.explain(model)(x)
    assert not explained.break_reasons
    assert not any(node.target == "item" for graph in explained.graphs for node in graph.graph.nodes)
    compiled = stator.compile(model, backend="eager", fullgraph=True)
    for left in (2, 3, 2):
        model.left.fill_(left)
        torch.testing.assert_close(compiled(x), model(x))


RUNS: list[int] = []


@torch.library.custom_op("stator_tests::noted", mutates_args=())
def noted(n: torch.Tensor) -> torch.Tensor:
    RUNS.append(1)
    return n + 1


@noted.register_fake
def _(n: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(n)


def test_an_operator_of_the_users_is_not_run_ahead() -> None:
    """Only torch's own functions are: what another does beside its result, nobody knows."""
    def fn(x: torch.Tensor, n: torch.Tensor) -> torch.Tensor:
        return x * 2 if noted(n).sum() > 3 else x

    compiled = stator.compile(fn, backend="eager")
    for _ in range(3):
        RUNS.clear()
        assert compiled(torch.ones(2), torch.tensor([1, 2])).tolist() == [2.0, 2.0]
        assert len(RUNS) == 1


@pytest.mark.parametrize(("target", "own"), [
    (torch.add, True), (torch.ops.aten.add.Tensor, True), (torch.ops.aten.add, True), (operator.getitem, True),
    (torch.ops.stator_tests.noted.default, False), (torch.ops.stator_tests.noted, False),
    (torch.ops.higher_order.cond, False), (stator.compile, False),
], ids=lambda each: getattr(each, "__name__", str(each)))  # fmt: skip
def test_what_is_torchs_own(target: Any, own: bool) -> None:
    assert known_values._is_torch(target) is own


def test_numbers_among_the_arguments() -> None:
    """An integer without dimensions in a list is a size, most likely; alone it is an operand."""
    with FakeTensorMode():
        number, other, vector = torch.tensor(3), torch.tensor(3.0), torch.tensor([3])
    assert known_values.has_scalars(([2, number],), {}) and known_values.has_scalars((), {"size": (number,)})
    for args in ((number,), ([other],), ([vector],), (([number],),)):
        assert not known_values.has_scalars(args, {})
    swapped = known_values.map_scalars(([2, number], number), lambda fake: 7)
    assert swapped[0] == [2, 7] and swapped[1] is number
    assert known_values.map_scalars(([2, number], number), lambda fake: 7, direct=True) == ([2, 7], 7)
    assert known_values._map_leaves(([1, slice(2, None)], {"k": (3,)}), lambda leaf: leaf and -leaf) == (
        [-1, slice(-2, None)], {"k": (-3,)})


def test_which_inputs_may_be_looked_into() -> None:
    small = torch.arange(3)
    assert known_values.is_small(small)
    for other in (None, torch.ones(3), torch.arange(known_values.INPUT_LIMIT + 1), small.to_sparse(), small.to("meta")):
        assert not known_values.is_small(other)


ONE, ROWS = torch.tensor(1), torch.tensor([0, 2])


def put(x, index):
    x = x.clone()
    x[[index, index]] = 5.0
    return x


def long_list(x, i):
    return x[[i] * 33]


@pytest.mark.parametrize("fn", [
    lambda x, i: x[[i, i]], lambda x, i: x[[i]], lambda x, i: x[[i, 0]], lambda x, i: x[[ROWS, i]], lambda x, i: x[[i, None]],
    long_list, lambda x, i: x[[slice(0, 1), i]], lambda x, i: x[[ONE, ONE]], put,
])  # fmt: skip
def test_a_list_of_indices_is_read_as_torch_reads_it(fn):
    """A short list with tensors in it is a tuple of indices, a list of numbers picks rows."""
    compiled = stator.compile(fn, backend="eager", fullgraph=True)
    x = torch.arange(9.0).reshape(3, 3)
    for index in (ONE, torch.tensor(2)):
        # Once a test has replaced Tensor.__getitem__, CPython takes tensors for sequences, and torch refuses the long list.
        expected = x[torch.stack([index] * 33)] if fn is long_list else fn(x, index)
        assert torch.equal(compiled(x, index), expected)


def test_a_copy_of_what_was_written_through_a_view():
    def fn(x):
        x[0].add_(1)
        return copy.deepcopy(x)

    x = torch.ones(2, 3)
    assert stator.compile(fn, backend="eager")(x).tolist() == [[2.0] * 3, [1.0] * 3] == x.tolist()


def test_values_that_change_again_and_again_are_promised_no_more():
    def fn(x, k):
        return x * 2 if k > 1 else x

    compiled = stator.compile(fn, backend="eager")
    with events.record() as log:
        for number in range(14):
            assert torch.equal(compiled(torch.ones(2), torch.tensor(number)), fn(torch.ones(2), torch.tensor(number)))
    assert not [event for event in log if isinstance(event, (events.CacheLimit, events.EagerFallback))]


def test_a_lone_item_with_a_stride_of_its_own() -> None:
    def program(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
        return x + 1 if int(i[0, 0]) > 2 else x[: int(i[0, 0])]

    compiled = stator.compile(program, backend="eager")
    lone = torch.arange(10).view(2, 5).t()[3:4, 1:2]
    assert lone.is_contiguous() and lone.stride() != (1, 1)
    for index in (lone, torch.tensor([[8]]), torch.tensor([[1]])):
        assert torch.equal(compiled(torch.ones(2), index), program(torch.ones(2), index))
