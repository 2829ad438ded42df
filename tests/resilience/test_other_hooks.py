"""Another eval-frame hook, torch's own, that stays over Stator's: later calls are captured and right."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = """
import warnings
warnings.simplefilter("ignore")
import torch, stator
from stator import events

def fails(x):
    def way(y):
        stator.graph_break()
        open("/dev/null")
        return y + 1
    return torch.cond(x.sum() > 0, way, lambda y: y - 1, (x,))

for _ in range(2):
    try:
        stator.compile(fails, backend="eager")(torch.ones(2))
    except Exception as error:
        print(type(error).__name__)

def later(x):
    x = x + 1
    stator.graph_break()
    return x * 2

with events.record() as log:
    value = stator.compile(later, backend="eager")(torch.ones(2))
print(value.tolist(), sum(isinstance(event, events.CaptureFinished) for event in log))
"""


def test_a_native_cond_that_torch_refuses() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=240,
                          cwd=Path(__file__).parents[2], check=False)
    lines = done.stdout.strip().splitlines()
    assert lines == ["UncapturedHigherOrderOpError"] * 2 + ["[4.0, 4.0] 2"], done.stderr[-2000:]


STAYS = """
import torch, stator
def step(x):
    notes = []
    return torch.cond(x.sum() > 0, lambda t: (notes.append(1), t * 2)[1], lambda t: t * 3, (x,)), notes
x = torch.ones(3)
texts = []
for call in (step, stator.compile(step, backend="eager"), step):
    try:
        call(x)
    except Exception as error:  # torch.cond hands its branches to torch's own tracer, which refuses these and stays
        texts.append((type(error).__name__, str(error).splitlines()[0]))
print(len(texts), len(set(texts)))
"""


def test_a_hook_that_was_there_before_ours_and_is_put_over_it() -> None:
    done = subprocess.run([sys.executable, "-c", STAYS], capture_output=True, text=True, timeout=240,
                          cwd=Path(__file__).parents[2], check=False)
    assert done.stdout.strip() == "3 1", done.stderr[-2000:]
