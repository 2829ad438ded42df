"""`import stator` and `compile()` are light; the first call loads the tracer, whatever the program has done by then.

Each program runs in a new interpreter: a process loads the tracer once.
"""

from __future__ import annotations

from tests.own_process import in_new_interpreters

LIGHT = """
import sys, torch, torch.nn as nn
before = set(sys.modules)
import stator
assert len(set(sys.modules) - before) < 10, set(sys.modules) - before

stator.compile(lambda x: x + 1)
stator.compile(lambda x: x + 1, backend="eager", fullgraph=True, dynamic=True)
stator.compile(mode="reduce-overhead")(lambda x: x)
stator.compile(options={"shapes": {"x": {0: "batch"}}})(lambda x: x)
stator.compile(nn.Linear(2, 2))
stator.compile_in_place(nn.Linear(2, 2))
stator.disable(lambda x: x), stator.Dim("n", max=4), stator.mark_dynamic(torch.ones(3), 0), stator.reset()
stator.config.recompile_limit = 4
stator.install()
torch.compile(lambda x: x + 1)
stator.uninstall()
heavy = ("torch._dynamo", "torch._inductor", "sympy", "rich", "stator.interp", "stator.library", "stator.native",
         "stator.graph", "stator.heap", "stator.emit")
assert not [name for name in sys.modules if name.startswith(heavy)], [name for name in sys.modules if name.startswith(heavy)]

for wrong in ({"backend": "indctor"}, {"mode": "fast"}, {"recompile_limit": 0}, {"backend": "eager", "mode": "max-autotune"}):
    try:
        stator.compile(lambda x: x, **wrong)
    except stator.StatorError:
        continue
    raise AssertionError(wrong)
"""

FIRST_CALL = """
import random, warnings
from unittest import mock
import numpy, torch
from torch.overrides import TorchFunctionMode
import stator

class Watching(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))

def drawn(x):
    warnings.warn("drawn")
    return x + random.random() + numpy.sqrt(4.0)

seen = []
def note(message):
    seen.append(message)

compiled = stator.compile(drawn, backend="eager")
random.seed(3)
state = random.getstate()
with mock.patch.object(random, "random", lambda: 0.25), mock.patch.object(warnings, "warn", note), \\
        torch.inference_mode(), torch.device("meta"), Watching():
    found = compiled(torch.ones(2, device="cpu"))
    assert found.device.type == "cpu" and found.tolist() == [3.25, 3.25], found
    assert random.random() == 0.25 and warnings.warn is note and seen == ["drawn"], seen
assert random.getstate() == state and not torch.is_inference_mode_enabled()

# The tables have the library's own functions, and no tensor that a mode has made.
import gc
made = [each for each in gc.get_objects() if type(each) is torch.Tensor]
assert not [each for each in made if each.is_meta or each.is_inference() and each is not found], made
compiled = stator.compile(drawn, backend="eager", fullgraph=True)
random.seed(3)
expected = drawn(torch.ones(2))
random.seed(3)
with warnings.catch_warnings(record=True) as shown:
    warnings.simplefilter("always")
    assert torch.equal(compiled(torch.ones(2)), expected)
assert [str(each.message) for each in shown] == ["drawn"] and seen == ["drawn"]

x = torch.ones(2, requires_grad=True)
total = stator.compile(lambda x: (x * 2).add_(1).sum(), backend="aot_eager")(x)
total.backward()
assert x.grad.tolist() == [2.0, 2.0]
"""

STANCES_AND_THREADS = """
import sys, threading, torch
import stator
from stator import events

compiled = stator.compile(lambda x: x + 1, backend="eager")
with stator.set_stance("force_eager"), events.record() as log:
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
assert [type(event) for event in log] == [events.EagerFallback], log
assert "stator.interp" not in sys.modules

others = [stator.compile(lambda x, n=n: x * n, backend="eager") for n in range(6)]
results, barrier = [], threading.Barrier(6)
def run(n):
    barrier.wait()
    results.append((n, others[n](torch.ones(2)).tolist(), compiled(torch.ones(2)).tolist()))
threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
[each.start() for each in threads], [each.join() for each in threads]
assert sorted(results) == [(n, [float(n)] * 2, [2.0, 2.0]) for n in range(6)], results

graphs = []
with stator.set_stance(force_backend=lambda gm, inputs: graphs.append(gm) or gm.forward):
    assert compiled(torch.ones(2)).tolist() == [2.0, 2.0]
assert len(graphs) == 1
stator.reset()
assert compiled(torch.ones(2)).tolist() == [2.0, 2.0] and len(compiled.entries()) == 1
"""


PACKAGES = """
import stator
assert {"errors", "events", "report"} <= set(dir(stator))
with stator.events.record() as log:
    pass
assert log == [] and stator.errors.StatorError is stator.StatorError and stator.report.__name__ == "stator.report"
"""


def test_packages_of_the_documentation_are_found_after_import_stator():
    in_new_interpreters(["-c", PACKAGES])


def test_import_and_compile_load_no_tracer():
    in_new_interpreters(["-c", LIGHT])


def test_the_first_call_in_modes_and_beside_replaced_functions():
    in_new_interpreters(["-c", FIRST_CALL])


def test_stances_before_the_first_call_and_threads_that_make_it_at_once():
    in_new_interpreters(["-c", STANCES_AND_THREADS])
