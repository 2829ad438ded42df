"""The benchmark's own arithmetic and workloads."""

from __future__ import annotations

import json
import sys

import pytest
import torch

from benchmarks import breaks, readme
from benchmarks.samples import Sample, turns
from benchmarks.workloads import WORKLOADS, workload


def test_sample_is_median_and_quartiles():
    sample = Sample.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (sample.median, sample.low, sample.high) == (3.0, 2.0, 4.0)
    assert sample.measurements == (5.0, 1.0, 3.0, 2.0, 4.0)
    assert Sample.of([7.0]).text(1, "ms") == "7 ms (7-7)"
    assert Sample.of([1234.0]).text(1, "ms") == "1,234 ms (1,234-1,234)"


def test_each_side_goes_first_equally_often():
    firsts = [turns(["a", "b", "c"], number)[0] for number in range(6)]
    assert sorted(firsts) == ["a", "a", "b", "b", "c", "c"]
    assert sorted(turns(["a", "b", "c"], 5)) == ["a", "b", "c"]


def test_workload_names_are_given_once():
    with pytest.raises(ValueError, match="registered twice"):
        workload("100 Linears")(lambda: None)


@pytest.mark.parametrize("name", list(WORKLOADS))
def test_workload_is_built_anew_and_is_repeatable(name: str):
    first, args = WORKLOADS[name].build()
    second, _ = WORKLOADS[name].build()
    assert first is not second
    with torch.no_grad():
        assert torch.equal(first(*args), first(*args))


def count_bytecodes(fn, args) -> int:
    executed = 0

    def trace(frame, event, _):
        nonlocal executed
        frame.f_trace_opcodes = True
        executed += event == "opcode"
        return trace

    previous = sys.gettrace()
    sys._getframe().f_trace_opcodes = True  # 3.12 looks for a frame that wants them when a tracer is set
    sys.settrace(trace)
    try:
        fn(*args)
    finally:
        sys.settrace(previous)
    return executed


def test_pure_python_workload_is_heavy():
    assert 40_000 <= count_bytecodes(*WORKLOADS["heavy pure Python"].build()) <= 60_000


@pytest.mark.parametrize("name", [name for name in breaks.PROGRAMS if "1,000" not in name])
def test_programs_with_breaks_are_captured_around_them(name: str):
    graphs, found = breaks.inspect(breaks.CONTENDERS[1], name)
    assert (graphs, found) == ((3, 2) if "loop" in name else (2, 1))


def test_readme_says_what_was_measured():
    text = (readme.ROOT / "docs" / "benchmarks.md").read_text()
    figures = json.loads(readme.FIGURES.read_text())
    assert readme.replaced(text, readme.render(figures)) == text, "run python -m benchmarks.readme"


def test_samples_survive_the_file_that_keeps_them():
    sample = Sample.of([5.0, 1.0, 3.0])
    assert Sample.from_json(sample.as_json()) == sample
    assert Sample.from_json({"median": 3.0, "low": 2.0, "high": 4.0}).text(1, "ms") == "3 ms (2-4)"
