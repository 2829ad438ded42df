"""Whether a sparse tensor is coalesced: of an input a guarded fact, of others a break; never what its fake says."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import stator
from stator import events


def sparse(is_coalesced: bool) -> torch.Tensor:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = torch.sparse_coo_tensor(torch.tensor([[1, 1]]), torch.tensor([1.0, 1.0]), requires_grad=True)
    return made.detach().coalesce().requires_grad_() if is_coalesced else made


def asked(x: torch.Tensor) -> Any:
    return x.coalesce(), x.is_coalesced(), x.coalesce() is x


def computed(x: torch.Tensor) -> Any:
    y = x * 2
    return y.coalesce(), y.is_coalesced()


def written(x: torch.Tensor) -> Any:
    x = x.detach()
    x.mul_(3)
    return x.is_coalesced(), x.coalesce()


def dense_gradient(x: torch.Tensor) -> Any:
    return x * 2, x.grad


def portrait(values: Any) -> Any:
    return [(value.to_dense().tolist(), value.is_sparse and (value.is_coalesced(), value._nnz()))
            if isinstance(value, torch.Tensor) else value for value in values]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [asked, computed, written, dense_gradient])
def test_coalesced(program: Any, backend: str) -> None:
    for order in ((False, True, False), (True, False, True)):
        compiled = stator.compile(program, backend=backend, options={"strict": True})
        for is_coalesced in order:
            found = []
            for run in (program, compiled):
                x = sparse(is_coalesced)
                if program is dense_gradient:
                    (x.to_dense() * 2).sum().backward()
                    (x * 2).sum().backward()
                found.append(portrait(run(x)))
            assert found[0] == found[1]


def dense_only(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
    """A backend that knows strided memory alone, as Inductor does."""
    if any(isinstance(each, torch.Tensor) and each.layout is not torch.strided for each in example_inputs):
        raise NotImplementedError("no storage")
    return gm.forward


def times(s: torch.Tensor, d: torch.Tensor) -> Any:
    e = d * 3 + 1
    return torch.sparse.mm(s, e) + 1, e


def test_a_backend_that_takes_no_sparse_tensors_gets_the_rest() -> None:
    compiled = stator.compile(times, backend=dense_only)
    with events.record() as log:
        for number in (1.0, 2.0):
            s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 0]]), torch.tensor([number, 2.0]), (2, 2))
            assert portrait(compiled(s, torch.ones(2, 2))) == portrait(times(s, torch.ones(2, 2)))
    assert any(isinstance(event, events.BackendCompiled) for event in log), "what is dense is compiled"


def test_what_fails_for_another_reason_is_raised() -> None:
    def failing(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        seen.append(1)
        raise NotImplementedError("no storage")

    seen: list[int] = []
    with pytest.raises(stator.BackendError, match="no storage"):
        stator.compile(lambda x: x * 2, backend=failing)(torch.ones(2))
    assert len(seen) == 1, "without sparse inputs there is nothing to leave out"


BASE = torch.tensor([[1.5, 0.0, -2.0, 0.0], [0.0, 3.0, 0.0, 0.5]])
COMPRESSED: list[Any] = [
    lambda a, x: a @ x,
    lambda a, x: torch.sparse.mm(a, x) + 1,
    lambda a, x: (a * 2 + a, x.relu()),
    lambda a, x: a.t().to_dense() @ a.to_dense(),
    lambda a, x: (a.mul_(3), a @ x, a.layout, a.is_sparse_csr, a.shape),
    lambda a, x: a.to_sparse_coo() @ x,
    lambda a, x: (a.values() * 2, x + a._nnz()),  # a fake has none: a break
    lambda a, x: (-a.detach()) @ x,
    lambda a, x: (a[0] * 2, x.sin()),  # the rule for fakes refuses it
]


def in_parts(value: Any) -> Any:
    if isinstance(value, (tuple, list)):
        return [in_parts(each) for each in value]
    if isinstance(value, torch.Tensor):
        return value.layout, value.dtype, value.requires_grad, value.to_dense().tolist()
    return value


def with_gradients(fn: Any, a: torch.Tensor, x: torch.Tensor) -> Any:
    try:
        out = fn(a, x)
        for each in out if isinstance(out, tuple) else (out,):
            if isinstance(each, torch.Tensor) and each.layout is torch.strided and each.requires_grad:
                each.pow(2).sum().backward(retain_graph=True)
    except RuntimeError as error:  # of a layout that the operation does not take
        return str(error)
    return in_parts([out, a, a.grad, x.grad])


@pytest.mark.parametrize("layout", [torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("requires_grad", [(False, False), (True, True), (False, True)])
def test_compressed_layouts(layout: torch.layout, backend: str, requires_grad: tuple[bool, bool]) -> None:
    block = (1, 2) if layout is torch.sparse_bsr else None
    for program in COMPRESSED:
        if requires_grad[0] and program is COMPRESSED[4]:
            continue  # a write to a leaf
        compiled = stator.compile(program, backend=backend, options={"strict": True})
        for factor in (1.0, 2.0):
            found = []
            for run in (program, compiled):
                a = (BASE * factor).to_sparse(layout=layout, blocksize=block).requires_grad_(requires_grad[0])
                x = torch.arange(8.0).view(4, 2).requires_grad_(requires_grad[1])
                found.append(with_gradients(run, a, x))
            assert found[0] == found[1]


def test_a_product_with_a_csr_tensor_is_whole() -> None:
    a, x = BASE.to_sparse_csr(), torch.ones(4, 2)
    assert torch.equal(stator.compile(COMPRESSED[0], backend="eager", fullgraph=True)(a, x), a @ x)
    with torch.no_grad():
        assert torch.equal(stator.compile(COMPRESSED[0], backend="aot_eager", fullgraph=True)(a, x), a @ x)


INDICES = torch.tensor([[0, 0, 1], [0, 2, 1]])
WITH_HISTORY: list[Any] = [
    lambda a, x: a.coalesce().to_dense() * 2,
    lambda a, x: (a * 2 + a).to_dense(),
    lambda a, x: torch.sparse.softmax(a, 1).to_dense(),
    lambda a, x: (x.to_sparse() * 2).to_dense(),
    lambda a, x: torch.sparse_coo_tensor(INDICES, x.flatten()[:3], (2, 4)).coalesce().to_dense(),
    lambda a, x: torch.sparse.sum(a, 0).to_dense() + x.sum(),
    lambda a, x: a @ x,
]


@pytest.mark.parametrize("is_leaf", [True, False])
@pytest.mark.parametrize("program", WITH_HISTORY)
def test_gradients_of_sparse_tensors_reach_their_leaves(program: Any, is_leaf: bool) -> None:
    """AOTAutograd takes sparse tensors, and loses the history of what some operations make of them."""
    found = []
    for run in (program, stator.compile(program, backend="aot_eager", options={"strict": True})):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            a = torch.sparse_coo_tensor(INDICES, torch.tensor([1.0, 2.0, 3.0]), (2, 4), requires_grad=True)
        x = torch.arange(1.0, 9.0).view(4, 2).requires_grad_()
        found.append((with_gradients(run, a if is_leaf else a * 1, x), in_parts(a.grad)))
    assert found[0] == found[1]
