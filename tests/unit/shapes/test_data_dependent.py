"""Numbers that only the graph knows: captured whole, and what eager gives."""

from __future__ import annotations

import math
import re
import traceback
import warnings

import pytest
import torch
from asserting import (
    assert_after_a_large_write,
    assert_all,
    assert_equal,
    assert_number,
    bounds_in_one_assertion,
    caught_assertion,
    raise_unless_any,
)
from counting import run

import stator

PROGRAMS = {}


def program(fn):
    PROGRAMS[fn.__name__] = fn
    return fn


@program
def item(x, n):
    return x.sum().item(), x * n.item(), n.item()


@program
def number_of_tensor(x, n):
    size = int(x.abs().sum())
    return torch.ones(size), size, float(x.sum()) + 1.5


@program
def bool_item(x, n):
    return (x > 0).any().item(), x + 1


@program
def nonzero_and_masks(x, n):
    return x.nonzero(), x[x > 0] * 2, torch.unique(x.round()), x.masked_select(x > 0).sum()


@program
def equal(x, n):
    y = x.clone()
    return torch.equal(x, y), x.equal(y + 1), torch.equal(x, x[:1]), torch.equal(x, x.unsqueeze(0)), x + 1


@program
def mask_write(x, n):
    x = x.clone()
    x[x > 0] = 0.5
    return x


@program
def slice_to_item(x, n):
    return x[: n.item()] + 1


@program
def element(x, n):
    y = x.clone()
    y[n] = 7.0
    return x[n.item()] + 1, x[n] - 1, y


@program
def cache_read_and_write(x, n):
    start, end = n - 1, n + 1
    y = x.clone()
    y[:, start:end] = x[:, start:end] * 2
    z = x.clone()
    z[:, start:end] = 3.0
    return x[:, start:end].sum(1), y, z


@program
def negative_bounds(x, n):
    y = x.clone()
    y[:, -n:] = 0.0
    y[:, n + 100 :] = 5.0
    return y


@program
def narrow(x, n):
    return torch.narrow(x, 0, n - 1, 2), x.narrow(1, n.item(), 1)


@program
def checked_size(x, n):
    m = n.item()
    torch._check(m >= 0)
    torch._check(m <= 4, lambda: "too many")
    return torch.zeros(m) + m, torch.arange(m) * 2


@program
def repeat(x, n):
    return torch.repeat_interleave(x, n.reshape(1).expand(4), dim=0)


@program
def to_list(x, n):
    first, second = torch.stack([n, n + 1]).tolist()
    return x * first + second, [first, second * 2], x.flatten()[:2].tolist()


@program
def arithmetic(x, n):
    k = n.item()
    return [k, k * 2, k / 2, -k, k + 1, k - 7, abs(-k), max(k, 3), min(k, 1)], x + k


@program
def looks_like_an_int(x, n):
    k = n.item()
    return isinstance(k, int), type(k) is int, isinstance(x.sum().item(), float), x + 1


@program
def tensor_check(x, n):
    torch._check_tensor_all(x < 100, lambda: "too large")
    return x + 1


@program
def tensor_of_a_number(x, n):
    return torch.tensor(n.item()), torch.tensor([n.item(), 2]), torch.tensor(x.sum().item())


@program
def shape_of_a_mask(x, n):
    kept = x[x.sum(1) > 0]
    return kept.shape[0], kept.numel(), kept.shape


@program
def rounding(x, n):
    value = x.abs().sum().item()
    return math.floor(value), math.ceil(value), math.trunc(value), int(value)


@program
def item_set_by_its_method(x, n):
    y = x.clone()
    y.__setitem__((slice(None), slice(n - 1, n + 1)), 1.0)
    return y


program(bounds_in_one_assertion)


@program
def bounds_before_a_raise(x, n):
    k = n.item()
    if k < 0 or k > 4:
        raise ValueError("out of bounds")
    return x[:k] * 2


@program
def text(x, n):
    return f"{n.item()} rows", x + 1


