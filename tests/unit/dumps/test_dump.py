"""Residual programs in files: a debugger steps through them, and results stay what they are."""

from __future__ import annotations

import bdb
import linecache
import os
import subprocess
import sys
from pathlib import Path
from types import FrameType

import torch

import stator
from stator import events

ROOT = Path(__file__).parents[3]


def program(x, n):
    y = x * n
    stator.graph_break()
    return y.relu() + 1


class Stepper(bdb.Bdb):
    """A debugger that steps, and notes the lines of one folder with their text."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder, self.seen = str(folder), []

    def user_line(self, frame: FrameType) -> None:
        filename = frame.f_code.co_filename
        if filename.startswith(self.folder):
            self.seen.append((Path(filename).name, linecache.getline(filename, frame.f_lineno).strip()))
        self.set_step()


def test_a_debugger_steps_through_the_files(tmp_path: Path) -> None:
    compiled, x = stator.compile(program, backend="eager"), torch.ones(3)
    compiled(x, 2)
    paths = stator.dump(compiled, tmp_path / "dumped")
    assert [path.name for path in paths] == ["program_0.py", "program_0_graph.py", "program_after_line_23_0.py",
                                             "program_after_line_23_0_graph.py"]
    texts = {path.name: path.read_text() for path in paths}
    assert "#     n == 2" in texts["program_0.py"] and "def residual(" in texts["program_0.py"]
    assert "x * 2" in texts["program_0_graph.py"] and "relu" in texts["program_after_line_23_0_graph.py"]
    stepper = Stepper(tmp_path / "dumped")
    assert torch.equal(stepper.runcall(compiled, x, 2), torch.full((3,), 3.0))
    assert {name for name, _ in stepper.seen} == {"program_0.py", "program_after_line_23_0.py"}
    assert ("program_0.py", "out = graph(x)") in stepper.seen
    assert ("program_after_line_23_0.py", "return out[0]") in stepper.seen
    assert torch.equal(compiled(x, 2), torch.full((3,), 3.0))  # without a debugger


def test_a_debugger_sees_the_program_where_no_entry_fits_or_nothing_was_dumped(tmp_path: Path) -> None:
    compiled, other = (stator.compile(program, backend="eager", isolate_recompiles=True) for _ in range(2))
    x = torch.ones(3)
    compiled(x, 2), other(x, 2)
    stator.dump(compiled, tmp_path)
    for call, n in ((compiled, 5), (other, 2)):
        stepper = Stepper(Path(__file__).parent)
        with events.record() as log:
            assert torch.equal(stepper.runcall(call, x, n), torch.full((3,), float(n + 1)))
        assert ("test_dump.py", "y = x * n") in stepper.seen
        assert any("sys.settrace" in event.why for event in log if isinstance(event, events.EagerFallback))
        assert not [event for event in log if isinstance(event, events.CaptureStarted)]


def test_errors_name_the_dumped_file(tmp_path: Path) -> None:
    compiled = stator.compile(program, backend="eager")
    compiled(torch.ones(3), 2)
    [first, *_] = stator.dump(compiled, tmp_path)
    codes = {function.__code__.co_filename for _, function, _ in compiled.entries()}
    assert codes == {str(first)}


def test_the_environment_dumps_every_capture(tmp_path: Path) -> None:
    source = "import torch, stator; f = stator.compile(lambda x: x + 7, backend='eager'); " \
             "print(f(torch.ones(2)).tolist()); print(f.entries()[0][1].__code__.co_filename)"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "STATOR_DUMP": str(tmp_path / "all")}
    done = subprocess.run([sys.executable, "-c", source], cwd=ROOT, env=env, capture_output=True, text=True, timeout=240,
                          check=False)
    assert done.returncode == 0, done.stderr
    value, filename = done.stdout.split("\n")[:2]
    assert value == "[8.0, 8.0]" and Path(filename).read_text().startswith("def residual(")
    assert {path.name for path in (tmp_path / "all").iterdir()} == {"lambda_0.py", "lambda_0_graph.py"}
