"""Values that change between calls and are no size: texts, functions, containers of any length. Never run eagerly."""

from __future__ import annotations

import copy
import sys
import warnings
from typing import Any

import pytest
import torch
from counting import same

import stator
from stator import events

X = torch.arange(4.0)
NAMES = [f"{'n' * (i % 7)}{i}" for i in range(14)]
LENGTHS = [1, 2, 3, 4, 5, 6, 7, 0, 9, 2, 11, 12, 1, 15]


def texts(x, name):
    if name.startswith("n"):
        x = x + 1
    return x * len(name), name.upper() + "!", name == "3", [name, f"<{name:>4}>"], {name: x}


def text_handed_on(x, name):
    kept = [name, (name, x + 1)]
    return kept, name is kept[0], isinstance(name, str), type(name) is str, name is None


def sum_of_list(x, xs):
    return sum(xs) + x, len(xs)


def loop(x, xs):
    total = x
    for i, y in enumerate(xs):
        if i == 9:
            break
        total = total + y * i
    else:
        total = total - 1
    return total


def stacked(x, xs):
    return torch.stack([x, *xs]).sum(0) * 2


def appended(x, xs):
    y = x * 2
    xs.append(y)
    return xs[-1] + 1, xs[0], len(xs)


def sliced(x, xs):
    return [y + 1 for y in xs[1:]], sorted(map(float.__abs__, [-1.5, float(len(xs))]))


def returned(x, xs):
    return xs, xs is xs, bool(xs), x + 1


def numbers(x, ns):
    for n in ns:
        x = x + n
    return x, ns


def table(x, d):
    for key, value in d.items():
        x = x + value * len(key)
    return x, list(d), d.get("k3", 7), "k1" in d


def unpacked(x, pair):
    head, *tail = pair
    return x * head, tail


def count_up(x, n):
    for i in range(n):
        x = x + i
    return x, f"{n} times"


def matched(x, xs):
    match xs:
        case []:
            return x
        case [only]:
            return x + only
        case [first, *rest]:
            return x - first, len(rest)


def matched_table(x, d):
    match d:
        case {"k3": value}:
            return x * value
        case {}:
            return x


def comprehensions(x, xs):
    return [y + 1 for y in xs], (*xs, x), {i: i + 1 for i, _ in enumerate(xs)}, {len(xs), 0}, max(xs, default=None)


def tensors(n: int) -> list[torch.Tensor]:
    return [X + i for i in range(n)]


PROGRAMS: dict[str, tuple[Any, list[Any]]] = {
    "texts": (texts, NAMES),
    "text handed on": (text_handed_on, NAMES),
    "sum of a list": (sum_of_list, [tensors(n) for n in LENGTHS]),
    "loop": (loop, [tensors(n) for n in LENGTHS]),
    "stacked": (stacked, [tensors(n) for n in LENGTHS]),
    "appended": (appended, [tensors(n) for n in LENGTHS]),
    "sliced": (sliced, [tensors(n) for n in LENGTHS]),
    "returned": (returned, [tensors(n) for n in LENGTHS]),
    "numbers": (numbers, [list(range(n)) for n in LENGTHS]),
    "tuples of numbers": (numbers, [tuple(range(n)) for n in LENGTHS]),
    "table": (table, [{f"k{i}": i for i in range(n)} for n in LENGTHS]),
    "unpacked": (unpacked, [list(range(n)) for n in LENGTHS if n]),
    "count up": (count_up, LENGTHS),
    "matched": (matched, [list(range(n)) for n in LENGTHS]),
    "matched table": (matched_table, [{f"k{i}": i for i in range(n)} for n in LENGTHS]),
    "comprehensions": (comprehensions, [list(range(n)) for n in LENGTHS]),
}


def counted(fn: Any, arguments: list[Any], **options: Any) -> list[Any]:
    """Every call equal to eager, twice; the events."""
    compiled = stator.compile(fn, backend="eager", options={"strict": True}, **options)
    with warnings.catch_warnings(), events.record() as log:
        warnings.simplefilter("ignore")
        for argument in arguments * 2:
            mine, reference = copy.deepcopy(argument), copy.deepcopy(argument)
            want, got = outcome(fn, reference), outcome(compiled, mine)
            assert same(want, got), f"{argument!r}: {got!r} instead of {want!r}"
            assert same(reference, mine), f"{argument!r} was left as {mine!r} instead of {reference!r}"
    return log


def outcome(fn: Any, argument: Any) -> Any:
    try:
        return fn(X, argument)
    except Exception as error:
        return type(error).__name__, str(error)


@pytest.mark.parametrize("name", PROGRAMS)
def test_never_eager(name):
    log = counted(*PROGRAMS[name])
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
    compiles = sum(isinstance(event, events.CaptureFinished) for event in log)
    # Since 3.12 comprehensions are loops of the function itself: each has points of its own to go on at.
    inlined = name == "comprehensions" and sys.version_info >= (3, 12)
    assert compiles <= (90 if inlined else 30), compiles


def test_lists_of_any_length_take_few_compiles():
    log = counted(loop, [tensors(n) for n in range(1, 16)])
    assert sum(isinstance(event, events.CaptureFinished) for event in log) <= 10


def test_a_list_of_which_only_the_length_changes_is_kept_whole_under_fullgraph():
    log = counted(sum_of_list, [tensors(n) for n in (1, 2, 3, 4, 5, 6)], fullgraph=True)
    assert not [event for event in log if isinstance(event, events.GraphBreak)]


def scaled_by(k):
    return lambda x: x * k


def shouted(text):
    return lambda x: x + len(text)


def through(function):
    return lambda x: function(x) * 2


CLOSURES = {
    "int": [scaled_by(k) for k in range(20)],
    "str": [shouted("a" * k) for k in range(20)],
    "function": [through(eval(f"lambda x: x - {k}")) for k in range(20)],
}


@pytest.mark.parametrize("kind", CLOSURES)
def test_closures(kind):
    log = counted(lambda x, f: f(x) + 1, CLOSURES[kind])
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
    for closure in CLOSURES[kind]:
        compiled = stator.compile(closure, backend="eager", options={"strict": True})
        assert torch.equal(compiled(X), closure(X))