def inputs(value: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(value)
    return torch.randn(4, 6, generator=generator), torch.tensor(value)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_captured_whole_and_equal(name, backend):
    compiles, _ = run(PROGRAMS[name], [inputs(2), inputs(3), inputs(1)], backend=backend)
    assert compiles == 1


@pytest.mark.parametrize("name", ["item", "cache_read_and_write", "nonzero_and_masks", "checked_size"])
def test_inductor(name):
    compiles, _ = run(PROGRAMS[name], [inputs(2), inputs(3)], backend="inductor")
    assert compiles == 1


def test_violated_check_raises():
    compiled = stator.compile(PROGRAMS["checked_size"], backend="eager", fullgraph=True)
    compiled(*inputs(2))
    with pytest.raises(RuntimeError):
        compiled(inputs(2)[0], torch.tensor(9))


def test_violated_tensor_check_raises():
    compiled = stator.compile(PROGRAMS["tensor_check"], backend="eager", fullgraph=True)
    x, n = inputs(2)
    compiled(x, n)
    with pytest.raises(RuntimeError, match="too large"):
        compiled(x + 1000, n)


@pytest.mark.parametrize("name", ["bounds_in_one_assertion", "bounds_before_a_raise"])
def test_violated_bounds_raise_what_the_program_raises(name):
    compiled = stator.compile(PROGRAMS[name], backend="eager", fullgraph=True)
    x, n = inputs(2)
    compiled(x, n)
    for value in (-1, 9):
        with pytest.raises((AssertionError, ValueError), match="out of bounds"):
            compiled(x, torch.tensor(value))


def test_a_data_dependent_branch_names_line_expression_and_check():
    with pytest.raises(stator.Unsupported) as caught:
        stator.compile(branch, backend="eager", fullgraph=True, options={"capture_control_flow": False})(*inputs(2))
    text = str(caught.value)
    expression = re.search(r"is unbacked \((.*\.item\(\) > .*)\), at ", text)
    assert expression is not None and f"torch._check({expression[1]}), or torch._check(" in text
    assert f"test_data_dependent.py:{branch.__code__.co_firstlineno + 1} in branch" in text


def test_text_of_a_number_is_compared_right():
    run(lambda x, n: (f"{n.item()}" == "2", x + 1), [inputs(2), inputs(3), inputs(2)], fullgraph=False)


def branch(x, n):
    if x.sum().item() > n.item():
        return x + 1
    return x - 1


def key(x, n):
    return {int(x.abs().sum().item()) + n.item(): x}


@pytest.mark.parametrize("fn", [branch, key])
def test_number_that_is_needed_breaks_and_is_right(fn):
    with pytest.raises(stator.Unsupported) as caught:
        stator.compile(fn, backend="eager", fullgraph=True, options={"capture_control_flow": False})(*inputs(2))
    assert caught.value.code in ("SB002", "SB003")
    run(fn, [inputs(2), inputs(3), inputs(2)], fullgraph=False)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [assert_all, assert_equal, raise_unless_any, assert_number])
def test_checks_before_a_raise_are_assertions(fn, backend):
    compiled = stator.compile(fn, backend=backend, fullgraph=True)
    for x in (torch.ones(3), -torch.ones(3), torch.ones(3) * 30, torch.ones(3) * 0.5):
        try:
            want = fn(x)
        except Exception as error:
            with pytest.raises(type(error)) as caught:
                compiled(x)
            assert str(caught.value) == str(error)
        else:
            assert torch.equal(compiled(x), want)
    assert len(compiled.entries()) == 1


def test_assertion_that_the_program_catches_is_a_branch():
    run(caught_assertion, [(torch.ones(2),), (-torch.ones(2),)], fullgraph=False)


def test_an_error_that_the_graph_raises_has_the_lines_of_the_program():
    def lines(fn, *args):
        try:
            fn(*args)
        except AssertionError as error:
            shown = traceback.extract_tb(error.__traceback__)
            return str(error), [(each.name, each.lineno) for each in shown if each.filename.endswith("asserting.py")]
        return None

    compiled = stator.compile(assert_after_a_large_write, backend="eager", fullgraph=True)
    big, small = torch.zeros(3_000_000), torch.full((2,), 1)
    compiled(big, torch.full((2,), 9))
    expected = lines(assert_after_a_large_write, big, small)
    assert len(expected[1]) == 2
    assert lines(compiled, big, small) == expected
    assert float(big[0]) == 3


def sum_with_the_chosen(mask, v):
    v += 1
    return (torch.ones(4)[mask] + v).sum()


def chosen_by_broadcasting(mask, v):
    return v.masked_fill_(torch.ones(4).masked_select(mask) > 2, 0)


