"""Every fact that must hold has a probe, and that very probe fails without the mechanism named beside it."""

from __future__ import annotations

import gc
from typing import Any

import pytest
from must_hold import FACTS
from probing import PROBES
from switchboard import SWITCHES
from test_switchboard import notices

BY_NAME = {switch.name: switch for switch in SWITCHES}


@pytest.mark.parametrize(("fact", "probe", "switch"), FACTS, ids=[row[0] for row in FACTS])
def test_is_noticed_without_its_mechanism(fact: str, probe: str, switch: str, monkeypatch: Any) -> None:
    assert probe in PROBES
    with monkeypatch.context() as patch:
        BY_NAME[switch].off(patch)
        noticed = notices(probe)
    gc.collect()
    assert noticed, f"{fact}: {probe} does not notice that this is off: {switch}"
