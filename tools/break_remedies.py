"""Programs that break, and the same programs with the remedy applied, for the pages of break codes.

In: nothing.  Out: `REMEDIES`, by break code: two sources that define `program(x)`.  A test runs both: the first breaks
with this code, the second is one graph with an equal result.
"""

from __future__ import annotations

from typing import NamedTuple


class Remedy(NamedTuple):
    cause: str
    broken: str
    mended: str


REMEDIES: dict[str, list[Remedy]] = {
    "SB001": [Remedy("a C function whose effects are not known", """
import lzma
import torch

def program(x):
    return x * len(lzma.compress(b"seed"))
""", """
import lzma
import torch

LENGTH = len(lzma.compress(b"seed"))

def program(x):
    return x * LENGTH
""")],
    "SB002": [
        Remedy("an `if` that chooses a value", """
import torch

def program(x):
    if x.sum() > 0:
        return x * 2
    return x - 1
""", """
import torch

def program(x):
    return torch.where(x.sum() > 0, x * 2, x - 1)
"""), Remedy("an `if` that chooses a computation", """
import torch

def program(x):
    y = x.sin()
    if y.sum() > 0:
        y = y @ y
    return y
""", """
import torch

def program(x):
    y = x.sin()
    return torch.cond(y.sum() > 0, lambda y: y @ y, lambda y: y.clone(), (y,))
"""), Remedy("a `while` over a tensor", """
import torch

def program(x):
    while x.norm() > 1:
        x = x / 2
    return x
""", """
import torch

def program(x):
    halvings = torch.clamp(torch.ceil(torch.log2(x.norm())), min=0)
    return x / 2 ** halvings
""")],
    "SB003": [Remedy("a number of a tensor as a key", """
import torch

SCALES = {0: 1.0, 1: 2.0, 2: 4.0}

def program(x):
    return x * SCALES[int(x.argmax()) % 3]
""", """
import torch

SCALES = torch.tensor([1.0, 2.0, 4.0])

def program(x):
    return x * SCALES[x.argmax() % 3]
""")],
    "SB008": [Remedy("the name of the caller", """
import inspect
import torch

def program(x):
    return x * len(inspect.currentframe().f_code.co_name)
""", """
import torch

NAME = "program"

def program(x):
    return x * len(NAME)
""")],
    "SB009": [Remedy("a call of stator.graph_break()", """
import stator
import torch

def program(x):
    y = x.sin()
    stator.graph_break()
    return y.cos()
""", """
import torch

def program(x):
    return x.sin().cos()
""")],
    "SB010": [Remedy("a helper that was disabled and could be captured", """
import stator
import torch

@stator.disable
def helper(x):
    return x + 1

def program(x):
    return helper(x.sin())
""", """
import torch

def helper(x):
    return x + 1

def program(x):
    return helper(x.sin())
""")],
    "SB013": [Remedy("a clock that is read to measure", """
import time
import torch

TIMES = []

def program(x):
    began = time.perf_counter()
    y = x.sin()
    TIMES.append(time.perf_counter() - began)
    return y
""", """
import torch

def program(x):  # measure around the compiled call
    return x.sin()
"""), Remedy("a fact of the process", """
import os
import torch

def program(x):
    return x * os.getpid() / os.getpid()
""", """
import os
import torch

PROCESS = os.getpid()

def program(x):
    return x * PROCESS / PROCESS
""")],
    "SB015": [Remedy("a file that is read in every call", """
import torch

def program(x):
    with open("/dev/null") as file:
        return x + len(file.read())
""", """
import torch

with open("/dev/null") as file:
    LENGTH = len(file.read())

def program(x):
    return x + LENGTH
""")],
}