def chosen_and_viewed(mask, v):
    return torch.cat([mask.nonzero().squeeze(1), v]).view(8) + 1


@pytest.mark.parametrize("fn", [sum_with_the_chosen, chosen_by_broadcasting, chosen_and_viewed])
def test_a_size_that_the_graphs_number_can_never_have(fn):
    """The operation raises in eager; that it cannot do so is no fact about the sizes of this call."""
    def outcome(subject, rows):
        v = torch.arange(float(rows))
        try:
            return repr(subject(torch.ones(4) > 0, v)), v.tolist()
        except RuntimeError as error:
            return str(error), v.tolist()

    compiled = stator.compile(fn, backend="eager")
    for rows in (3, 3, 5, 4, 2, 9, 4):
        assert outcome(compiled, rows) == outcome(fn, rows)


def said_by(function, *args):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # of torch: _check(n >= 0) says the same
        try:
            return str(function(*args))
        except RuntimeError as error:
            return type(error), str(error)


def sized_by_a_number(x, n):
    size = n.item()
    torch._check_is_size(size)
    torch._check_is_size(size, max=4)
    return torch.zeros(size) + x.sum(), torch._check_is_size(x.shape[0], max=9)


def sized_by_a_constant(x, n):
    torch._check_is_size(-3)
    return x + 1


def sized_beyond_a_constant(x, n):
    torch._check_is_size(7, max=3)
    return x + 1


@pytest.mark.parametrize("fn", [sized_by_a_number, sized_by_a_constant, sized_beyond_a_constant])
def test_what_is_said_to_be_a_size(fn):
    compiled = stator.compile(fn, backend="eager")
    for number in (2, 3, 0, 9, -1, 4):
        given = torch.ones(2, 2), torch.tensor(number)
        found, expected = said_by(compiled, *given), said_by(fn, *given)
        assert found == expected or type(expected) is tuple and expected[0] is found[0]
    if fn is sized_by_a_number:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            stator.compile(fn, backend="eager", fullgraph=True)(torch.ones(2, 2), torch.tensor(3))


def check_with_values(x, n):
    torch._check_tensor_all(x < 100, lambda: f"{n} too large")
    return x + 1


def check_without_words(x, n):
    torch._check_tensor_all(x < 100)
    return x + 1


@pytest.mark.parametrize("fn", [check_with_values, check_without_words, PROGRAMS["tensor_check"]])
def test_violated_tensor_checks_say_what_eager_says(fn):
    compiled = stator.compile(fn, backend="eager")
    for step in (1.0, 1000.0, 2.0):
        given = torch.full((2, 2), step), torch.tensor(3)
        assert said_by(compiled, *given) == said_by(fn, *given)


def narrowed(x, n):
    return x.narrow(0, n, 1)


def narrowed_and_handled(x, n):
    try:
        torch.narrow(x, 0, n, length=1)
    except RuntimeError as error:
        return str(error)
    return x + 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [narrowed, narrowed_and_handled])
def test_a_part_begins_at_an_integer_without_dimensions_alone(fn, backend):
    compiled = stator.compile(fn, backend=backend)
    for start in (1, [0], [0, 1], 0.0, False, 0):
        given = torch.arange(6).view(3, 2), torch.tensor(start)
        assert said_by(compiled, *given) == said_by(fn, *given)


def stepped_by_a_number(x, n):
    return torch.arange(12)[:: n.item()], torch.arange(12)[1 : 8 : int(n) + 1]


def test_a_slice_with_a_step_that_only_the_graph_knows(monkeypatch):
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(stepped_by_a_number, backend="eager")
    for number in (2, 3, 1, 7):
        given = torch.ones(2, 2), torch.tensor(number)
        assert said_by(compiled, *given) == said_by(stepped_by_a_number, *given)


def pairs(x):
    """torch.combinations selects twice inside, and only one of the two counts is in its result."""
    index = torch.combinations(x.nonzero()[:, 0], r=2)
    return index * 2, index.shape[0] + torch.combinations(torch.arange(3), with_replacement=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_counts_inside_of_an_operation(backend):
    compiled = stator.compile(pairs, backend=backend, fullgraph=True, options={"strict": True})
    for mask in ([1, 1, 0, 1], [1, 0, 0, 1], [1, 1, 1, 1]):
        given = (torch.tensor(mask),)
        assert said_by(compiled, *given) == said_by(pairs, *given)
