"""A hook of frames that was under Stator's and then over it, and a third one on top: no frame goes round for ever."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = '''
import threading, importlib.util, shutil, sys, tempfile, pathlib
import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from stator import _hook

folder = pathlib.Path(tempfile.mkdtemp())
copy = shutil.copy(_hook.__file__, folder)
spec = importlib.util.spec_from_file_location("stator._hook", copy)
other = importlib.util.module_from_spec(spec)
spec.loader.exec_module(other)

def asked(*frame):
    return _hook.RUN

def add(a, b):
    return a + b

_hook.skip_code(asked.__code__)
_hook.set_callback(asked)
other.set_callback(lambda *frame: other.RUN)
set_eval_frame(False)            # torch's hook is under ours,
_hook.enter()
thread = threading.Thread(target=lambda: set_eval_frame(False))
thread.start()                   # and, for the sake of another thread, over it
thread.join()
_hook.leave()
print(add(1, 2))
other.enter()                    # and another one over both
print(add(3, 4))
_hook.enter()
print(add(5, 6))
_hook.leave()
other.leave()
set_eval_frame(None)
print(add(7, 8))
'''


def test_a_frame_that_comes_round_is_evaluated() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=120, check=False,
                          env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.stdout.split() == ["3", "7", "11", "15"], done.stderr[-2000:]
