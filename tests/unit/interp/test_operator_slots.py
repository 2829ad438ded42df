"""Operators reach C code too: a slot that the native table does not let run is a break, like any call of it."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator
from stator import events
from stator.native.rows_declare import ROWS, NativeClass

HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize("slot, fn", [
    ("__add__", lambda x: x * (HOUR + HOUR).seconds),
    ("__truediv__", lambda x: x * (HOUR / HOUR)),
    ("__neg__", lambda x: x * (-HOUR).days),
    ("__lt__", lambda x: x * 2 if HOUR < HOUR else x * 3),
    ("__bool__", lambda x: x * 2 if HOUR else x * 3),
])
def test_a_denied_slot_breaks(slot: str, fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    method = datetime.timedelta.__dict__[slot]
    denied = dataclasses.replace(ROWS[id(method)], cls=NativeClass.DENY, code="SB013", why="for this test")
    x = torch.ones(2)
    with events.record() as log:
        assert torch.equal(stator.compile(fn, backend="eager")(x), fn(x))
    assert not [event for event in log if isinstance(event, events.GraphBreak)]
    monkeypatch.setitem(ROWS, id(method), denied)
    with events.record() as log:
        assert torch.equal(stator.compile(fn, backend="eager")(x), fn(x))
    assert {event.code for event in log if isinstance(event, events.GraphBreak)} == {"SB013"}
