"""A quick slice of CPython's own tests: each passes compiled as it passes in eager.

In: `QUICK`.  Out: a test per module; `python -m tests.cpython` runs the long list.
"""

from __future__ import annotations

import importlib.util

import pytest

from tests.cpython.modules import QUICK
from tests.cpython.running import run_module

pytestmark = pytest.mark.skipif(importlib.util.find_spec("test.test_bool") is None,
                                reason="this interpreter was installed without its own tests")


@pytest.mark.parametrize("module", QUICK)
def test_module_passes_compiled(module: str) -> None:
    outcomes = list(run_module(module))
    assert any(outcome.eager.status == "passed" for outcome in outcomes)
    wrong = {outcome.test: outcome.compiled for outcome in outcomes
             if outcome.verdict() not in ("whole", "broke", "not run")}
    assert not wrong
