"""Learned choices, exported and imported: another process starts with them."""

from __future__ import annotations

import json

import pytest
import torch
from counting import run

import stator
from stator import events


@pytest.fixture(autouse=True)
def _clean():
    stator.reset()
    yield
    stator.reset()


class Model:
    def __init__(self) -> None:
        self.step = 0

    def forward(self, x, items):
        self.step += 1
        y = x * self.step + len(items)
        stator.graph_break()
        return y.sum(0) + x.shape[0]


def compiles(calls: int) -> tuple[int, str]:
    model, twin = Model(), Model()
    compiled = stator.compile(model.forward, backend="eager")
    with events.record() as log:
        for n in range(2, 2 + calls):
            args = torch.ones(n, 3), [1] * n
            assert torch.equal(compiled(*args), twin.forward(*args))
    return sum(isinstance(event, events.CaptureFinished) for event in log), stator.shape_profile()


def test_a_second_process_starts_dynamic():
    learned, text = compiles(4)
    stator.reset()
    assert json.loads(stator.shape_profile())["places"] == {}
    stator.load_shape_profile(text)
    again, _ = compiles(4)
    assert again == 2 < learned  # before the break and after it, once each
    assert "test_profile.py: Model.forward" in json.loads(text)["places"]


def test_it_reaches_functions_that_are_compiled_already():
    def program(x):
        return x * 2

    _, first = run(program, [(torch.ones(n),) for n in (3, 4)])
    text = stator.shape_profile()
    stator.reset()
    second = stator.compile(program, backend="eager")
    stator.load_shape_profile(text)
    for n in (3, 4, 5):
        second(torch.ones(n))
    assert len(second.entries()) == 1 and first is not second


def test_export_is_stable_and_adds_up():
    _, text = compiles(4)
    assert stator.shape_profile() == text
    stator.load_shape_profile(text)
    assert stator.shape_profile() == text


def test_without_a_profile_the_first_compile_is_static():
    compiled = stator.compile(lambda x: x * 2, backend="eager")
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    assert len(compiled.entries()) == 2


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 2, "places": {}}', '{"version": 1, "places": []}',
                                  '{"version": 1, "places": {"f": {"sizes": {"x": ["0"]}}}}',
                                  '{"version": 1, "places": {"f": {"code": ["print()"]}}}'])  # fmt: skip
def test_what_is_no_profile_is_refused(text):
    with pytest.raises(ValueError, match="shape profile"):
        stator.load_shape_profile(text)


def test_a_profile_is_text():
    with pytest.raises(TypeError, match="shape_profile"):
        stator.load_shape_profile(b"{}")


def test_reset_forgets_a_profile_that_was_loaded():
    learned, text = compiles(4)
    stator.reset()
    stator.load_shape_profile(text)
    stator.reset()
    assert compiles(4)[0] == learned
