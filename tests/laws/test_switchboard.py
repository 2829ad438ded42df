"""Each mechanism turned off: at least one probe that names it must notice, so the probes can fail."""

from __future__ import annotations

import gc
import warnings
from typing import Any

import pytest
import test_laws  # noqa: F401  (registers the probes)
from probing import PROBES, judge, world_changed_by_tracing
from switchboard import SWITCHES, Switch

from stator.guards.guard import Kind


def notices(name: str) -> bool:
    """Whether a probe fails: a difference, a bug, or a trace that left marks."""
    make = PROBES[name].make
    try:
        verdict = judge(make)
        return bool(verdict.differences or verdict.failures or world_changed_by_tracing(make))
    except Exception as error:  # an engine without one of its mechanisms may do anything
        warnings.warn(f"{name}: {type(error).__name__}: {error}", stacklevel=2)
        return True


@pytest.mark.parametrize("switch", SWITCHES, ids=str)
def test_is_noticed(switch: Switch, monkeypatch: Any) -> None:
    with monkeypatch.context() as patch:
        switch.off(patch)
        found = [name for name in switch.noticed_by if notices(name)]
    gc.collect()
    assert found, f"nobody noticed that this is off: {switch.name}"


def test_every_kind_of_guard_has_a_switch() -> None:
    covered = {switch.name.removeprefix("guards of kind ") for switch in SWITCHES}
    assert {kind.name for kind in Kind} <= covered
