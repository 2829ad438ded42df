"""options={"shapes": ...}: dimensions declared by name and range, and what happens when a call or program disagrees."""

from __future__ import annotations

import pytest
import torch
from counting import shape_texts

import stator
from stator import Dim


def compiled(fn, shapes, **settings):
    return stator.compile(fn, backend="eager", fullgraph=True, options={"shapes": shapes, "strict": True}, **settings)


def both(x, y):
    return x.sum(1) + y


def test_declared_dimensions_are_open_at_once():
    fn = compiled(both, {"x": {0: "batch", 1: Dim("width", max=64)}, "y": ["batch"]})
    for batch, width in ((4, 3), (5, 3), (9, 64), (2, 17)):
        x, y = torch.ones(batch, width), torch.ones(batch)
        assert torch.equal(fn(x, y), both(x, y))
    assert len(fn.entries()) == 1
    assert "x.size(1) <= 64" in shape_texts(fn)


def test_zero_and_one_are_constants_of_their_own():
    fn = compiled(lambda x: x * 2, {"x": {0: "batch"}})
    for batch in (4, 1, 0, 7, 1):
        assert fn(torch.ones(batch, 2)).shape[0] == batch
    assert len(fn.entries()) == 3


def test_negative_dimensions_and_numbers():
    def program(x, n):
        return x[..., :n] * n

    fn = compiled(program, {"x": {-1: "width"}, "n": Dim("n", min=1, max=8)})
    for width, n in ((9, 3), (12, 4), (30, 8)):
        assert torch.equal(fn(torch.ones(2, width), n), program(torch.ones(2, width), n))
    assert len(fn.entries()) == 1
    with pytest.raises(stator.StatorError, match=r"n is 9 in this call, and is declared as 'n' \(1\.\.8\)"):
        fn(torch.ones(2, 12), 9)


class Net(torch.nn.Module):
    def forward(self, ids, mask=None):
        return ids * 2 if mask is None else ids * mask


def test_arguments_of_a_module_are_those_of_forward():
    fn = compiled(Net(), {"ids": {0: "batch"}, "mask": {0: "batch"}})
    for batch in (3, 4, 5):
        fn(torch.ones(batch, 2))
        fn(torch.ones(batch, 2), mask=torch.ones(batch, 2))
    assert len(fn._stator_entry.entries()) == 2
    with pytest.raises(stator.StatorError, match=r"mask.size\(0\) is 4 and ids.size\(0\) is 3 in this call; both are"):
        fn(torch.ones(3, 2), mask=torch.ones(4, 2))


def test_a_size_out_of_range():
    fn = compiled(lambda x: x + 1, {"x": {0: Dim("batch", min=2, max=8)}})
    fn(torch.ones(4))
    with pytest.raises(stator.StatorError, match=r"x.size\(0\) is 9 in this call, and is declared as 'batch' \(2\.\.8\)"):
        fn(torch.ones(9))


def test_two_sizes_of_one_name():
    fn = compiled(lambda x, y: (x + 1, y + 1), {"x": ["batch"], "y": ["batch"]})
    fn(torch.ones(4), torch.ones(4))
    with pytest.raises(stator.StatorError, match=r"y.size\(0\) is 5 and x.size\(0\) is 4 .* both are declared as 'batch'"):
        fn(torch.ones(4), torch.ones(5))


def pins(x):
    if x.shape[0] == 4:
        return x * 2
    return x


def test_a_program_that_pins_a_declared_size_names_the_values_and_the_line():
    with pytest.raises(stator.StatorError, match=rf"x.size\(0\) is declared as 'batch' and is 4 in this call, but the "
                                                 rf"program needs it to be 4 \(pins at .*test_named.py:"
                                                 rf"{pins.__code__.co_firstlineno + 1}\)"):
        compiled(pins, {"x": ["batch"]})(torch.ones(4))


def test_a_program_that_makes_one_of_two_names():
    fn = compiled(lambda x, y: x + y, {"x": ["rows"], "y": ["columns"]})
    with pytest.raises(stator.StatorError, match=r"declared as 'columns' and x.size\(0\) as 'rows'; they are 4 and 4 .* "
                                                 r"needs them to be equal .*test_named.py"):
        fn(torch.ones(4), torch.ones(4))


@pytest.mark.parametrize("shapes, error, text", [
    ([], TypeError, "dict from argument"),
    ({"x": 3}, TypeError, "dict from dimension"),
    ({"x": {"0": "batch"}}, TypeError, "use an int"),
    ({"x": {0: 5}}, TypeError, "stator.Dim"),
    ({1: {0: "batch"}}, TypeError, "named by str"),
])  # fmt: skip
def test_what_is_not_understood_is_refused_at_once(shapes, error, text):
    with pytest.raises(error, match=text):
        compiled(lambda x: x, shapes)


def test_a_dim_makes_sense():
    with pytest.raises(ValueError, match="holds no size"):
        Dim("batch", min=5, max=3)
    with pytest.raises(ValueError, match="is no argument"):
        compiled(lambda x: x + 1, {"z": ["batch"]})(torch.ones(2))
