"""A slice of the enumeration, one subject of each family; and faults that it has to notice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from stator.capture import stages
from stator.emit.residual import failing_calls
from tests.enumeration.judge import BACKENDS, judge
from tests.enumeration.overloads import Subject, subjects
from tests.enumeration.samples import find_sample
from tests.own_process import in_forked_interpreters

# Subjects of every family, each under some of the observations, so that together they take all.
SLICE: dict[str, tuple[str, ...]] = {
    "aten::add_.Tensor (overload)": ("item",), "aten::add.out (function)": ("alias",), "aten::_foreach_add_.List (function)": ("value", "layout"),
    "aten::normal_.default (method)": ("failure",), "aten::_fused_sgd_.default (overload)": ("alias",), "aten::resize_.default (method)": ("layout",),
    "torch.nn.functional.relu (inplace=)": ("face",), "aten::rrelu_with_noise.out (overload)": ("value",), "aten::_no_grad_zero_.default (overload)": ("item twice",),
}  # fmt: skip


@pytest.fixture(scope="module")
def known() -> dict[str, Subject]:
    return {str(each): each for each in subjects()}


@pytest.mark.parametrize("name", SLICE)
def test_writes_equal_eager(name: str, known: dict[str, Subject], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    verdict = judge(known[name], observations=SLICE[name])
    assert verdict.reason == ""
    assert set(verdict.calls) == set(BACKENDS) and min(verdict.calls.values()) >= 6
    assert verdict.found == []


ADD, NORMAL = "aten::add_.Tensor (overload)", "aten::normal_.default (method)"
FAULTS: dict[str, tuple[Any, str, Any, tuple[str, str, str]]] = {
    "no guard on shared memory": (stages, "guard_shared_memory", lambda done, residual: None, (ADD, "aot_eager", "item")),
    "a failed graph forgets its writes": (failing_calls, "written_inputs", lambda *args: ([], True), (ADD, "eager", "failure")),
    "a failed graph draws anew": (failing_calls, "draws_inside", lambda module: False, (NORMAL, "eager", "failure")),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_noticed(fault: str, known: dict[str, Subject], monkeypatch: pytest.MonkeyPatch) -> None:
    owner, name, replacement, (subject, backend, observation) = FAULTS[fault]
    monkeypatch.setattr(owner, name, replacement)
    assert judge(known[subject], (backend,), (observation,)).found


def test_most_overloads_are_known(known: dict[str, Subject]) -> None:
    assert sum(each.form == "overload" for each in known.values()) > 1400
    assert len(known) > 2500


def test_a_subject_without_a_sample_has_a_reason(known: dict[str, Subject]) -> None:
    sample, reason = find_sample(known["aten::append.t (overload)"])
    assert sample is None
    assert "TorchScript" in reason


def test_the_sum_is_printed(tmp_path: Path) -> None:
    """Through the command line: one subject that is compared, and one without a sample."""
    [output] = in_forked_interpreters(["tests.enumeration", "--jobs", "1", "--only", r"^aten::(zero_\.default \(method|append)",
                                    "--backends", "eager", "--observations", "value", "--out", str(tmp_path / "out.jsonl")])
    said = output.splitlines()
    assert said[-1] == "6 pairs, 0 wrong"
    assert "eager: 6 pairs run (0 raise in eager), 0 wrong, 2 not arranged; 10 calls; 1 of 1 first calls compiled whole" in said
    assert any(line.endswith("no sample: a primitive of TorchScript: writes to a copy of a Python container") for line in said)
    assert any("not arranged: same operand: needs another operand" in line for line in said)
