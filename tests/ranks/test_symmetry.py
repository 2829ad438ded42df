"""`python -m stator symmetry --ranks`: what ranks share, and what each does for itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.own_process import forked_interpreters

STEP = """
import torch.distributed as dist

@torch.compile
def step(x):
    if {condition}:
        dist.all_reduce(x)
    return x + 1
"""
BEGIN = "import os, subprocess, sys, threading\nimport torch\nprint('begun')\n"
END = "\nstep(torch.ones(4))\n"
INIT = "dist.init_process_group('gloo')\n"
SCRIPTS = {  # name: script, status, words of the verdict, how often the script begins
    "forked at init": (BEGIN + STEP.format(condition="dist.get_rank() < 3") + INIT + END, 1, "ranks 0 and 3 of 4", 1),
    "forked at the environment": (BEGIN + "rank = int(os.environ['RANK'])\n" + STEP.format(condition="rank != 1") + INIT + END,
                                  1, "ranks 0 and 1 of 4", 1),
    "forked at a copy": (BEGIN + "rank = dict(os.environ)['LOCAL_RANK']\n" + STEP.format(condition="rank != '2'") + INIT + END,
                         1, "ranks 0 and 2 of 4", 1),
    "a process before": (
        BEGIN + "rank = subprocess.run([sys.executable, '-c', 'import os; print(os.environ[\"RANK\"])'], "
        "stdout=subprocess.PIPE, text=True).stdout.strip()\n" + STEP.format(condition="rank != '1'") + INIT + END,
        1, "ranks 0 and 1 of 4", None),
    "rank never read": (BEGIN + "def f(x): return x + 1\ntorch.compile(f)(torch.ones(2))\n", 0, "4 ranks run the same 0", 1),
    "a thread before": (BEGIN + "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
                        + STEP.format(condition="dist.get_rank() != 1") + INIT + END, 1, "ranks 0 and 1 of 4", None),
    "equal": (BEGIN + STEP.format(condition="dist.get_world_size() == 4") + INIT + END, 0, "4 ranks run the same 1", 1),
    "one fails": (BEGIN + INIT.join(["import torch.distributed as dist\n", "assert dist.get_rank() != 2\n"]), 3, "rank 2 of 4",
                  None),
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_fake_ranks(name: str, tmp_path: Path) -> None:
    text, status, words, begun = SCRIPTS[name]
    script = tmp_path / "script.py"
    script.write_text(text)
    verdict, = forked_interpreters(["stator", "symmetry", "--ranks", "4", str(script)], seconds=100)
    assert verdict.returncode == status and words in verdict.stderr, verdict.stderr
    assert begun is None or verdict.stdout.count("begun") == begun
