"""`python -m stator remedies` and the proposals of a report page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from stator.cli import remedies
from stator.remedies.proposals import Cost, Failure, Proposal, Proposals
from stator.report.page import page
from stator.report.run_data import Recording, run_data

SCRIPT = """
import torch
from torch import nn

class Block(nn.Module):
    def forward(self, x):
        if x.sum() > 10:
            x = x / 2
        return x + 1

class Opaque(nn.Module):
    def forward(self, x):
        if x.sum() > 10:
            x = x[:2]  # another size than the other way has: neither torch.where nor torch.cond takes both
        return x

def block():
    return Block(), (torch.ones(4, 8),)

def opaque():
    return Opaque(), (torch.ones(4, 8),)

if __name__ == "__main__":
    fast = torch.compile(Block())
    fast(torch.ones(4, 8))
    fast(torch.ones(4, 8) / 100)
"""
HOSTILE = "</script><img src=x onerror=alert(1)>"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "program.py"
    path.write_text(SCRIPT)
    return path


def test_a_model(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as done:
        remedies.main([f"{script}:block"])
    text = capsys.readouterr().out
    assert done.value.code == 0 and "+        x = torch.where(taken, x_then, x)" in text
    assert "with all proposals: 0 breaks, 0 recompiles, 1 graphs" in text and script.read_text() == SCRIPT
    with pytest.raises(SystemExit) as done:
        remedies.main(["--json", f"{script}:opaque"])
    [found] = json.loads(capsys.readouterr().out)
    assert done.value.code == remedies.LEFT and found["failures"] and not found["proposals"]
    with pytest.raises(SystemExit) as done:
        remedies.main([f"{script}:missing"])
    assert done.value.code == 3


def test_a_script_and_its_page(script: Path, tmp_path: Path) -> None:
    out = tmp_path / "run.html"
    words = [sys.executable, "-m", "stator", "report", "--remedies", "--backend", "eager", "--json", "-", "--out", str(out)]
    done = subprocess.run([*words, str(script)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "OMP_NUM_THREADS": "1"}, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    [found] = data["remedies"]
    [proposal] = found["proposals"]
    assert (proposal["file"], proposal["line"]) == (data["breaks"][0]["file"], data["breaks"][0]["line"]) == (str(script), 7)
    assert proposal["before"]["breaks"] == 1 and proposal["after"]["breaks"] == 0
    assert "torch.where(taken, x_then, x)" in out.read_text()


def test_a_page_shows_hostile_proposals_as_text() -> None:
    cost = Cost(1, 0, 2, 3.0)
    hostile = Proposal(HOSTILE, HOSTILE, HOSTILE, 3, HOSTILE, {"options": HOSTILE}, {HOSTILE: HOSTILE}, cost, cost,
                       (HOSTILE,))
    failure = Failure(HOSTILE, HOSTILE, 3, ((HOSTILE, HOSTILE),))
    data = run_data(Recording(), "script.py")
    data["remedies"] = [Proposals(HOSTILE, (hostile,), (failure,), cost, cost).data()]
    text = page(data)
    assert HOSTILE not in text and "onerror" in text
    script = text[text.index("function tried("):]
    assert "innerHTML" not in script[:script.index("function recompileCard")]
