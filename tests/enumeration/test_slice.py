"""A slice of the enumeration, one subject of each family; and faults that it has to notice."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stator import stages
from stator.emit import failing_calls
from tests.enumeration.judge import judge
from tests.enumeration.overloads import Subject, subjects
from tests.enumeration.samples import find_sample

SLICE = (
    "aten::add_.Tensor (overload)", "aten::mul_.Tensor (method)", "aten::add.out (function)", "aten::_foreach_add_.List (function)", "aten::max.dim_max (overload)",
    "aten::index_put_.default (method)", "aten::normal_.default (overload)", "aten::_fused_sgd_.default (overload)", "aten::resize_.default (method)",
    "aten::set_.source_Tensor (overload)", "aten::embedding_renorm_.default (overload)", "torch.nn.functional.relu (inplace=)",
)  # fmt: skip


@pytest.fixture(scope="module")
def known() -> dict[str, Subject]:
    return {str(each): each for each in subjects()}


@pytest.mark.parametrize("name", SLICE)
def test_writes_equal_eager(name: str, known: dict[str, Subject], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    verdict = judge(known[name])
    assert verdict.reason == ""
    assert verdict.calls >= 100
    assert verdict.found == []


FAULTS: dict[str, tuple[Any, str, Any, str]] = {
    "no guard on shared memory": (stages, "guard_shared_memory", lambda done, residual: None, "item"),
    "a failed graph forgets its writes": (failing_calls, "written_inputs", lambda *args: ([], True), "failure"),
    "a failed graph draws anew": (failing_calls, "draws_random_numbers", lambda target: False, "failure"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, known: dict[str, Subject], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    owner, name, replacement, observation = FAULTS[fault]
    subject = known["aten::normal_.default (overload)" if "draws" in fault else "aten::add_.Tensor (overload)"]
    assert judge(subject, ("eager",), (observation,)).found == []
    monkeypatch.setattr(owner, name, replacement)
    assert judge(subject, ("eager",), (observation,)).found


def test_most_overloads_are_known(known: dict[str, Subject]) -> None:
    assert sum(each.form == "overload" for each in known.values()) > 1400
    assert len(known) > 2500


def test_a_subject_without_a_sample_has_a_reason(known: dict[str, Subject]) -> None:
    sample, reason = find_sample(known["aten::append.t (overload)"])
    assert sample is None
    assert "TorchScript" in reason


def test_the_sum_is_printed(tmp_path: Path) -> None:
    said = subprocess.run([sys.executable, "-m", "tests.enumeration", "--jobs", "1", "--only", r"^aten::zero_\.default \(method\)", "--backends", "eager",
                           "--observations", "value", "--out", str(tmp_path / "out.jsonl")], capture_output=True, text=True, check=False,
                          cwd=Path(__file__).parents[2])  # fmt: skip
    assert said.stdout.splitlines()[-1] == "6 pairs, 0 wrong", said.stdout + said.stderr
    assert said.returncode == 0
