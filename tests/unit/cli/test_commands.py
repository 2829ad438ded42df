"""`python -m stator report|census|gate|stability|regions`: text for people, JSON for machines, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stator.cli import census, gate, regions, stability
from stator.cli.recorded_run import load_model

MODELS = """
import torch
from torch import nn

class Block(nn.Module):
    def __init__(self, gate):
        super().__init__()
        self.lin, self.gate = nn.Linear(8, 8), gate

    def forward(self, x):
        y = torch.relu(self.lin(x))
        if self.gate and y.sum() > 1e9:
            y = y / 2
        return x + y

def whole():
    return nn.Sequential(*[Block(False) for _ in range(3)]).eval(), (torch.ones(4, 8),)

def broken():
    return nn.Sequential(*[Block(number == 1) for number in range(3)]).eval(), (torch.ones(4, 8),)

def fixed_sizes():
    return (lambda x: x * len(str(x.shape[0])) + (x.shape[0] == 5)), (torch.ones(4, 8),)

def counts():
    class Counts(nn.Module):
        def __init__(self):
            super().__init__()
            self.names = []

        def forward(self, x):
            self.names.append(str(len(self.names)))
            return x * len(self.names[-1] * len(self.names))
    return Counts(), (torch.ones(3),)
"""
SCRIPT = MODELS + """
import sys
model, args = broken()
fast = torch.compile(model)
for _ in range(3):
    fast(*args)
print("the script's own", sys.argv[1:])
sys.exit(5)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("commands")
    (made / "models.py").write_text(MODELS)
    (made / "script.py").write_text(SCRIPT)
    return made


def test_a_report_of_an_unmodified_script(folder: Path) -> None:
    page, facts = folder / "page.html", folder / "facts.json"
    done = subprocess.run([sys.executable, "-m", "stator", "report", "--backend", "eager", "--out", str(page), "--json",
                           str(facts), str(folder / "script.py"), "--flag", "1"], capture_output=True, text=True,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, timeout=300)
    assert done.returncode == 5 and done.stdout == "the script's own ['--flag', '1']\n"
    assert page.read_text().startswith("<!doctype html>")
    found = json.loads(facts.read_text())
    row = found["breaks"][0]
    assert row["code"] == "SB002" and row["passages"] == 3 and row["added_us"] > 0
    assert row["stack"][-1]["name"] == "model[1].forward"
    assert {"name": "Sequential.forward", "calls": 3, "entries": 1} == {
        name: found["sites"][0][name] for name in ("name", "calls", "entries")}
    assert all(family["us"] > 0 for family in found["captures"][0]["families"])


def test_census_of_a_model(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = folder / "census.json"
    with pytest.raises(SystemExit) as done:
        census.main(["--save", str(saved), f"{folder}/models.py:broken"])
    text = capsys.readouterr().out
    assert done.value.code == 0 and "2 graphs" in text and "1 breaking lines" in text
    assert "break SB002 the truth of a tensor" in text and "in model[1].forward" in text
    found = json.loads(saved.read_text())
    assert found["captured_operators"] == found["operations"] == found["operators"] - 1, "bool(tensor) is the other one"
    with pytest.raises(SystemExit):
        census.main(["--json", "--against", str(saved), f"{folder}/models.py:whole"])
    shown = capsys.readouterr()
    assert "breaks: 1 -> 0" in shown.err and json.loads(shown.out)["operator_share"] == 1.0


def test_a_gate_fails_on_what_is_new(folder: Path, capsys: pytest.CaptureFixture[str],
                                     monkeypatch: pytest.MonkeyPatch) -> None:
    baseline, common = folder / "baseline.json", ["--baseline", str(folder / "baseline.json")]
    with pytest.raises(SystemExit) as done:
        gate.main([*common, f"{folder}/models.py:whole"])
    assert done.value.code == gate.NO_BASELINE and not baseline.exists()
    gate.main([*common, "--update", f"{folder}/models.py:whole"])
    with pytest.raises(SystemExit) as done:
        gate.main([*common, f"{folder}/models.py:whole"])
    assert done.value.code == 0
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    with pytest.raises(SystemExit) as done:
        gate.main([*common, f"{folder}/models.py:broken"])
    text = capsys.readouterr().out
    assert done.value.code == gate.WORSE and "new graph break: SB002" in text
    assert f"::error file={folder}/models.py,line=12,title=new graph break::SB002" in text


def test_findings_of_a_gate() -> None:
    old = {"breaks": [], "recompiles": [{"name": "f", "cause": "x was 1, is 2"}], "eager": [], "capture_seconds": 1.0}
    again = {"name": "f", "cause": "x was 3, is 4", "file": "a.py", "line": 2}
    new = {**old, "recompiles": [again, again], "eager": [{"name": "g", "why": "50%,\nso"}], "capture_seconds": 3.0}
    found = gate.worse(old, new, 1.5)
    assert [each.title for each in found] == ["new recompile", "new eager call", "slower captures"]
    assert gate.worse(new, new, 1.5) == []
    assert found[1].annotation() == "::error title=new eager call::g: 50%25,%0Aso"


def test_stability_names_the_guards_that_move(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        stability.main([f"{folder}/models.py:whole"])
    text = capsys.readouterr().out
    assert done.value.code == 0 and "argument 0, dimension 0: 1 more captures" in text
    assert "argument 0, dimension 1: cannot vary alone, eager raises RuntimeError" in text
    with pytest.raises(SystemExit) as done:
        stability.main(["--json", f"{folder}/models.py:fixed_sizes"])
    found = json.loads(capsys.readouterr().out)
    assert done.value.code == stability.UNSTABLE and found["dimensions"][0]["captures"] > 1
    assert "x.size(0)" in found["dimensions"][0]["moved"][-1]
    assert stability.repeat(load_model(f"{folder}/models.py:counts"), 4), "equal calls that compile again"


def test_regions_against_whole(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    regions.main(["--json", "--backend", "aot_eager", "--calls", "2", f"{folder}/models.py:whole"])
    found = json.loads(capsys.readouterr().out)
    assert set(found["sides"]) == {"whole", "pieces"} and found["sides"]["pieces"]["first_call"] > 0
    assert "pieces against whole: first call" in regions.text_of(found)


def test_a_model_that_fails_has_an_exit_code_of_its_own(folder: Path) -> None:
    for command in (stability.main, regions.main):
        with pytest.raises(SystemExit) as done:
            command([f"{folder}/models.py:missing"])
        assert done.value.code == census.FAILED
