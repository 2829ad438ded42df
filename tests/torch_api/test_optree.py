"""optree inside captured code, beside eager; where optree is not installed there is nothing to test."""

from __future__ import annotations

import collections

import pytest
import torch

import stator
from tests.torch_api.side_by_side import World, compare

optree = pytest.importorskip("optree")
Point = collections.namedtuple("Point", "x y")
TREE = {"a": [1, 2], "b": {"c": 3}}


class Pair:
    def __init__(self, first, second):
        self.first, self.second = first, second


optree.register_pytree_node(Pair, lambda pair: ((pair.first, pair.second), None), lambda _, parts: Pair(*parts),
                            namespace="pairs")


def flattened(x):
    leaves, spec = optree.tree_flatten({"b": x, "a": [x, (x, None)]})
    return optree.tree_unflatten(spec, [leaf * 2 for leaf in leaves]), spec.num_leaves, str(spec)


def mapped(x):
    return optree.tree_map(lambda a, b: a + b, {"u": x, "v": (x,)}, {"u": x * 2, "v": (x * 3,)}), \
        optree.tree_map(lambda v: v - 1, Point(x, [1, x])), optree.tree_reduce(lambda a, b: a + b, [x, x * 2])


def with_paths(x):
    return optree.tree_paths({"a": x, "b": [x]}), optree.tree_map_with_path(lambda p, v: v * len(p), {"a": x, "b": [x]})


def with_leaves_of_its_own(x):
    return optree.tree_map(lambda t: t[0] + t[1], [(x, x), (x, 2 * x)], is_leaf=lambda v: isinstance(v, tuple))


def with_a_class(x):
    pair = optree.tree_map(lambda v: v + 1, Pair(x, [x * 2]), namespace="pairs")
    return pair.first, pair.second


def of_an_outside_tree(x):
    return x * sum(optree.tree_leaves(TREE)), optree.tree_map(lambda v: v * 2, TREE)


PROGRAMS = [flattened, mapped, with_paths, with_leaves_of_its_own, with_a_class, of_an_outside_tree]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_captured_whole(program, backend):
    def arguments(number):
        TREE["b"]["c"] = 3 + number // 2
        return (torch.arange(3.0) + number,)
    seen = compare(lambda: World(program, arguments), calls=3, backend=backend)
    assert not seen.breaks and not seen.fallbacks


class Late:
    def __init__(self, *parts):
        self.parts = parts


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_classes_registered_between_calls(backend):
    def arguments(number):
        if number == 2:
            optree.register_pytree_node(Late, lambda late: (late.parts, None), lambda _, parts: Late(*parts),
                                        namespace="late")
        if number == 4:  # the same class, other functions
            optree.unregister_pytree_node(Late, namespace="late")
            optree.register_pytree_node(Late, lambda late: (late.parts[:1], None), lambda _, parts: Late(*parts),
                                        namespace="late")
        if number == 6:
            optree.unregister_pytree_node(Late, namespace="late")
        return (torch.arange(3.0) + number,)

    def program(x):
        return len(optree.tree_leaves([Late(x, x), x], namespace="late")), x * 2
    seen = compare(lambda: World(program, arguments), calls=8, backend=backend)
    assert not seen.breaks and seen.captures[1::2] == [0, 0, 0, 0]


def test_the_order_of_dicts():
    def program(x):
        return [leaf * 2 for leaf in optree.tree_leaves({"b": x, "a": x + 1}, namespace="ordered")]
    compiled, x = stator.compile(program, backend="eager", fullgraph=True), torch.arange(3.0)
    for ordered in (False, True, False):
        with optree.dict_insertion_ordered(ordered, namespace="ordered"):
            assert [part.tolist() for part in compiled(x)] == [part.tolist() for part in program(x)]
