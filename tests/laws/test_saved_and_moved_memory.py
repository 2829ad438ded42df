"""Writes to tensors that autograd has saved, and memory whose owner moves: one program each, against eager.

In:  tables of ways to save a tensor, to write to it, and to ask for the gradient; of faces of memory.
Out: equal results, errors, contents, aliases, and whether version counters grew, in two calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import facts_of_writers
import numpy
import pytest
import torch

import stator

BACKENDS = ["eager", "aot_eager"]


def without_grad(function: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def run(t: Any) -> None:
        with torch.no_grad():
            function(t)
    return run


def assign_data(t: Any) -> None:
    t.data = t.data * 5


SAVED: dict[str, Callable[[Any, Any], tuple[Any, Any]]] = {  # (x, w) -> what is written to, what is differentiated
    "an output": lambda x, w: (y := x.exp(), y),
    "a factor": lambda x, w: (w, x * w),
    "an intermediate": lambda x, w: (t := x * 2, t.sin()),
    "a view": lambda x, w: (w, x.view(1, 3) @ w.view(3, 1)),
    "a leaf": lambda x, w: (x, x * x),
    "an exponent": lambda x, w: (w, x ** w),
    "a maximum": lambda x, w: (t := x * 2, t.amax()),
    "nothing": lambda x, w: (w, x + w),
}
WRITERS: dict[str, Callable[[Any], Any]] = {
    "in place": lambda t: t.add_(1),
    "overload": lambda t: torch.ops.aten.mul_.Tensor(t, 2),
    "foreach": without_grad(lambda t: torch._foreach_add_([t], 1)),
    "foreach with a tensor": without_grad(lambda t: torch._foreach_mul_([t], torch.tensor(2.0))),
    "foreach copy": without_grad(lambda t: torch._foreach_copy_([t], [torch.ones(3)])),
    "out": without_grad(lambda t: torch.add(t, 1, out=t)),
    "custom": without_grad(facts_of_writers.bump),
    "a part": without_grad(lambda t: t[1:].mul_(3)),
    "data": lambda t: t.data.add_(1),
    "assigned data": assign_data,
    "an array's item": lambda t: t.detach().numpy().__setitem__(0, 9.0),
    "an array": lambda t: numpy.add(t.detach().numpy(), 1, out=t.detach().numpy()),
}


def asks_for_it(save: Any, write: Any) -> Any:
    def fn(x: Any, w: Any) -> Any:
        target, y = save(x, w)
        write(target)
        return torch.autograd.grad(y.sum(), x), target * 1
    return fn


def goes_back(save: Any, write: Any) -> Any:
    def fn(x: Any, w: Any) -> Any:
        target, y = save(x, w)
        write(target)
        y.sum().backward()
        return target.detach() * 1
    return fn


def handles_it(save: Any, write: Any) -> Any:
    def fn(x: Any, w: Any) -> Any:
        target, y = save(x, w)
        write(target)
        try:
            return torch.autograd.grad(y.sum(), x)
        except RuntimeError:
            return "error", target.detach() * 1
    return fn


def answers(save: Any, write: Any) -> Any:
    """The gradient is asked for outside."""
    def fn(x: Any, w: Any) -> Any:
        target, y = save(x, w)
        write(target)
        return y
    return fn


ENDINGS = [asks_for_it, goes_back, handles_it, answers]


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return [repr(value.tolist()), value.requires_grad, plain(value.grad) if value.is_leaf else None]
    if isinstance(value, numpy.ndarray):
        return [value.tolist(), str(value.dtype)]
    return [plain(each) for each in value] if isinstance(value, (tuple, list)) else value


def seen(fn: Any, args: tuple[Any, ...], differentiate: bool = False) -> Any:
    before = [each._version for each in args]
    try:
        result = fn(*args)
        if differentiate:
            result.sum().backward()
    except Exception as error:
        result = (type(error).__name__, str(error).partition(":")[0])  # which node it names is the compiler's
    shared = [[each.untyped_storage().data_ptr() == other.untyped_storage().data_ptr() for other in args]
              for each in (result if isinstance(result, (tuple, list)) else [result]) if isinstance(each, torch.Tensor)]
    return plain(result), plain(args), [each._version > then for each, then in zip(args, before, strict=True)], shared


def leaf_and_weight() -> tuple[Any, ...]:
    return torch.tensor([1.0, 2.0, 3.0], requires_grad=True), torch.tensor([2.0, 3.0, 4.0])


# Every way to save with every way to write, and each of those with one of the endings in turn; all with `answers`.
CASES = [(save, write, ending) for number, (save, write) in enumerate(itertools.product(SAVED, WRITERS))
         for ending in {ENDINGS[number % 3], answers}]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning", "ignore:Error detected in", "ignore:An output with one or more")
def test_writes_to_saved_tensors(write: str, backend: str) -> None:
    for save, writer, ending in CASES:
        if writer != write:
            continue
        fn = ending(SAVED[save], WRITERS[write])
        compiled = stator.compile(fn, backend=backend, options={"strict": True})
        for _ in range(2):
            found, expected = (seen(each, leaf_and_weight(), ending is answers) for each in (compiled, fn))
            assert found == expected, (save, ending.__name__)


# ---------------------------------------------------------------------- faces of memory


def moved_by_data(x: Any) -> Any:
    a = x.numpy()
    x.data = x.data * 2
    a[0] = 77
    return x, a


def moved_by_set(x: Any) -> Any:
    a = x.numpy()
    x.set_(torch.ones(4))
    a[0] = 77
    return x, a


def made_smaller(x: Any) -> Any:
    a = x.numpy()
    x.resize_(2)
    a[3] = 77
    return x, a


def turned(x: Any) -> Any:
    a = x.numpy()
    back = a[::-1]
    x.add_(1)
    return back[0] > 4, back.tolist()


def written_both_ways(x: Any) -> Any:
    a = x.numpy()
    y = torch.from_numpy(a)
    y.add_(1)
    a[0] = 0
    x.mul_(2)
    return y.tolist(), a.sum(), x.sum().item()


def array_of_the_trace_moved(x: Any) -> Any:
    a = numpy.ones(4, "f")
    t = torch.from_numpy(a)
    t.add_(x)
    t.set_(torch.zeros(4))
    return a.tolist(), t


def counted_on_one_side(x: Any) -> Any:
    a = x.numpy()
    numpy.multiply(a, 2, out=a)
    numpy.copyto(a[:2], [9, 8])
    a += 1
    return x + 1


def copied_to_one_side(x: Any) -> Any:
    a = x.numpy()
    numpy.random.default_rng(0).shuffle(a)
    numpy.cumsum(a, out=a)
    return x * 2, a.copy()


def storage_of_a_part(x: Any) -> Any:
    part = torch.from_numpy(x.numpy()[2:])
    part.add_(1)
    return part.storage_offset(), part.untyped_storage().nbytes(), part.is_set_to(x[2:]), part * 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [storage_of_a_part, moved_by_data, moved_by_set, made_smaller, turned, written_both_ways,
                                copied_to_one_side, array_of_the_trace_moved, counted_on_one_side], ids=lambda fn: fn.__name__)
def test_faces_stay_where_they_are(fn: Any, backend: str) -> None:
    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for _ in range(2):
        found, expected = (seen(each, (torch.arange(4.0) + 1,)) for each in (compiled, fn))
        if backend == "aot_eager" and fn is moved_by_data:
            found, expected = found[:2], expected[:2]  # the compiler counts the copy that it makes
        assert found == expected


# ---------------------------------------------------------------------- writes that autograd refuses


def part_of_several(x: Any) -> Any:
    first, second = (x * 2).split(2)
    try:
        first.add_(1)
    except RuntimeError as error:
        return str(error)
    return first + second


def part_of_a_leaf(x: Any) -> Any:
    try:
        x[:2].add_(1)
    except RuntimeError as error:
        return str(error)
    return x


def whole(x: Any) -> Any:
    x.mul_(2)
    return x


LEAVES = {"leaf": lambda: torch.arange(4.0, requires_grad=True), "plain": lambda: torch.arange(4.0),
          "result": lambda: torch.arange(4.0, requires_grad=True) * 1,
          "part of a result": lambda: (torch.arange(6.0, requires_grad=True) * 1)[2:]}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("fn", [part_of_several, part_of_a_leaf, whole], ids=lambda fn: fn.__name__)
def test_writes_that_autograd_refuses(fn: Any, backend: str) -> None:
    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for make in (*LEAVES.values(), lambda: LEAVES["part of a result"]()[1:]):
        found, expected = (seen(each, (make(),)) for each in (compiled, fn))
        assert found == expected


# ---------------------------------------------------------------------- checks


CHECKS: dict[str, Callable[[Any], Any]] = {
    "async": lambda i: torch._assert_async((i < 5).all()),
    "async with a message": lambda i: torch._assert_async((i < 5).all(), "too large"),
    "packet": lambda i: torch.ops.aten._assert_async((i < 5).all()),
    "overload": lambda i: torch.ops.aten._assert_async.msg((i < 5).all(), "too large"),
    "scalar": lambda i: torch._assert_scalar(i.sum().item() < 5, "too large"),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("check", CHECKS)
def test_checks_are_kept(check: str, backend: str) -> None:
    def fn(x: Any, i: Any) -> Any:
        x.add_(1)
        CHECKS[check](i)
        return x * 2

    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for number in (1, 7, 0, 7):
        found, expected = (seen(each, (torch.ones(3), torch.tensor([number]))) for each in (compiled, fn))
        assert found == expected


# ---------------------------------------------------------------------- subclasses of arrays


class Ruled(numpy.ndarray):
    """Its methods are those of its base, called explicitly or by super()."""

    def __getitem__(self, key: Any) -> Any:
        return numpy.ndarray.__getitem__(self, key)

    @property
    def dtype(self) -> Any:
        return super().dtype


def subclass_items(x: Any) -> Any:
    a = numpy.ones(3).view(Ruled)
    return x + 1, float(a[0]), str(a.dtype)


def matrix_sum(x: Any) -> Any:
    a = numpy.matrix([[1.0, 2.0]])
    return x + a.sum(), a[0].tolist()


@pytest.mark.parametrize("fn", [subclass_items, matrix_sum], ids=lambda fn: fn.__name__)
def test_methods_of_array_subclasses_reach_their_base(fn: Any) -> None:
    compiled = stator.compile(fn, backend="eager", options={"strict": True})
    for _ in range(2):
        found, expected = (seen(each, (torch.ones(2),)) for each in (compiled, fn))
        assert found == expected
