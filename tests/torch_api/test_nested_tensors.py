"""Jagged nested tensors: as inputs, intermediates and results, with the ragged sizes that eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.testing._internal.two_tensor import TwoTensor

import stator
from stator import events

pytestmark = pytest.mark.filterwarnings("ignore")


def rows(*lengths: int, width: int = 4) -> list[torch.Tensor]:
    return [torch.arange(n * width * 1.0).reshape(n, width) / 7 - i for i, n in enumerate(lengths)]


def jagged(*lengths: int, width: int = 4, grad: bool = False) -> Any:
    return torch.nested.nested_tensor(rows(*lengths, width=width), layout=torch.jagged, requires_grad=grad)


def with_lengths() -> Any:
    table = torch.arange(45.0).reshape(3, 5, 3)
    return torch.nested.narrow(table, 1, torch.tensor([1, 0, 2]), torch.tensor([2, 4, 3]), layout=torch.jagged)


def facts(value: Any, given: list[Any]) -> Any:
    """A result: its numbers, and by the place in `given` the tensor that its ragged size belongs to."""
    if isinstance(value, (tuple, list)) and type(value) is not torch.Size:
        return [facts(each, given) for each in value]
    if isinstance(value, torch.Size):
        return [facts(each, given) for each in value]
    if isinstance(value, torch.SymInt):
        return value.node.nested_int_coeff(), [i for i, each in enumerate(given) if same_size(each, value)]
    if not isinstance(value, torch.Tensor) or not value.is_nested:
        return (value.tolist(), value.dtype, value.requires_grad) if isinstance(value, torch.Tensor) else value
    owner = value._offsets if value._lengths is None else value._lengths
    owners = [i for i, each in enumerate(given) if isinstance(each, torch.Tensor)
              and (owner is each or each.is_nested and (owner is each._offsets or owner is each._lengths))]
    parts = [value._values, value._offsets, value._lengths]
    return (type(value), owners, [facts(each, given) for each in parts], value.stride()[1:] if not owners else [],
            value._ragged_idx, value.requires_grad, {key: len(each) for key, each in value._metadata_cache.items()})


def same_size(tensor: Any, size: torch.SymInt) -> bool:
    return isinstance(tensor, torch.Tensor) and tensor.is_nested \
        and size.node.nested_int() == tensor.size(tensor._ragged_idx).node.nested_int()


def halves(n: Any) -> Any:
    return n.chunk(2, -1), n[..., 0:2]


def attended(n: Any) -> Any:
    q = n.view(n.size(0), n.size(1), 2, 2)
    return torch.softmax(q, -1), q.size(1), n.unsqueeze(-1)


def changed_inside(n: Any) -> Any:
    x = n.clone()
    x.mul_(2)
    x.values().add_(1)
    return x


def metadata(n: Any) -> Any:
    return n.size(), n.dim(), n.size(0), n.numel(), n.is_nested, n.layout is torch.jagged, n.is_contiguous(), \
        n._max_seqlen, n._min_seqlen, n._ragged_idx, n.lengths(), n.device


def ragged_sizes(n: Any) -> Any:
    return n.shape, n.size(1), n.size(1) * 3, n.size(1) == n.size(1), n.shape != n.shape


PROGRAMS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda n: (n * 2, n.sin() + n, torch.where(n > 0, n, -n), n.to(torch.float64)),
    "sums": lambda n: (n.sum(), n.sum(dim=1), n.mean(dim=-1, keepdim=True)),
    "linear": lambda n: (F.linear(n, torch.ones(3, 4)).relu(), n @ torch.ones(4, 2), F.layer_norm(n, (4,))),
    "parts": lambda n: (n.values() + 1, n.offsets(), n._values),
    "padded": lambda n: (torch.nested.to_padded_tensor(n, 0.0), n.to_padded_tensor(1.0).sum()),
    "views": attended,
    "transposed": lambda n: (n.transpose(1, 2) * 2).transpose(1, 2),
    "halves": halves,
    "like": lambda n: (torch.zeros_like(n), n.detach(), n.clone(), n.contiguous()),
    "made of parts": lambda n: torch.nested.nested_tensor_from_jagged(n.values() * 2, n.offsets()) + n,
    "broadcast": lambda n: (n + torch.ones(4), n * torch.ones(n.size(0), 1, 4), torch.cat([n, n], -1)),
    "changed inside": changed_inside,
    "metadata": metadata,
    "unbound": lambda n: [row * 2 for row in n.unbind()],
    "ragged sizes": ragged_sizes,
}
MAKING: dict[str, tuple[Callable[..., Any], Callable[[int], Any]]] = {
    "from a list": (lambda a, b: torch.nested.nested_tensor([a, b], layout=torch.jagged) * 2,
                    lambda i: rows(2 + i, 4)),
    "as nested": (lambda a, b: torch.nested.as_nested_tensor([a.sin(), b], layout=torch.jagged) + 1,
                  lambda i: rows(2 + i, 4)),
    "from offsets": (lambda v, o: torch.nested.nested_tensor_from_jagged(v, o) + 1,
                     lambda i: [torch.ones(6 + i, 3), torch.tensor([0, 2, 6 + i])]),
    "narrow": (lambda t, s, n: torch.nested.narrow(t, 1, s, n, layout=torch.jagged) * 2,
               lambda i: [torch.ones(2, 5, 3), torch.tensor([1, 0]), torch.tensor([2, 3 + i])]),
    "masked_select": (lambda t, m: torch.nested.masked_select(t, m),
                      lambda i: [torch.ones(2, 5), torch.arange(10).reshape(2, 5) > i]),
}
BACKENDS = ["eager", "aot_eager"]


def as_eager(program: Callable[..., Any], calls: list[list[Any]], backend: str, captures: int) -> None:
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    with events.record() as log:
        for given in calls:
            assert facts(compiled(*given), given) == facts(program(*given), given)
    assert sum(isinstance(event, events.CaptureFinished) for event in log) == captures
    assert not [event for event in log if isinstance(event, (events.EagerFallback, events.InternalFailure))]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str, backend: str) -> None:
    """Two batch sizes: the second capture leaves them open, and the others find it."""
    calls = [[jagged(2, 4)], [jagged(3, 5, 6)], [jagged(7, 2, 3, 3)], [jagged(2, 5)]]
    as_eager(PROGRAMS[name], calls, backend, 3 if name == "unbound" else 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MAKING)
def test_made_inside(name: str, backend: str) -> None:
    program, make = MAKING[name]
    as_eager(program, [make(0)], backend, 1)
    as_eager(program, [make(0), make(1)], backend, 1 if name == "masked_select" else 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_lengths(backend: str) -> None:
    as_eager(lambda n: (n * 2, n.lengths(), n.offsets()), [[with_lengths()], [with_lengths()]], backend, 1)


def added(a: Any, b: Any) -> Any:
    return a + b if a.shape == b.shape else (a * 2, b)


def joined(n: Any, values: torch.Tensor, offsets: torch.Tensor) -> Any:
    made = torch.nested.nested_tensor_from_jagged(values, offsets)
    return made, made + n if made.shape == n.shape else n * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_which_sizes_are_one(backend: str) -> None:
    """Jagged tensors with one tensor of offsets have one ragged size; equal offsets are not enough."""
    a, b = jagged(2, 4), jagged(3, 5)
    as_eager(added, [[a, a * 2], [b, b.sin()], [a, b], [b, a], [a, jagged(2, 4)], [a, a]], backend, 2)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("first", [0, 1])
def test_offsets_beside_a_jagged_tensor(first: int, backend: str) -> None:
    order = (lambda n, v, o: joined(n, v, o)) if not first else (lambda o, v, n: (o + 1, joined(n, v, o)))
    a, b = jagged(2, 4), jagged(3, 5)
    calls = [[n, torch.ones(n.values().shape[0], 4), o] for n, o in (
        (a, a.offsets()), (b, b.offsets()), (a, a.offsets().clone()), (b, b.offsets().clone()), (b, b.offsets()))]
    compiled = stator.compile(order, backend=backend, fullgraph=True)
    for call in calls:
        given = call[::-1] if first else call
        assert facts(compiled(*given), given) == facts(order(*given), given)


def test_an_inner_tensor_beside_its_wrapper() -> None:
    """Which argument is an inner tensor of another one is a fact."""
    def program(wrapper: Any, part: torch.Tensor) -> Any:
        return (wrapper * 2).b, part * 3

    pair = TwoTensor(torch.ones(3), torch.ones(3) * 2)
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    for part in (pair.a, torch.ones(3) * 7, pair.b, pair.a):
        assert facts(compiled(pair, part), []) == facts(program(pair, part), [])


GRADIENTS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda n, leaf, w: (n * 2).sin() * n,
    "linear": lambda n, leaf, w: F.linear(n, w).relu(),
    "leaf": lambda n, leaf, w: (leaf * 2).cos() @ w,
    "softmax": lambda n, leaf, w: torch.softmax(n @ w, -1) * n,
    "parts": lambda n, leaf, w: (leaf * 2).values().sum() + n.values().sum() * 3,
    "rebuilt": lambda n, leaf, w: torch.nested.nested_tensor_from_jagged(n.values() * 2, n.offsets()) + n,
    "padded": lambda n, leaf, w: torch.nested.to_padded_tensor(n, 0.0) @ w,
    "made inside": lambda n, leaf, w: torch.nested.as_nested_tensor([w[:2] * 2, w[:3]], layout=torch.jagged).sin(),
    "norm": lambda n, leaf, w: F.layer_norm(leaf, (4,), w[0], w[1]),
    "in place": lambda n, leaf, w: n.clone().mul_(w[0]),
}


def gradients(function: Callable[..., Any], lengths: tuple[int, ...]) -> Any:
    parts = [row.requires_grad_() for row in rows(*lengths)]
    leaf, w = jagged(*lengths, grad=True), torch.arange(16.0).reshape(4, 4).div(8).requires_grad_()
    nested = torch.nested.as_nested_tensor(parts, layout=torch.jagged)
    given = [nested, leaf, w]
    made = function(*given)
    (made.values() if made.is_nested else made).sum().mul(2).backward()
    return facts([made, *[each.grad for each in (*parts, leaf, w)]], given)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", GRADIENTS)
def test_gradients(name: str, backend: str) -> None:
    program = GRADIENTS[name]
    compiled = stator.compile(program, backend=backend, fullgraph=True)
    for lengths in ((2, 4), (3, 5, 6), (2, 2, 2, 7)):
        assert facts_close(gradients(compiled, lengths), gradients(program, lengths))


def facts_close(one: Any, other: Any) -> bool:
    if isinstance(one, float):
        return one == pytest.approx(other, rel=1e-5, abs=1e-6)
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(facts_close, one, other))
    return bool(one == other)


def test_ragged_size_is_no_number() -> None:
    """Text and arithmetic of a ragged size are left to eager: a break, and the same result."""
    def program(n: Any) -> Any:
        return n * 2, len(str(n.shape)) > 3, n.shape

    compiled = stator.compile(program, backend="eager")
    for given in ([jagged(2, 4)], [jagged(3, 5)]):
        assert facts(compiled(*given), given) == facts(program(*given), given)
    with pytest.raises(stator.Unsupported, match="ragged size"):
        stator.compile(program, backend="eager", fullgraph=True)(jagged(2, 4))


@pytest.mark.parametrize("backend", BACKENDS)
def test_written_inputs(backend: str) -> None:
    def program(n: Any) -> Any:
        n.mul_(2)
        return n + 1

    compiled = stator.compile(program, backend=backend)
    for lengths in ((2, 4), (3, 5, 6)):
        one, other = jagged(*lengths), jagged(*lengths)
        assert facts(compiled(one), [one]) == facts(program(other), [other])
        assert facts(one, [one]) == facts(other, [other])
