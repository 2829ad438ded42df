"""Every name that programs use with torch.compile works under install(), or says that it has no effect."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

import stator
from tools import api_table


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    stator.install()
    yield
    stator.uninstall()


def test_no_row_is_silent() -> None:
    found = dict(api_table.rows())
    assert len(found) >= 120
    assert not {name: what for name, what in found.items() if what.startswith("silent")}
    assert sum(what == "works" for what in found.values()) >= 75
    listed = api_table.PAGE.read_text()
    if f"torch {torch.__version__.partition('+')[0]}." in listed:
        names = [name.removeprefix("torch._dynamo.config.") for name in found]
        assert [name for name in names if f"`{name}`" not in listed and f"config.{name}`" not in listed] == []


def test_a_name_without_effect_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch._dynamo, "reset", lambda: None)
    assert api_table.outcome(api_table.TRACER["reset"]) == "silent"


@pytest.mark.parametrize("optimize", ["optimize", "optimize_assert"])
def test_optimize_in_a_with_statement_says_that_it_compiles_nothing(optimize: str) -> None:
    context = getattr(torch._dynamo, optimize)("eager")
    with pytest.warns(UserWarning, match="in a with statement has no effect on Stator"), context:
        assert not stator.is_compiling()
    compiled = context(torch.sin)
    assert torch.equal(compiled(torch.ones(2)), torch.ones(2).sin())
