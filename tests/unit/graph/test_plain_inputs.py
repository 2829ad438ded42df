"""Fakes of plain inputs equal those of torch's converter, and inputs that share memory are never given two storages."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

import stator
from stator.capture import trace
from stator.graph.metadata.input_layouts import PlainInputs
from stator.graph.metadata.propagation import Fakes

PLAIN = [torch.ones(3, 4), torch.nn.Parameter(torch.ones(5)), torch.ones(2, 2, dtype=torch.float64).requires_grad_(),
         torch.arange(6)]


@pytest.mark.parametrize("tensor", PLAIN, ids=range(len(PLAIN)))
def test_equal_to_the_converter(tensor: torch.Tensor) -> None:
    inputs = PlainInputs(Fakes(FakeTensorMode()))
    inputs.fake(torch.ones(1), True)  # the first is the constructor's own, the next are made after it
    ours = inputs.fake(tensor, True)
    theirs = FakeTensorMode().from_tensor(tensor, static_shapes=True)
    for name in ("shape", "dtype", "device", "requires_grad", "is_leaf", "layout"):
        assert getattr(ours, name) == getattr(theirs, name)
    assert ours.stride() == theirs.stride() and ours.storage_offset() == theirs.storage_offset()
    assert isinstance(ours, torch.nn.Parameter) == isinstance(theirs, torch.nn.Parameter)
    made = FakeTensorMode()
    with made:
        own = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, requires_grad=tensor.requires_grad)
    differing = {"fake_mode"} | ({"_is_param"} if isinstance(tensor, torch.nn.Parameter) else set())
    assert {k: v for k, v in vars(ours).items() if k not in differing} == \
        {k: v for k, v in vars(own).items() if k not in differing}
    assert torch._C._dispatch_keys(ours) == torch._C._dispatch_keys(own)
    strict = FakeTensorMode()
    strict._allow_unsafe_data_ptr_access = False
    fakes = Fakes(strict)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="data pointer"):
            fakes.make((2,), (1,), torch.float32, torch.device("cpu"), False).data_ptr()


@pytest.mark.parametrize("tensor", [torch.ones(4)[1:], torch.ones(4, 4).t(), torch.tensor(1.0), torch.ones(2).expand(3, 2),
                                    (torch.ones(2).requires_grad_() * 2)], ids=range(5))
def test_left_to_the_converter(tensor: torch.Tensor) -> None:
    assert PlainInputs(Fakes(FakeTensorMode())).fake(tensor, True) is None


@pytest.mark.parametrize("second", [lambda t: t.detach(), lambda t: t[1:], lambda t: t.view(2, 2), lambda t: t.data])
def test_inputs_on_one_memory_have_fakes_on_one_memory(second: Any) -> None:
    whole, mode = torch.ones(4), FakeTensorMode()
    inputs = PlainInputs(Fakes(mode))
    first, other = inputs.fake(whole, True), second(whole)
    assert first is not None and inputs.fake(other, True) is None
    fake, exact = mode.from_tensor(other, static_shapes=True), FakeTensorMode()
    exact.from_tensor(whole, static_shapes=True)
    expected = exact.from_tensor(other, static_shapes=True)
    assert fake.untyped_storage()._cdata == first.untyped_storage()._cdata and mode.from_tensor(whole) is first
    for name in ("shape", "dtype", "device", "requires_grad", "is_leaf"):
        assert getattr(fake, name) == getattr(expected, name)
    assert fake.stride() == expected.stride() and fake.storage_offset() == expected.storage_offset()
    assert fake._is_view() == expected._is_view()
    assert inputs.fake(whole.detach(), True) is None


def test_inputs_on_one_memory_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[bool] = []
    once = trace.trace_once

    def counted(*args: Any, **kwargs: Any) -> Any:
        traces.append(kwargs["exact"])
        return once(*args, **kwargs)

    monkeypatch.setattr(trace, "trace_once", counted)

    def program(a: Any, b: Any) -> Any:
        c = torch.relu(a).view(-1, 2) + 1
        return a.mul_(2), c, b + 1

    for pair in (lambda t: (t, t[:2]), lambda t: (t[:2], t), lambda t: (t, t.detach())):
        compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
        found, expected = compiled(*pair(torch.arange(4.0))), program(*pair(torch.arange(4.0)))
        assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert traces == [False] * 3


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_change_is_seen_through_the_other_input(backend: str) -> None:
    def program(a: Any, b: Any) -> Any:
        a.add_(1)
        return b * 2

    compiled = stator.compile(program, backend=backend, fullgraph=True, options={"strict": True})
    for make in (lambda t: (t, t.detach()), lambda t: (t, t.view(2, 2)), lambda t: (t, t.clone())):
        assert torch.equal(compiled(*make(torch.ones(4))), program(*make(torch.ones(4))))


def test_sizes_that_depend_on_data_are_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    traces: list[bool] = []
    once = trace.trace_once
    monkeypatch.setattr(trace, "trace_once", lambda *args, **kwargs: (traces.append(kwargs["exact"]), once(*args, **kwargs))[1])

    def program(x: Any) -> Any:
        y = torch.relu(x) * 2  # a remembered layout, whose storage is none of x's
        return y[y > 1] + 1

    compiled = stator.compile(program, backend="eager", fullgraph=True, options={"strict": True})
    for seed in range(3):
        x = torch.randn(4, 5, generator=torch.Generator().manual_seed(seed))
        assert torch.equal(compiled(x), program(x))
    assert traces == [False]
