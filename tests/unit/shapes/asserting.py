"""Programs whose checks become assertions of the graph; a module of their own, since pytest rewrites `assert` in tests."""

from __future__ import annotations


def assert_equal(x):
    assert x.equal(x.abs()), "negative"
    return x * 2


def assert_all(x):
    assert (x > 0).all(), "negative"
    return x + 1


def raise_unless_any(x):
    if not (x > 0).any():
        raise ValueError("nothing here")
    return x * 2


def assert_number(x):
    n = x.sum().int().item()
    assert n <= 16
    return x + n


def caught_assertion(x):
    try:
        assert (x > 0).all()
    except AssertionError:
        return x - 1
    return x + 1


def bounds_in_one_assertion(x, n):
    k = n.item()
    assert 0 <= k <= 4, "out of bounds"
    return x[:k] * 2


def checked(n):
    assert n > 3, "small"
    return n


def assert_after_a_large_write(big, x):
    """The written memory is too large to be restored: the error is made where the graph fails, not by the program."""
    big.add_(1)
    n = x.sum().item()
    checked(n)
    return x + n
