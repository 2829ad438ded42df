"""shapes_spec of torch.compile: dimensions declared in torch's words, here and under install()."""

from __future__ import annotations

import pytest
import torch
from counting import shape_texts

import stator
import stator.errors

words = pytest.importorskip("torch.fx.experimental.dynamic_spec")
IntVar, ShapeVar, TensorSpec = words.IntVar, words.ShapeVar, words.TensorSpec


def compiled(fn, spec, **settings):
    return stator.compile(fn, backend="eager", fullgraph=True, options={"strict": True}, shapes_spec=spec, **settings)


def program(x, n, *rest, **named):
    out = x.sum(0) * n
    for each in (*rest, *named.values()):
        out = out + each.sum()
    return out


def arguments(rows, n=2, length=None, width=2, named=None):
    length = 2 * rows + 1 if length is None else length
    return (torch.randn(rows, 3), n, torch.randn(length)), {"mask": torch.randn(rows if named is None else named, width)}


def specified():
    rows = ShapeVar("rows", max=64)
    return compiled(program, words.ParamsSpec({
        "x": TensorSpec([rows, 3]), "n": IntVar("n", min=-5), "*args": [TensorSpec([rows * 2 + 1])],
        "**kwargs": {"mask": TensorSpec([rows, words.STATIC])}}))


def test_declared_sizes_are_symbols_and_all_others_constants():
    fn = specified()
    for rows, n in ((4, 2), (6, -3), (9, 8), (2, 0)):
        args, kwargs = arguments(rows, n)
        assert torch.equal(fn(*args, **kwargs), program(*args, **kwargs))
    assert len(fn.entries()) == 1 and "x.size(0) <= 64" in shape_texts(fn)
    for width in (3, 4, 5):
        args, kwargs = arguments(4, width=width)
        assert torch.equal(fn(*args, **kwargs), program(*args, **kwargs))
    assert len(fn.entries()) == 4


@pytest.mark.parametrize("given, text", [
    ({"rows": 65}, r"x.size\(0\) is 65 in this call, and is declared as 'rows' \(\.\.64\)"),
    ({"rows": 4, "n": -6}, r"n is -6 in this call, and is declared as 'n' \(-5\.\.\)"),
    ({"rows": 4, "length": 8}, r"\*args\[0\].size\(0\) == 2\*rows \+ 1 is declared, and does not hold .* is 8, x.size\(0\) is 4"),
    ({"rows": 4, "named": 5}, r"\*\*kwargs\['mask'\].size\(0\) is 5 and x.size\(0\) is 4"),
])  # fmt: skip
def test_a_call_that_disagrees_raises_at_the_first_call_and_later(given, text):
    args, kwargs = arguments(**given)
    fn = specified()
    for _ in range(2):
        with pytest.raises(stator.errors.DeclarationError, match=text):
            fn(*args, **kwargs)
        good, names = arguments(4)
        fn(*good, **names)


def test_constants_and_ranks_are_checked():
    fn = specified()
    with pytest.raises(stator.errors.DeclarationError, match=r"x.size\(1\) is 2 in this call, and is declared as 3"):
        fn(torch.ones(4, 2), 2, torch.ones(9))
    with pytest.raises(stator.errors.DeclarationError, match="x has 3 dimensions in this call, and is declared with 2"):
        fn(torch.ones(4, 3, 1), 2, torch.ones(9))


def test_assumptions_are_guards():
    a, b = ShapeVar("a"), ShapeVar("b")
    spec = words.ShapesSpec({"x": TensorSpec([a]), "y": TensorSpec([b])}, assumptions=[a + b > 5, b * 2 >= a])
    fn = compiled(lambda x, y: x.sum() + y.sum(), spec)
    for sizes in ((4, 5), (6, 3), (2, 9)):
        fn(torch.ones(sizes[0]), torch.ones(sizes[1]))
    assert len(fn.entries()) == 1
    with pytest.raises(stator.errors.DeclarationError, match=r"a <= 2\*b is declared, and does not hold .* y.size\(0\) is 3"):
        fn(torch.ones(7), torch.ones(3))
    with pytest.raises(stator.errors.DeclarationError, match=r"a \+ b > 5"):
        fn(torch.ones(3), torch.ones(2))


def test_sizes_that_are_assumed_to_be_equal_are_one():
    a, b = ShapeVar("a", min=3), ShapeVar("b", max=9)
    spec = words.ShapesSpec({"x": TensorSpec([a]), "y": TensorSpec([b])}, assumptions=[a == b])
    fn = compiled(lambda x, y: x + y, spec)
    for size in (3, 5, 9):
        assert torch.equal(fn(torch.ones(size), torch.ones(size)), torch.full((size,), 2.0))
    assert len(fn.entries()) == 1
    for sizes in ((4, 1), (2, 2), (10, 10)):
        with pytest.raises(stator.errors.DeclarationError):
            fn(*map(torch.ones, sizes))


