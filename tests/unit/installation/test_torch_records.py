"""Under install(), torch's own tools see Stator's captures: TORCH_LOGS, TORCH_TRACE, counters, compile ids, callbacks."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import torch

import stator
from stator import events
from stator.installation import torch_records
from tests.own_process import in_new_interpreters

ROOT = Path(__file__).parents[3]
PROGRAM = "tests/unit/installation/recorded_program.py"
LOGS = "graph_breaks,recompiles,recompiles_verbose,graph,graph_code,graph_sizes,guards,bytecode,trace_source,trace_call," \
    "trace_bytecode,+dynamic"


class Run(NamedTuple):
    facts: dict
    logs: str
    trace: Path


class Record(NamedTuple):
    name: str
    compile_id: str
    facts: object
    payload: str


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("trace")
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TORCH_LOGS": LOGS, "TORCH_TRACE": str(folder)}
    done = subprocess.run([sys.executable, "-m", "tests.unit.installation.recorded_program"], cwd=ROOT, env=env,
                          capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    [trace] = folder.iterdir()
    return Run(json.loads(done.stdout.splitlines()[-1]), done.stderr, trace)


def lines_of(logs: str, artifact: str) -> list[str]:
    """`[0/1] text` of each line of an artifact."""
    return [f"{found[1]} {found[2]}" for found in re.finditer(rf"\] (\[[\d/]+\]) \[__{artifact}\] ?(.*)", logs)]


def records_of(trace: Path) -> list[Record]:
    found: list[Record] = []
    for line in trace.read_text().splitlines():
        if line.startswith("\t"):
            found[-1] = found[-1]._replace(payload=found[-1].payload + line[1:] + "\n")
            continue
        data = json.loads(line[line.index("{"):])
        name = next(iter(data))
        found.append(Record(name, f"{data.get('frame_id')}/{data.get('frame_compile_id')}", data[name], ""))
    return found


@pytest.mark.parametrize(("artifact", "wanted"), [
    ("graph_breaks", [r"\[0/0\] Graph break in user code at .*recorded_program.py:30",
                      r"\[0/0\] Graph Break Reason: SB002 data-dependent branch", r"if y\.sum\(\) > 0:"]),
    ("recompiles", [r"\[0/1\] Recompiling function program in .*recorded_program.py:27",
                    r"\[0/1\]     - x was float32\[3\], is float32\[4\]", r"\[0/2\]     - n was 2, is 3"]),
    ("recompiles_verbose", [r"guard 0 failures:"]),
    ("graph", [r"\[0/0\] call_function  mul: f32\[3\] cpu = mul\(x, 2\)"]),
    ("graph_code", [r"TRACED GRAPH", r"# File: .*recorded_program.py:28, code: y = x \* n",
                    r'mul: "f32\[3\]\[1\]cpu" = x \* 2']),
    ("graph_sizes", [r"TRACED GRAPH TENSOR SIZES", r"mul: f32\[3\]"]),
    ("guards", [r"GUARDS:", r"\+- n == 2  # .*recorded_program.py:28"]),
    ("bytecode", [r"ORIGINAL BYTECODE program .*recorded_program.py line 27", r"BINARY_OP",
                  r"MODIFIED BYTECODE program", r"def residual\("]),
    ("trace_call", [r"\[0/0\] TRACE FX call mul from .*recorded_program.py:28", r"y = x \* n"]),
    ("trace_bytecode", [r"\[0/0\] TRACE LOAD_FAST", r"\[0/0\] TRACE BINARY_OP \*"]),
    ("trace_source", [r"TRACE starts_line .*recorded_program.py:28 in program", r"y = x \* n"]),
])
def test_torch_logs_show_captures(run: Run, artifact: str, wanted: list[str]) -> None:
    lines = lines_of(run.logs, artifact)
    for pattern in wanted:
        assert any(re.search(pattern, line) for line in lines), (pattern, lines)


def test_the_dynamic_log_has_compile_ids(run: Run) -> None:
    assert re.search(r"\[0/1\] create_symbol \w+ = 4 for x\.size\(\)\[0\]", run.logs)


def test_compile_ids_callbacks_and_counters(run: Run) -> None:
    assert run.facts["ids"] == ["0/0", "1/0", "0/1", "1/1", "0/2"]
    assert run.facts["start"] == run.facts["end"] == run.facts["metrics"] == run.facts["ids"]
    counters = run.facts["counters"]
    assert counters["frames"] == {"total": 5, "ok": 5}
    assert counters["stats"]["unique_graphs"] == 5 and counters["stats"]["calls_captured"] == 13
    [(reason, count)] = counters["graph_break"].items()
    assert reason.startswith("SB002 ") and count == 3


def test_trace_records_have_torchs_forms(run: Run) -> None:
    records = records_of(run.trace)
    first = {record.name: record for record in reversed(records) if record.compile_id == "0/0"}
    assert {"dynamo_start", "dynamo_output_graph", "dynamo_guards", "dynamo_cpp_guards_str",
            "compilation_metrics", "artifact"} <= first.keys()
    assert first["dynamo_output_graph"].facts["sizes"]["mul"] == [3] and "x * 2" in first["dynamo_output_graph"].payload
    assert first["dynamo_start"].facts["stack"][-1]["name"] == "program"
    assert "n == 2" in [guard["code"] for guard in json.loads(first["dynamo_guards"].payload)]
    metrics = first["compilation_metrics"].facts
    assert metrics["co_name"] == "program" and metrics["graph_op_count"] == 3 and metrics["guard_count"] > 0
    assert metrics["entire_frame_compile_time_s"] > 0 and metrics["fail_type"] is None
    artifacts = {(record.compile_id, record.facts["name"]): record.payload for record in records
                 if record.name == "artifact"}
    assert "SB002" in artifacts["0/0", "dynamo_graph_break_reason"]
    assert json.loads(artifacts["0/2", "recompile_reasons"])[0] == "n was 2, is 3"
    assert "def residual(" in artifacts["0/0", "residual_program"]
    assert not [record for record in records if record.name == "compilation_metrics" and record.compile_id == "None/None"]


ACCUMULATED = """
import torch, torch._dynamo
import stator

