"""Recursion, mutual recursion, lambdas, higher-order functions."""

import functools
import sys
import warnings

import pytest
import torch

import stator
from curriculum import call, case, ramp


def depth_sum(tree):
    if isinstance(tree, (list, tuple)):
        return sum(depth_sum(branch) for branch in tree)
    return tree


def is_even(n):
    return True if n == 0 else is_odd(n - 1)


def is_odd(n):
    return False if n == 0 else is_even(n - 1)


def compose(*functions):
    return functools.reduce(lambda f, g: lambda v: g(f(v)), functions)


def tree_map(f, tree):
    if isinstance(tree, dict):
        return {k: tree_map(f, v) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(tree_map(f, v) for v in tree)
    return f(tree)


@case((ramp(2), 5), (ramp(2), 1))
def factorial(x, n):
    def fact(k):
        return 1 if k <= 1 else k * fact(k - 1)

    return x * fact(n)


@case((ramp(2), 7), (ramp(2), 4))
def mutual(x, n):
    return x + 1 if is_even(n) else x - 1


@case(call([1, [2, [3, 4]], (5,)], ramp(2)), call([], ramp(2)))
def over_a_tree(tree, x):
    return x + depth_sum(tree)


@case(lambda: call({"a": ramp(2), "b": [ramp(1), (ramp(3),)]}), lambda: call([ramp(2)]))
def tree_of_tensors(tree):
    return tree_map(lambda t: t * 2, tree), tree_map(lambda t: t.shape, tree)


@case()
def composition(x):
    return compose(lambda v: v + 1, torch.relu, lambda v: v * 3)(x)


@case()
def currying(x):
    add = lambda a: lambda b: lambda c: a + b * c
    return add(x)(2)(3)


@case(([3, 1, 2], ramp(2)), ([0], ramp(2)))
def lambda_forms(items, x):
    f = lambda a, /, b=2, *c, d=4, **e: (a, b, c, d, e)
    return f(1), f(1, 3, 5, d=6, z=7), sorted(items, key=lambda v: -v), list(map(lambda v: v * v, items)), x + 1


@case(call(ramp(2)))
def y_combinator(x):
    fix = lambda f: (lambda g: g(g))(lambda g: f(lambda *a: g(g)(*a)))
    fib = fix(lambda self: lambda n: n if n < 2 else self(n - 1) + self(n - 2))
    return x + fib(8)


@case((ramp(2), 3, 2), (ramp(2), 2, 2))
def ackermann(x, m, n):
    def ack(m, n):
        if m == 0:
            return n + 1
        return ack(m - 1, 1) if n == 0 else ack(m - 1, ack(m, n - 1))

    return x + ack(m, n)


@case(call(ramp(2), 3), call(ramp(2), 1))
def recursion_with_tensors(x, n):
    def tree(v, level):
        if level == 0:
            return v
        return tree(v + level, level - 1) * tree(v - level, level - 1)

    return tree(x, n)


@case(call(ramp(2), [1, 2, 3]), call(ramp(2), [4]))
def permutations_by_recursion(x, items):
    def permute(rest):
        if not rest:
            return [[]]
        return [[v] + tail for i, v in enumerate(rest) for tail in permute(rest[:i] + rest[i + 1 :])]

    return permute(items), x + len(permute(items))


@case(call(ramp(2)), call(ramp(3)))
def error_deep_in_recursion(x):
    def down(n):
        if n == 0:
            raise ValueError(f"bottom of {x.shape[0]}")
        return down(n - 1)

    y = x + 1
    down(5)
    return y


@case(call(ramp(2), 40), call(ramp(2), 90))
def deep_recursion(x, n):
    def down(k):
        return 0 if k == 0 else 1 + down(k - 1)

    return x + down(n)


def test_a_low_recursion_limit_leaves_no_room_for_a_capture():
    def depth():
        frame, count = sys._getframe(), 0
        while frame is not None:
            frame, count = frame.f_back, count + 1
        return count

    def limited(fn):
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(depth() + 15)
        try:
            return fn(3)
        finally:
            sys.setrecursionlimit(before)

    def down(n):
        return 0 if n == 0 else 1 + down(n - 1)

    def sets_a_limit(n):
        return limited(down)

    with pytest.warns() as told:
        warnings.warn("one at least", stacklevel=1)
        assert limited(stator.compile(down, backend="eager")) == limited(down) == 3
        assert stator.compile(sets_a_limit, backend="eager")(1) == 3
    assert not [warning for warning in told if "internal" in str(warning.message)]