class Net(torch.nn.Module):
    def forward(self, batch, items, *rest, scale=None, **named):
        return batch["x"].sum() + items[0].sum() + rest[0].sum() + named["z"].sum() + scale


def test_parts_of_arguments_and_arguments_of_a_module():
    spec = {"batch": words.DictSpec({"x": TensorSpec([ShapeVar("n"), None])}),
            "items": words.SeqSpec([TensorSpec([ShapeVar("n", max=20)])]), "*args": [TensorSpec([ShapeVar()])],
            "**kwargs": {"z": TensorSpec([ShapeVar()])}, "scale": IntVar("scale")}  # four sizes, though names are equal
    fn = compiled(Net(), spec)
    for n in (3, 5, 8):
        args, named = ({"x": torch.ones(n, 2)}, [torch.ones(n + 1)], torch.ones(n + 2)), {"scale": n, "z": torch.ones(n + 3)}
        assert torch.equal(fn(*args, **named), Net()(*args, **named))
    assert len(fn._stator_entry.entries()) == 1
    with pytest.raises(stator.errors.DeclarationError, match=r"items\[0\].size\(0\) is 21 in this call, and is declared as 'n#2'"):
        fn({"x": torch.ones(3, 2)}, [torch.ones(21)], torch.ones(2), scale=1, z=torch.ones(5))


class Box:
    def __init__(self, weight):
        self.weight = weight


def test_attributes_of_arguments():
    fn = compiled(lambda box: box.weight * 2, {"box": words.ObjectSpec({"weight": TensorSpec([ShapeVar("n", max=9)])})})
    for size in (3, 4, 9):
        assert torch.equal(fn(Box(torch.ones(size))), torch.full((size,), 2.0))
    assert len(fn.entries()) == 1
    with pytest.raises(stator.errors.DeclarationError, match=r"box.weight.size\(0\) is 10"):
        fn(Box(torch.ones(10)))


def test_a_break_leaves_later_sizes_to_change():
    def breaks(x):
        x = x * 2
        stator.graph_break()
        return x + 1

    fn = stator.compile(breaks, backend="eager", shapes_spec={"x": TensorSpec([ShapeVar("n")])})
    for size in (3, 4, 5):
        assert torch.equal(fn(torch.ones(size)), torch.full((size,), 3.0))
    assert len(fn.entries()) == 1


def test_without_declarations_every_size_is_a_constant():
    fn = compiled(lambda x: x * 2, {})
    for size in (3, 4, 5):
        fn(torch.ones(size))
    assert len(fn.entries()) == 3


@pytest.mark.parametrize("settings, text", [
    ({"shapes_spec": 3}, "use a ShapesSpec, a ParamsSpec or a dict"),
    ({"shapes_spec": {}, "dynamic": True}, "dynamic and shapes_spec are both given"),
    ({"shapes_spec": {}, "options": {"shapes": {"x": ["n"]}}}, "are both given"),
    ({"shapes_spec": {"x": TensorSpec([ShapeVar("n") * 2])}}, "uses 'n' in an expression"),
    ({"shapes_spec": {"x": "n"}}, "use a TensorSpec"),
])  # fmt: skip
def test_what_is_not_understood_is_refused_at_once(settings, text):
    with pytest.raises(stator.OptionError, match=text):
        stator.compile(lambda x: x, backend="eager", **settings)


def test_a_declared_name_is_an_argument():
    with pytest.raises(stator.OptionError, match="shapes_spec declares 'z', which is no argument; there are x"):
        compiled(lambda x: x, {"z": TensorSpec([None])})(torch.ones(2))


def test_under_install():
    stator.install()
    try:
        fn = torch.compile(lambda x: x * 2, backend="eager", shapes_spec={"x": TensorSpec([ShapeVar("n", max=4)])})
        for size in (2, 3, 4):
            assert torch.equal(fn(torch.ones(size)), torch.full((size,), 2.0))
        with pytest.raises(stator.errors.DeclarationError):
            fn(torch.ones(5))
    finally:
        stator.uninstall()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_with_a_compiler(backend):
    spec = {"x": TensorSpec([ShapeVar("n", max=9), None])}
    fn = stator.compile(lambda x: x * 2, backend=backend, fullgraph=True, options={"strict": True}, shapes_spec=spec)
    for size in (3, 4, 9):
        assert torch.equal(fn(torch.ones(size, 2)), torch.full((size, 2), 2.0))
    assert len(fn.entries()) == 1
