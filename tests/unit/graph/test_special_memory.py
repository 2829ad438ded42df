"""Views of nested tensors break; writes to inference tensors are counted, and modules that make them are replayed."""

from __future__ import annotations

from typing import Any

import numpy
import pytest
import torch
from torch import nn

import stator
from stator import events
from stator.graph.record.recorder import Recorder


def pieces() -> torch.Tensor:
    return torch.nested.nested_tensor([torch.arange(3.0), torch.arange(2.0)], layout=torch.strided)


def rebuilt(n: Any) -> Any:
    return [each.sum() for each in torch.nested.as_nested_tensor([each for each in n.unbind()]).unbind()]


@pytest.mark.parametrize("fn", [
    lambda n: [each * 2 for each in n.unbind()], lambda n: n.unbind(0)[1], lambda n: [each + 1 for each in n],
    lambda n: n[0], lambda n: torch.stack([each.sum() for each in torch.unbind(n)]), lambda n: torch.relu(n).unbind()[0],
    lambda n: [a for a, b in zip(n, [1, 2], strict=True)], lambda n: n.clone().unbind()[1], rebuilt,
    lambda n: torch.nested.to_padded_tensor(n, 0.0)])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_parts_of_nested_tensors(fn: Any, backend: str) -> None:
    compiled = stator.compile(fn, backend=backend)
    with events.record() as log:
        for _ in range(2):
            assert str(compiled(pieces())) == str(fn(pieces()))
    assert not [event for event in log if isinstance(event, events.InternalFailure)]


# ---------------------------------------------------------------------- inference tensors


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        features["hidden"] = torch.relu(self.linear(features["hidden"]))
        features.update(length=features["hidden"].shape[1])
        features.setdefault("seen", []).append(len(features))
        return features


class InPlace(nn.Module):
    def forward(self, features: dict[str, Any]) -> dict[str, Any]:
        features["hidden"].mul_(2)
        features["hidden"][0].add_(1)
        return features


def encode(model: Any, features: dict[str, Any]) -> Any:
    with torch.inference_mode():
        return model(features)["hidden"]


def model_of() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Layer(), Layer(), InPlace(), Layer(), InPlace(), Layer()).eval()


def described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.is_inference(), value.requires_grad
    if isinstance(value, dict):
        return {key: described(each) for key, each in value.items()}
    return [described(each) for each in value] if isinstance(value, list | tuple) else repr(value)


@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("made_inside", [False, True])
def test_modules_that_write_to_a_dict(around: bool, made_inside: bool) -> None:
    def run(fn: Any) -> list[Any]:
        model, seen = model_of(), []
        for _ in range(3):
            with torch.inference_mode(made_inside):
                features = {"hidden": torch.ones(2, 4)}
            with torch.inference_mode(around):
                seen.append((described(fn(model, features)), described(features)))
        return seen

    with events.record() as log:
        compiled = run(stator.compile(encode, backend="eager"))
    assert compiled == run(encode)
    assert not [each for each in log if isinstance(each, events.InternalFailure | events.EagerFallback | events.GraphBreak)]


def numpy_face(x: Any) -> Any:
    array = numpy.ones(3)
    tensor = torch.from_numpy(array)
    tensor.add_(x)
    return array, tensor, x.numpy().sum()


def list_of(x: Any) -> Any:
    made = [x * number for number in range(3)]
    made[0].add_(1)
    return made


def view_of(x: Any) -> Any:
    whole = x.clone()
    part = whole[:1]
    part.mul_(5)
    return whole, part


@pytest.mark.parametrize("fn", [numpy_face, list_of, view_of, lambda x: (x.add_(1), x * 2)])
def test_writes_under_inference_mode(fn: Any) -> None:
    def run(call: Any) -> list[Any]:
        seen = []
        for _ in range(2):
            with torch.inference_mode():
                x = torch.arange(3.0)
                seen.append((described(call(x)), described(x)))
        return seen

    with events.record() as log:
        assert run(stator.compile(fn, backend="eager")) == run(fn)
    assert not [event for event in log if isinstance(event, events.InternalFailure)]


def test_is_noticed_without_the_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Recorder, "version_of", lambda self, fake: fake._version)
    with events.record() as log, pytest.warns(RuntimeWarning, match="version counter"):
        stator.compile(encode, backend="eager")(model_of(), {"hidden": torch.ones(2, 4)})
    assert any(isinstance(event, events.InternalFailure) for event in log)


# ---------------------------------------------------------------------- views that autograd refuses


def test_one_of_several_views_of_a_tensor_that_was_written_to() -> None:
    def program(x: Any, log: list[int]) -> Any:
        y = x * 2
        rows = y.unbind()
        stator.graph_break()
        y.add_(1)
        stator.graph_break()
        log.append(len(log))
        return rows[1] * 2

    compiled = stator.compile(program, backend="eager", options={"strict": True})
    endings = []
    for function in (program, compiled, compiled):
        log: list[int] = []
        with pytest.raises(RuntimeError, match="is a view and its base or another view"):
            function(torch.ones(2, 2, requires_grad=True), log)
        endings.append(log)
    assert endings[0] == endings[1] == endings[2]


def add_and_read(u: torch.Tensor, v: torch.Tensor) -> Any:
    u.add_(1)
    return v * 2


def add_and_decide(u: torch.Tensor, v: torch.Tensor) -> Any:
    u.add_(1)
    return "large" if v[0].item() > 0 else "small"


def read_add_and_read(u: torch.Tensor, v: torch.Tensor) -> Any:
    before = v[:1].sum()
    u.add_(1)
    return before + v[:1], float(v[0])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [add_and_read, add_and_decide, read_add_and_read])
def test_two_tensors_on_one_file(fn: Any, backend: str, tmp_path: Any) -> None:
    """They have storages at different addresses."""
    def pairs() -> Any:
        for alone in (True, False, False):
            (tmp_path / "file").write_bytes(bytes(16))
            u, v = (torch.from_file(str(tmp_path / "file"), shared=True, size=4) for _ in range(2))
            yield u, torch.zeros(4) if alone else v

    compiled = stator.compile(fn, backend=backend)
    assert [repr(compiled(*pair)) for pair in pairs()] == [repr(fn(*pair)) for pair in pairs()]
