"""STATOR_LOGS and set_logs say what TORCH_LOGS says, `explain` says what happened and what it cost."""

from __future__ import annotations

import io
import os
import subprocess
import sys

import pytest
import torch

import stator
from stator.report.follow import LOGS

X = torch.tensor([1.0, -2.0, 3.0])
NAMES = ["graph_breaks", "graph_code", "graph_sizes", "guards", "recompiles", "bytecode", "trace", "dynamic", "perf"]


def helper(x, n):
    y = torch.relu(x) * n
    stator.graph_break("by hand")
    return y + 1


def program(x, n):
    return helper(x + 1, n) - n


def here(offset: int, function=helper) -> str:
    return f"{__file__}:{function.__code__.co_firstlineno + offset}"


def logged(*names: str, tty: bool = False) -> str:
    stream = Terminal() if tty else io.StringIO()
    stator.set_logs(*names, stream=stream)
    try:
        compiled = stator.compile(program, backend="eager", dynamic=False)
        compiled(X, 2)
        compiled(X, 3)
        with stator.set_stance("eager_on_recompile"):
            compiled(X, 4)  # the first segment does not look at 4, or else runs eagerly
        stator.compile(lambda x: x + 1, backend="eager", dynamic=True)(torch.ones(5, 2))
    finally:
        stator.set_logs()
    return stream.getvalue()


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_every_log_of_the_list_exists() -> None:
    assert set(NAMES) <= set(LOGS)
    with pytest.raises(stator.OptionError, match="graph_code"):
        stator.set_logs("graph_cod")
    with pytest.raises(stator.OptionError, match="True or False"):
        stator.set_logs(guards="yes")


def test_breaks_say_code_place_stack_and_remedy() -> None:
    text = logged("graph_breaks")
    assert "SB009 explicit graph break: by hand" in text and "remedy:" in text
    assert f"at {here(2)} in helper" in text and f"called from {here(1, program)} in program" in text
    assert 'stator.graph_break("by hand")' in text, "the source line itself"


def test_graphs_with_shapes_and_lines() -> None:
    text = logged("graph_code")
    assert f"# {here(1)} in helper" in text and "relu: f32[3] cpu = relu(add)" in text
    assert "relu: f32[3] cpu" in logged("graph_sizes")


def test_guards_with_the_line_that_caused_each() -> None:
    text = logged("guards")
    assert f"tensor x: float32[3] cpu requires_grad=False   # {here(1, program)}" in text
    assert "n == 2" in text


def test_recompiles_with_old_and_new_value() -> None:
    text = logged("recompiles")
    assert "was 2, is 3" in text and "n == 2" in text


def test_bytecode_shows_residuals_and_resume_code() -> None:
    text = logged("bytecode")
    assert "residual program of program" in text and "Resume(resume_at" in text


def test_resume_code_is_shown_when_a_continuation_runs_natively() -> None:
    stream = io.StringIO()
    compiled = stator.compile(program, backend="eager", dynamic=True)
    stator.set_logs("bytecode", stream=stream)
    try:
        with stator.set_stance("default"):
            compiled(X, 2)
        for point in compiled._stator_site.points.entries():
            point.clear()
        with stator.set_stance("eager_on_recompile"):
            assert compiled(X, 2).equal(program(X, 2))
    finally:
        stator.set_logs()
    assert "resume code of program resumed at line" in stream.getvalue() and "JUMP_FORWARD" in stream.getvalue()


def test_calls_that_run_eagerly_are_failures() -> None:
    stream = io.StringIO()
    stator.set_logs("failures", stream=stream)
    try:
        compiled = stator.compile(program, backend="eager")
        with stator.set_stance("force_eager"):
            compiled(X, 2)
    finally:
        stator.set_logs()
    assert "force_eager" in stream.getvalue() and "program" in stream.getvalue()


def test_trace_dynamic_and_perf() -> None:
    assert f"trace {here(1)} in helper" in logged("trace")
    assert "symbolic in" in logged("dynamic")
    text = logged("perf")
    assert "captured program: " in text and " ms" in text and "backend eager" in text


def test_colours_on_a_terminal_only() -> None:
    assert "\x1b[" not in logged("graph_code")
    shown = logged(*NAMES, tty=True)
    assert "\x1b[" in shown and "by hand" in shown


def test_the_environment_variable() -> None:
    source = "import torch, stator\nstator.compile(lambda x: x + 1, backend='eager')(torch.ones(2))\n"
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True,
                          env={**os.environ, "STATOR_LOGS": "graph_code,perf"}, check=True)
    assert "[graph_code] graph of <lambda>" in done.stderr and "[perf] captured <lambda>" in done.stderr


# ---------------------------------------------------------------------- explain


def test_explain_tells_graphs_breaks_guards_and_costs() -> None:
    found = stator.explain(program)(X, 2)
    assert found.graph_count == 2 and found.graph_break_count == 1 and found.ops_per_graph == [3, 2]
    reason = found.break_reasons[0]
    assert reason.code == "SB009" and "by hand" in str(reason)
    assert [frame.name for frame in reason.user_stack] == ["program", "helper"]
    assert reason.passages == 1 and 0 < reason.added_microseconds < 1000
    assert found.value.equal(program(X, 2)) and len(found.residuals) == 2 and found.guards
    text = str(found)
    assert "2 graphs, 5 operations, 1 graph breaks" in text and "us beside the" in text and "remedy:" in text


def test_a_break_in_a_loop_is_one_reason() -> None:
    def loop(x):
        for _ in range(10):
            stator.graph_break()
            x = x + 1
        return x

    found = stator.explain(loop)(X)
    assert len(found.break_reasons) == 1 and found.break_reasons[0].passages == 10
    assert found.value.equal(X + 10)


def test_explain_of_a_whole_graph() -> None:
    found = stator.explain(torch.nn.Linear(3, 3))(X)
    assert found.graph_count == 1 and found.graph_break_count == 0 and not found.break_reasons
