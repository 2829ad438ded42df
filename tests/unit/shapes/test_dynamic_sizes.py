"""Sizes and numbers that change: symbolic at the second compile, equal to eager on every call."""

from __future__ import annotations

import collections
import math
from typing import Any

import numpy as np
import pytest
import torch
from counting import run, shape_texts
from torch import nn

import stator
from stator import events
from stator.capture import stages

SIZES = [5, 3, 7, 2, 1, 9, 64, 3, 1, 12]


def grid(n: int, m: int = 4) -> torch.Tensor:
    return torch.randn(n, m)


ON_ROWS = {
    "add": (lambda x: x + 1, 3),
    "view": (lambda x: x.view(x.size(0) * 2, 2).sum(1), 3),
    "mean": (lambda x: x.sum() / x.shape[0], 3),
    "shape": (lambda x: (x.shape, x.shape[0], x.numel(), len(x)), 3),
    "branch": (lambda x: x * 2 if x.shape[0] > 4 else x - 1, 4),
    "ceil": (lambda x: x[: math.ceil(x.shape[0] / 2)], 4),
    "extremes": (lambda x: x[: min(x.shape[0], 4)] * max(x.shape[0], 3), 4),
    "tuple of shape": (lambda x: x.new_zeros(tuple(x.shape)) + list(x.shape)[0], 3),
    "product": (lambda x: x.reshape(math.prod(x.shape)) * sum(x.shape), 3),
    "isinstance": (lambda x: x + isinstance(x.shape[0], int) + (type(x.shape[0]) is int), 3),
    "pad": (lambda x: torch.nn.functional.pad(x, (0, x.shape[0])), 3),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", ON_ROWS)
def test_rows(name, backend):
    fn, limit = ON_ROWS[name]
    compiles, _ = run(fn, [(grid(n),) for n in SIZES], backend=backend)
    assert compiles <= limit


def test_inductor():
    compiles, _ = run(lambda x: (x.view(-1, 2) * x.shape[0]).sum(0), [(grid(n),) for n in SIZES], backend="inductor")
    assert compiles <= 3


@pytest.mark.parametrize("fn", [
    lambda x: (f"{x.shape[0]} rows", x + 1),
    lambda x: {x.shape[0]: x},
    lambda x: sum(x[i] for i in range(x.shape[0])),
    lambda x: [x] * x.shape[0],
    lambda x: ("%d" % x.shape[0], str(x.shape[0]), hash(x.shape[0]), x + 1),
    lambda x: ([10, 20, 30, 40][x.shape[0]], x * 2),
])  # fmt: skip
def test_where_the_number_is_needed_it_is_a_constant(fn):
    compiles, _ = run(fn, [(grid(n),) for n in (3, 2, 3, 2)])
    assert compiles == 2


def test_two_sizes():
    run(lambda x, y: x @ y, [(grid(n), torch.randn(4, m)) for n, m in zip(SIZES, SIZES[::-1], strict=True)])


def test_true_is_symbolic_at_once():
    compiles, _ = run(lambda x, n: x[:n].sum(0), [(grid(8), n) for n in range(2, 8)], dynamic=True)
    assert compiles == 1


def test_false_is_never_symbolic():
    compiles, compiled = run(lambda x: x + 1, [(grid(n),) for n in (2, 3, 4)], dynamic=False)
    assert compiles == 3 and not shape_texts(compiled)


def test_views_and_strides():
    base = torch.randn(20, 4)
    compiles, _ = run(lambda x: x * 2, [(base[1:n].t(),) for n in (4, 6, 8, 10)])
    assert compiles == 2
    _, compiled = run(lambda x: x.contiguous() + x.stride(0), [(grid(n),) for n in (4, 6)] + [(grid(6, 4),)])
    assert torch.equal(compiled(base.t()), base.t() + base.t().stride(0))


# ---------------------------------------------------------------------- numbers


def test_int_argument():
    fn = lambda x, n: (x * n + n, n, n * 2 + 1, n // 3, n % 3, -n, n / 2)  # noqa: E731
    compiles, _ = run(fn, [(torch.ones(3), n) for n in range(10)])
    assert compiles == 2


def test_float_argument():
    for backend in ("eager", "aot_eager"):
        compiles, _ = run(lambda x, f: (x * f, f * 2.0 + 0.1), [(torch.ones(3), n + 0.5) for n in range(8)],
                          backend=backend)
        assert compiles == 2


def test_tuple_of_ints():
    compiles, _ = run(lambda x, shape: x.view(shape), [(torch.ones(2 * n), (n, 2)) for n in (3, 5, 6, 2)])
    assert compiles == 2


class Counter:
    def __init__(self) -> None:
        self.n = 0
        self.rate = 1.0

    def step(self, x):
        self.n += 1
        self.rate *= 0.5
        return x * self.rate + self.n


def test_attributes_that_change_at_every_call():
    counter, reference = Counter(), Counter()
    compiled = stator.compile(counter.step, backend="eager", fullgraph=True)
    with events.record() as log:
        for _ in range(20):
            assert torch.equal(compiled(torch.ones(2)), reference.step(torch.ones(2)))
    assert (counter.n, counter.rate) == (reference.n, reference.rate) == (20, 0.5**20)
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == 2


def test_closures_over_ints():
    def make(k):
        def scale(x):
            return x * k
        return scale

    def outer(x, f):
        return f(x) + 1

    compiles, _ = run(outer, [(torch.ones(2), make(k)) for k in range(2, 12)])
    assert compiles == 2


# ---------------------------------------------------------------------- guards


def test_guards_are_in_the_users_terms():
    _, compiled = run(lambda x, y: x + y if x.shape[0] % 2 == 0 else x, [(grid(n), grid(n)) for n in (4, 6)])
    texts = shape_texts(compiled)
    assert "x.size(0) >= 2" in texts
    assert any("%" in text and "x.size(0)" in text for text in texts), texts
    assert any("y.size(0)" in text and "x.size(0)" in text for text in texts), texts


def test_guard_names_the_line_that_asked():
    _, compiled = run(branchy, [(grid(n),) for n in (6, 7)])
    asked = [guard.where[1] for _, _, tag in compiled.entries() for guard in tag.guards if guard.text() == "x.size(0) > 4"]
    assert asked == [branchy.__code__.co_firstlineno + 1]


def branchy(x):
    if x.shape[0] > 4:
        return x * 2
    return x - 1


def test_a_missing_guard_is_caught(monkeypatch):
    """The comparison with eager has teeth: without the shape guards it fails."""
    monkeypatch.setattr(stages, "shape_guards", lambda *args: [])
    with pytest.raises(AssertionError, match="instead of"):
        run(branchy, [(grid(n),) for n in (6, 7, 2)])


Pair = collections.namedtuple("Pair", "rows n")


def test_symbols_through_python():
    def program(x, n):
        more = n > 2
        found = 3 in x.shape, n in (4, x.shape[0]), [n, 5].index(5), (n > 2) + (n < 9), -more, more / 2, max(n > 2, n > 3)
        pair = Pair(x.shape[0], n)
        return found, pair, dict(rows=n), n << 2, n ** 3, sorted([n, 4]), x.new_ones(pair.rows) * pair.n

    compiles, _ = run(program, [(grid(m), n) for m, n in ((5, 4), (6, 7), (3, 1), (8, 70))], dynamic=True)
    assert compiles <= 4


@pytest.mark.parametrize("fn", [lambda x, n: n**50, lambda x, n: 2**n, lambda x, n: n << n, lambda x, n: n * 10**30,
                                lambda x, n: n**n**2])  # fmt: skip
def test_numbers_beyond_64_bits_are_pythons(fn):
    run(lambda x, n: (fn(x, n), x + n), [(grid(3), n) for n in (3, 9, 70)], dynamic=True)


def test_a_namedtuple_of_sizes_stays_symbolic():
    compiles, _ = run(lambda x: x.new_zeros(Pair(x.shape[0], 2)) + 1, [(grid(n),) for n in (5, 6, 7, 8)])
    assert compiles == 2


def test_a_list_that_only_grows_is_compiled_once():
    log, twin = [], []
    compiled = stator.compile(lambda x, log: (log.append(x.sum()), x * 2)[1], backend="eager", fullgraph=True)
    for n in range(12):
        x = torch.ones(3) * n
        assert torch.equal(compiled(x, log), x * 2)
        twin.append(x.sum())
    assert log == twin and len(compiled.entries()) == 1


@pytest.mark.parametrize("fn", [
    lambda x, xs: x * len(xs),
    lambda x, xs: (xs.append(x), x + len(xs))[1],
    lambda x, xs: x + 1 if xs else x,
    lambda x, xs: (xs.append(x + 1), xs[-1] * 2)[1],
])  # fmt: skip
def test_the_length_of_a_list_is_a_symbol(fn):
    compiles, _ = run(fn, [(torch.ones(3), [torch.ones(1)] * n) for n in (3, 5, 1, 9, 0, 12, 3)])
    assert compiles <= 3


def test_height_and_width_are_two_symbols_and_a_convolution_asks_nothing():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # then the choice of kernel depends on the size
    try:
        conv = torch.nn.Conv2d(3, 8, 3, padding=1)
        sizes = ((40, 40), (16, 24), (64, 64), (8, 8), (64, 8), (56, 64))
        for layout in (torch.contiguous_format, torch.channels_last):
            calls = [(torch.randn(1, 3, *size).to(memory_format=layout),) for size in sizes]
            compiles, compiled = run(lambda x: torch.relu(conv(x)) * 2, calls)
            assert compiles == 2
            assert all(compiled(*args).stride() == (conv(*args) * 2).stride() for args in calls)
    finally:
        torch.set_num_threads(threads)


def test_what_changed_before_a_break_is_open_after_it():
    def program(x, n):
        y = x * n
        stator.graph_break()
        return y.sum(0) + x.shape[0] + n

    compiles, _ = run(program, [(grid(m), m * 3) for m in (4, 5, 6, 7)], fullgraph=False)
    assert compiles == 4  # before and after, as constants and as symbols


# ---------------------------------------------------------------------- declarations


def marked(n: int, mark, **options):
    x = grid(n)
    mark(x, 0, **options)
    return (x,)


def test_mark_dynamic():
    compiled = stator.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    for n in (4, 5, 6):
        compiled(*marked(n, stator.mark_dynamic, min=2, max=8))
    assert len(compiled.entries()) == 1 and "x.size(0) <= 8" in shape_texts(compiled)


def test_violated_declaration_names_line_and_value():
    compiled = stator.compile(lambda x: x * 2 if x.shape[0] == 4 else x, backend="eager")
    with pytest.raises(stator.StatorError, match=r"x\.size\(0\) is declared dynamic and is 4 in this call, .* 4 .*test_dynamic_sizes"):
        compiled(*marked(4, stator.mark_dynamic))
    compiled(*marked(4, stator.maybe_mark_dynamic))


def test_mark_static_and_unbacked():
    fixed = stator.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    free = stator.compile(lambda x: x * 2, backend="eager", fullgraph=True)
    for n in (4, 5, 1):
        fixed(*marked(n, stator.mark_static))
        free(*marked(n, stator.mark_unbacked))
    assert len(fixed.entries()) == 3 and len(free.entries()) == 1


def test_marks_refuse_what_they_cannot_mean():
    with pytest.raises(ValueError, match="dimension 2"):
        stator.mark_dynamic(grid(2), 2)
    with pytest.raises(ValueError, match="min"):
        stator.mark_dynamic(grid(2), 0, min=5, max=3)


class Scheduled(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.step = size

    def forward(self, x: torch.Tensor) -> Any:
        return (x * self.step + self.weight.sum(), self.step)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("fn, calls", [
    (lambda x, f: x * f, [(grid(3), each / 4) for each in range(1, 8)]),
    (lambda x, n: {"a": x + 1, "b": n / 2}, [(grid(3), np.int64(each)) for each in range(2, 9)]),
    (lambda x, a: (x + 1, float((a * 2).sum())), [(grid(3), np.full(3, each)) for each in range(2, 9)]),
    (lambda module, x: module(x), [(Scheduled(each), grid(3)) for each in range(2, 9)]),
], ids=["float", "numpy scalar", "numpy array", "attribute and parameter"])
def test_what_is_not_open_at_once_is_once_it_has_changed(fn: Any, calls: Any, dynamic: bool | None) -> None:
    assert run(fn, calls, dynamic=dynamic, recompile_limit=20)[0] <= 4