def program(x):
    return x + 1

stator.install()
for factor in (2, 3):
    torch.compile(program, backend=lambda graph, inputs: graph.forward)(torch.ones(3))
rows = torch._dynamo.utils.get_compilation_metrics()
assert [(row.cache_size, row.accumulated_cache_size) for row in rows] == [(0, 0), (0, 1)], rows
"""


def test_accumulated_cache_size_counts_all_compile_calls_of_a_function() -> None:
    in_new_interpreters(["-c", ACCUMULATED])


def test_tlparse_renders_the_trace(run: Run, tmp_path: Path) -> None:
    program = shutil.which("tlparse") or shutil.which("tlparse", path=str(Path(sys.executable).parent))
    if program is None:
        pytest.skip("tlparse is not installed: pip install tlparse")
    done = subprocess.run([program, str(run.trace), "-o", str(tmp_path / "out"), "--no-browser", "--overwrite"],
                          capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "fail" not in done.stderr.lower().replace("failures_and_restarts", "")
    index = (tmp_path / "out" / "index.html").read_text()
    assert "recorded_program.py" in index
    for compile_id in ("0_0", "1_0", "0_1", "1_1", "0_2"):
        [folder] = (tmp_path / "out").glob(f"-_{compile_id}_*")
        names = " ".join(path.name for path in folder.iterdir())
        assert all(part in names for part in ("dynamo_output_graph", "dynamo_guards", "compilation_metrics"))


def test_records_end_with_uninstall_and_failures_stop_no_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise ValueError("no record")

    stator.install()
    try:
        monkeypatch.setattr(torch_records, "end", fails)
        with pytest.warns(RuntimeWarning, match="torch's logs lack a capture"):
            assert torch.equal(torch.compile(lambda x: x + 3, backend="eager")(torch.ones(2)), torch.full((2,), 4.0))
    finally:
        stator.uninstall()
    with events.record():
        assert torch.equal(stator.compile(lambda x: x + 4, backend="eager")(torch.ones(2)), torch.full((2,), 5.0))
