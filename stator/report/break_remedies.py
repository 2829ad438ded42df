"""Programs that break, and the same programs with the remedy applied, for the pages of break codes.

In: nothing.  Out: `REMEDIES`, by break code: two sources that define `program(x)`; `run(program, x)` makes other
calls, and `SETTINGS` are those of `compile`.  A test runs both: the first breaks with this code, the second has no
break and an equal result.
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
    return x * os.getppid() / os.getppid()
""", """
import os
import torch

PROCESS = os.getppid()

def program(x):
    return x * PROCESS / PROCESS
""")],
    "SB015": [Remedy("a file that is opened for writing in every call", """
import torch

def program(x):
    with open("/dev/null", "a") as file:
        file.write("called")
    return x + 1
""", """
import torch

FILE = open("/dev/null", "a")

def program(x):
    FILE.write("called")
    return x + 1
""")],
    "SB004": [Remedy("an operator without a rule for its shape", """
import torch
from torch._subclasses.fake_tensor import DynamicOutputShapeException

@torch.library.custom_op("stator_knowledge::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0]

@positive.register_fake
def _(x):
    raise DynamicOutputShapeException(torch.ops.stator_knowledge.positive.default)

def program(x):
    return positive(x).sum()
""", """
import torch

def program(x):
    return torch.where(x > 0, x, 0.0).sum()
""")],
    "SB005": [Remedy("the storage of a tensor", """
import torch

def program(x):
    return x + x.untyped_storage().nbytes()
""", """
import torch

def program(x):
    return x + x.numel() * x.element_size()
""")],
    "SB006": [Remedy("a buffer of bytes that is cut", """
import io
import torch

LOG = io.BytesIO()

def program(x):
    LOG.truncate(0)
    return x + 1
""", """
import io
import torch

LOG = io.BytesIO()

def program(x):
    return x + 1

def run(program, x):
    LOG.truncate(0)
    return program(x)
""")],
    "SB007": [Remedy("an iterator of C that is returned", """
import torch

def program(x):
    return x + 1, iter(memoryview(b"ab"))

def run(program, x):
    y, letters = program(x)
    return y, list(letters)
""", """
import torch

def program(x):
    return x + 1

def run(program, x):
    return program(x), list(iter(memoryview(b"ab")))
""")],
    "SB011": [Remedy("deep recursion", """
import torch

def program(x, n=905):
    return x if n == 0 else program(x + 1, n - 1)
""", """
import torch

def program(x, n=905):
    for _ in range(n):
        x = x + 1
    return x
""")],
    "SB014": [Remedy("an iterator from outside", """
import itertools
import torch

def program(x, values):
    return x + next(values)

def run(program, x):
    return program(x, itertools.tee(map(abs, [1, 2, 3]))[0])
""", """
import torch

def program(x, values):
    return x + next(map(abs, values))

def run(program, x):
    return program(x, [1, 2, 3])
""")],
    "SB016": [Remedy("a backward pass that adds to a sparse gradient", """
import torch

WEIGHT = torch.ones(5, 3, requires_grad=True)

def program(x):
    (torch.nn.functional.embedding(torch.arange(2), WEIGHT, sparse=True).sum() * x.sum()).backward()
    return WEIGHT.grad.to_dense().sum()

def run(program, x):
    WEIGHT.grad = torch.zeros(5, 3).to_sparse()
    return program(x)
""", """
import torch

WEIGHT = torch.ones(5, 3, requires_grad=True)

def program(x):
    (torch.nn.functional.embedding(torch.arange(2), WEIGHT).sum() * x.sum()).backward()
    return WEIGHT.grad.sum()

def run(program, x):
    WEIGHT.grad = None
    return program(x)
""")],
    "SB017": [Remedy("a row of a CSR tensor", """
import torch

def program(x):
    return x[0].to_dense() + 1

def run(program, x):
    return program(x.to_sparse_csr())
""", """
import torch

def program(x):
    return x[0].to_dense() + 1

def run(program, x):
    return program(x.to_sparse_csr().to_sparse_coo())
""")],
    "SB018": [Remedy("a thread that is started inside", """
import threading
import torch

def program(x):
    threading.Thread(target=len, args=("",)).start()
    return x + 1
""", """
import threading
import torch

def program(x):
    return x + 1

def run(program, x):
    threading.Thread(target=len, args=("",)).start()
    return program(x)
""")],
    "SB019": [Remedy("a finalizer that is made inside", """
import weakref
import torch

class Handle:
    pass

HANDLE = Handle()

def program(x):
    weakref.finalize(HANDLE, len, "")
    return x + 1
""", """
import weakref
import torch

class Handle:
    pass

HANDLE = Handle()

def program(x):
    return x + 1

def run(program, x):
    weakref.finalize(HANDLE, len, "")
    return program(x)
""")],
    "SB020": [Remedy("the line of an exception", """
import torch

def failed():
    try:
        raise ValueError("outside")
    except ValueError as error:
        return error

def program(x, error):
    return x + error.__traceback__.tb_lineno * 0

def run(program, x):
    return program(x, failed())
""", """
import torch

def failed():
    try:
        raise ValueError("outside")
    except ValueError as error:
        return error

def program(x, line):
    return x + line * 0

def run(program, x):
    return program(x, failed().__traceback__.tb_lineno)
""")],
    "SB021": [Remedy("a string that changes with every call", """
import torch

SETTINGS = {"fullgraph": True, "recompile_limit": 2}

def program(x, name):
    return x + len(name)

def run(program, x):
    return [program(x, name) for name in ("a", "bc", "def", "ghij")]
""", """
import torch

SETTINGS = {"fullgraph": True, "recompile_limit": 2}

def program(x, length):
    return x + length

def run(program, x):
    return [program(x, len(name)) for name in ("a", "bc", "def", "ghij")]
""")],
    "SB022": [Remedy("a stance that is set inside", """
import stator

def program(x):
    with stator.set_stance("default"):
        return x + 1
""", """
import stator

def program(x):
    return x + 1

def run(program, x):
    with stator.set_stance("default"):
        return program(x)
""")],
    "SB023": [Remedy("a function that asks to be skipped", """
import stator

def scaled(x):
    stator.skip_frame()
    return x * 2

def program(x):
    return scaled(x) + 1
""", """
import torch

def scaled(x):
    return x * 2

def program(x):
    return scaled(x) + 1
""")],
    "SB024": [Remedy("a string that changed too often", """
import torch

SETTINGS = {"recompile_limit": 2}

def program(x, name):
    return x + len(name)

def run(program, x):
    return [program(x, name) for name in ("a", "bc", "def", "ghij")]
""", """
import torch

SETTINGS = {"recompile_limit": 2}

def program(x, length):
    return x + length

def run(program, x):
    return [program(x, len(name)) for name in ("a", "bc", "def", "ghij")]
""")],
    "SB025": [Remedy("a call under torch.jit.trace", """
import torch

SETTINGS = {"fullgraph": True}

def program(x):
    return x * 2 + 1

def run(program, x):
    return torch.jit.trace(program, x)(x)
""", """
import torch

SETTINGS = {"fullgraph": True}

def program(x):
    return x * 2 + 1

def run(program, x):
    return program(x)
""")],
}
