"""Programs that are compiled again, and the same programs with the remedy applied, for the page of recompiles.

In: nothing.  Out: `RECOMPILES`: for each cause two sources that define `program` and `run(program, x)`, which makes the
calls.  A test runs both: the first is compiled again, the second once, with equal results.
"""

from __future__ import annotations

from stator.report.break_remedies import Remedy

RECOMPILES = [
    Remedy("x was float32[2, 3], is float32[3, 3]: a size changes", """
def program(x):
    return x * x.shape[0]

def run(program, x):
    return [program(x[:n]) for n in (2, 3)]
""", """
import stator

def program(x):
    return x * x.shape[0]

def run(program, x):
    results = []
    for n in (2, 3):
        batch = x[:n].clone()
        stator.mark_dynamic(batch, 0)
        results.append(program(batch))
    return results
"""),
    Remedy("model.scale was 1.0, is 0.5: a number of the model changes", """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 1.0

    def forward(self, x):
        return x * self.scale

program = Scaled()

def run(compiled, x):
    results = []
    for scale in (1.0, 0.5):
        program.scale = scale
        results.append(compiled(x))
    return results
""", """
import torch

class Scaled(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.tensor(1.0))

    def forward(self, x):
        return x * self.scale

program = Scaled()

def run(compiled, x):
    results = []
    for scale in (1.0, 0.5):
        program.scale.fill_(scale)
        results.append(compiled(x))
    return results
"""),
    Remedy("STEP was 0, is 1: a global counter changes", """
STEP = 0

def program(x):
    global STEP
    STEP += 1
    return x / STEP

def run(program, x):
    global STEP
    STEP = 0
    return [program(x), program(x)]
""", """
import torch

STEP = torch.zeros(())

def program(x):
    STEP.add_(1)
    return x / STEP

def run(program, x):
    STEP.zero_()
    return [program(x), program(x)]
"""),
    Remedy("name was 'a', is 'bc': a string or another object changes", """
def program(x, name):
    return x + len(name)

def run(program, x):
    return [program(x, name) for name in ("a", "bc")]
""", """
import torch

def program(x, length):
    return x + length

def run(program, x):
    return [program(x, torch.tensor(len(name))) for name in ("a", "bc")]
"""),
    Remedy("mask was None, is a tensor float32[3, 3]: an argument is optional", """
def program(x, mask=None):
    return x if mask is None else x * mask

def run(program, x):
    return [program(x), program(x, mask=(x > 0).float())]
""", """
import torch

def program(x, mask):
    return x * mask

def run(program, x):
    return [program(x, torch.ones_like(x)), program(x, (x > 0).float())]
"""),
    Remedy("options['bias'] was 1.5, is gone: a key is missing", """
def program(x, options):
    return x + options.get("bias", 0.0)

def run(program, x):
    return [program(x, {"bias": 1.5}), program(x, {})]
""", """
import torch

def program(x, options):
    return x + options["bias"]

def run(program, x):
    return [program(x, {"bias": torch.tensor(bias)}) for bias in (1.5, 0.0)]
"""),
    Remedy("torch.is_grad_enabled() was False, is True: a setting of torch changes", """
import torch

def program(x):
    return x.sin()

def run(program, x):
    with torch.no_grad():
        checked = program(x)
    return [program(x), checked]
""", """
import torch

def program(x):
    return x.sin()

def run(program, x):
    return [program(x), program(x).detach()]
"""),
    Remedy("iter(model) had 2 items left, has 1: a loop goes over a graph break", """
import torch

program = torch.nn.Sequential(*[torch.nn.Identity()] * 3)
program[0].register_forward_hook(lambda module, args, result: result if result.sum() > 1e9 else result + 1)

def run(program, x):
    return program(x)
""", """
import torch

program = torch.nn.Sequential(*[torch.nn.Identity()] * 3)
program[0].register_forward_hook(
    lambda module, args, result: torch.where(result.sum() > 1e9, result, result + 1))

def run(program, x):
    return program(x)
"""),
]
