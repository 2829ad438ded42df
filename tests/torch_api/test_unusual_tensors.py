"""Tensors that are no plain dense ones: captured where torch can trace them, else a break with a code; never wrong."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import stator
from stator import events

pytestmark = pytest.mark.filterwarnings("ignore")


def square() -> torch.Tensor:
    return torch.arange(9.0).reshape(3, 3) - 4


def complex_vector() -> torch.Tensor:
    return torch.tensor([1 + 2j, 3 - 1j, 0.5j])


def jagged() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=torch.jagged)


def quantised() -> torch.Tensor:
    return torch.quantize_per_tensor(square(), 0.1, 0, torch.qint8)


def portrait(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if value.is_nested:
            shown: Any = [portrait(part) for part in value.unbind()]
        elif value.device.type == "meta":
            shown = tuple(value.shape)
        else:
            shown = (value.dequantize() if value.is_quantized else value.to_dense()).tolist()
        strided = value.layout is torch.strided
        return (type(value).__name__, str(value.layout), str(value.dtype), shown, value.requires_grad,
                strided and value.is_conj(), strided and value.is_neg())
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [portrait(item) for item in value]
    return value


def made_sparse(x: Any) -> Any:
    s = torch.sparse_coo_tensor(torch.tensor([[0, 1], [1, 2]]), x[0, :2], (3, 3))
    return s.to_dense(), s, x.to_sparse().to_dense(), x.to_sparse_csr() @ x


CASES: dict[str, tuple[Any, Any, set[str]]] = {
    "coo": (lambda s: (torch.sparse.mm(s, s.to_dense()), s + s, s), lambda: square().to_sparse(), set()),
    "csr": (lambda s: s.to_dense() + 1, lambda: square().to_sparse_csr(), set()),
    "csc": (lambda s: s.to_dense() + 1, lambda: square().to_sparse_csc(), set()),
    "sparse inside": (made_sparse, square, set()),
    "quantised": (lambda q: (q.dequantize() + 1, q.q_scale(), q.int_repr()), quantised, {"SB017"}),
    "quantised inside": (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), square, {"SB017"}),
    "complex": (lambda z: (z * 2, z.real, z.imag, z.abs(), z.conj(), z.conj().imag, torch.view_as_real(z)),
                complex_vector, set()),
    "conjugate view": (lambda z: (z * 2, z.is_conj(), z.imag, z), lambda: complex_vector().conj(), set()),
    "negative view": (lambda z: (z * 2, z.is_neg(), z.resolve_neg(), z), lambda: complex_vector().conj().imag, set()),
    "mkldnn": (lambda x: (x + x).to_dense(), lambda: square().to_mkldnn(), {"SB017"}),
    "mkldnn inside": (lambda x: x.to_mkldnn().to_dense() + 1, square, {"SB017"}),
    "meta": (lambda x: ((x @ x).shape, x + 1), lambda: square().to("meta"), set()),
    "jagged": (lambda n: ((n * 2).values() + 1, n.is_nested, n.offsets()), jagged, set()),
    "jagged inside": (lambda x: torch.nested.as_nested_tensor([x, x[:2]], layout=torch.jagged).values() * 2, square,
                      set()),
    "nested": (lambda n: (n * 2).to_padded_tensor(0.0), lambda: torch.nested.nested_tensor([square(), square()[:2]]),
               {"SB017"}),
    "buffer": (lambda b: (b + 1, isinstance(b, torch.nn.Buffer), isinstance(b, torch.nn.Parameter)),
               lambda: torch.nn.Buffer(square()), set()),
    "no sizes yet": (lambda p: (torch.nn.parameter.is_lazy(p), type(p).__name__),
                     lambda: torch.nn.parameter.UninitializedParameter(), set()),
    "deep copy": (lambda b: copy.deepcopy(b) + 1, square, set()),
}


@pytest.mark.parametrize("name", CASES)
def test_as_eager(name: str) -> None:
    function, make, allowed = CASES[name]
    expected = portrait(function(make()))
    compiled = stator.compile(function, backend="eager")
    with events.record() as log:
        for _ in range(2):
            assert portrait(compiled(make())) == expected
    assert {event.code for event in log if isinstance(event, events.GraphBreak)} <= allowed
    assert not any(isinstance(event, events.EagerFallback) for event in log)


def test_a_lazy_module_is_initialised_by_its_first_call() -> None:
    results = []
    for wrap in (lambda m: m, lambda m: stator.compile(m, backend="eager")):
        torch.manual_seed(0)
        net = torch.nn.LazyLinear(4)
        run = wrap(net)
        results.append((run(square()).tolist(), run(square()).tolist(), type(net).__name__, net.weight.shape))
    assert results[0] == results[1]


def test_attributes_of_tensors_are_written_back() -> None:
    def write(t: Any) -> Any:
        t.tag, t.new = "y", [t.tag]
        t.gone = 1
        del t.gone
        return t * 2, t.tag, hasattr(t, "gone"), t.old

    def once_more(t: Any) -> Any:
        t.old = 2
        del t.old
        return hasattr(t, "old")

    for function in (write, once_more):
        results = []
        for run in (function, stator.compile(function, backend="eager")):
            for tag in ("a", "a", "b"):
                t = square()
                t.tag, t.old = tag, 3
                results.append((portrait(run(t)), dict(vars(t))))
        assert results[:3] == results[3:]


def test_other_libraries_of_tensors_are_not_in_the_way() -> None:
    def use(x: Any) -> Any:
        from torch.distributed.tensor import DTensor
        return isinstance(x, DTensor), x + 1
    assert portrait(stator.compile(use, backend="eager")(square())) == portrait(use(square()))


def test_a_capsule_is_emptied_once() -> None:
    def program(capsule: Any) -> torch.Tensor:
        return torch.asarray(capsule) + 1

    for _ in range(2):
        capsule = torch.utils.dlpack.to_dlpack(torch.ones(2))
        assert torch.equal(stator.compile(program, backend="eager")(capsule), torch.full((2,), 2.0))


def test_schemes_and_sizes_as_arguments() -> None:
    """A quantisation scheme is a constant; the size of a nested tensor, which is no integer, is none."""
    def program(x: torch.Tensor, fact: Any) -> Any:
        return (x + 1 if fact is torch.per_tensor_affine else x - 1), [fact], len(fact) if type(fact) is torch.Size else 0

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    for fact in (torch.per_tensor_affine, torch.per_channel_affine, jagged().shape, square().shape, torch.per_tensor_affine):
        found, expected = compiled(square(), fact), program(square(), fact)
        assert torch.equal(found[0], expected[0]) and found[1:] == expected[1:]


@pytest.mark.parametrize("make,said", [
    (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "a nested tensor"),
], ids=["nested"])
def test_the_cause_names_the_kind(make: Any, said: str) -> None:
    with pytest.raises(stator.Unsupported, match=said):
        stator.compile(lambda x: x * 2, backend="eager", fullgraph=True)(make())
