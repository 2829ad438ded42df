"""Tensor computations are leaves; settings, autograd calls, classes and bookkeeping are not."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import fx

import stator
from stator.native.rows_declare import ROWS
from stator.native.table import name_of
from stator.native.torch_ops import draws_inside, leaves, torch_leaf

Tensor = torch.Tensor
LEAVES = [
    torch.add, torch.cat, torch.einsum, torch.zeros, torch.arange, torch.rand, torch.tensor, torch.full,
    torch.as_tensor, torch._VF.lstm, torch._foreach_add, torch.linalg.norm, torch.fft.fft, torch.special.erf,
    torch._C._nn.gelu, F.layer_norm, F.relu, F.linear, F.gelu, F.dropout, F.cross_entropy, F.interpolate,
    F.scaled_dot_product_attention, Tensor.add, Tensor.add_, Tensor.__add__, Tensor.__radd__, Tensor.__neg__,
    Tensor.__rsub__, Tensor.__getitem__, Tensor.__setitem__, Tensor.split, Tensor.to, Tensor.view, Tensor.detach,
    Tensor.item, Tensor.__bool__, Tensor.T, Tensor.real, Tensor.data, Tensor.size, Tensor.shape, Tensor.dtype,
    torch.ops.aten.add, torch.ops.aten.add.Tensor, torch.is_floating_point, Tensor.__len__,
]  # fmt: skip
NOT_LEAVES = [
    torch.is_grad_enabled, torch.set_grad_enabled, torch.get_default_dtype, torch.manual_seed, torch.is_tensor,
    torch.promote_types, torch.result_type, torch.can_cast, torch.from_numpy, torch.autocast, torch.nn.Linear,
    torch.Tensor, torch.nn.Parameter, torch.device, torch.Size, torch.sym_int, torch.no_grad, torch.compile,
    Tensor.backward, Tensor.register_hook, Tensor.requires_grad, Tensor.requires_grad_, Tensor.grad, Tensor.grad_fn,
    Tensor.numpy, Tensor.tolist, Tensor.data_ptr, Tensor.__repr__, Tensor.__deepcopy__, Tensor.__iter__,
    Tensor.__hash__, torch.autograd.grad, len, None,
]  # fmt: skip


def name_it(function: object) -> str:
    return getattr(function, "__qualname__", str(function))


@pytest.mark.parametrize("leaf", LEAVES, ids=name_it)
def test_tensor_computations_are_leaves(leaf: object):
    assert torch_leaf(leaf)


@pytest.mark.parametrize("other", NOT_LEAVES, ids=name_it)
def test_other_callables_are_not(other: object):
    assert not torch_leaf(other)


def test_nothing_is_both_a_leaf_and_a_row():
    assert [name_of(row) for row in ROWS.values() if torch_leaf(row.obj)] == []


def test_there_are_many_leaves_and_none_is_a_class():
    assert len(leaves()) > 1500
    assert not any(isinstance(leaf, type) for leaf in leaves())


DRAWS = {
    "multinomial.out": lambda x: torch.ops.aten.multinomial.out(torch.full((3,), 0.5), 2, out=x),
    "binomial": lambda x: x.copy_(torch.binomial(torch.full((2,), 9.0), torch.full((2,), 0.5))),
    "bernoulli_.float": lambda x: torch.ops.aten.bernoulli_.float(x, 0.5),
    "gamma": lambda x: x.copy_(torch._standard_gamma(torch.full((2,), 9.0)) * 100),
    "native_dropout": lambda x: x.copy_(torch.native_dropout(torch.full((2,), 9.0), 0.5, True)[0]),
}


@pytest.mark.parametrize("name", DRAWS)
def test_a_failed_graph_is_repeated_with_the_same_random_numbers(name: str) -> None:
    draw, beyond = DRAWS[name], torch.tensor([99])

    def program(x: torch.Tensor) -> torch.Tensor:
        draw(x)
        return torch.ones(3)[beyond]

    found = []
    for subject in (program, stator.compile(program, backend="eager")):
        x = torch.zeros(2, dtype=torch.int64)
        torch.manual_seed(4)
        with pytest.raises(IndexError):
            subject(x)
        found.append((x.tolist(), torch.rand(1).item()))
    assert found[0] == found[1]


def test_names_of_inputs_draw_no_random_numbers():
    graph = fx.Graph()
    drawn = graph.placeholder("dropout")
    graph.output(graph.call_function(torch.relu, (drawn,)))
    assert not draws_inside(fx.GraphModule({}, graph))
    graph.erase_node(graph.output_node())
    graph.output(graph.call_function(F.dropout, (drawn,)))
    assert draws_inside(fx.GraphModule({}, graph))
