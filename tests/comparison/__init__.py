"""The one comparator of eager and compiled calls.

value_snapshot.py      any value as plain data, and the differences between two of them
call_outcome.py        one call, and a snapshot of everything that can be observed of it
eager_and_compiled.py  a program run on both sides over a list of calls; the differences and Stator's events
injected_faults.py     defects that each comparison must find (test_comparison.py)
"""

from tests.comparison.call_outcome import CLOSE, EXACT, Call, Checks, Surroundings, observe_call, tensors_in
from tests.comparison.eager_and_compiled import (
    GraphCounter,
    Inputs,
    Programs,
    Report,
    World,
    call,
    compare_worlds,
    fresh_inputs,
    identity,
    identity_mode,
    outcomes,
    require_same,
    same_as_eager,
    stator_compiler,
)
from tests.comparison.value_snapshot import Snapshot, Snapshotter, differences, without_addresses

__all__ = [
    "CLOSE", "EXACT", "Call", "Checks", "GraphCounter", "Inputs", "Programs", "Report", "Snapshot", "Snapshotter",
    "Surroundings", "World", "call", "compare_worlds", "differences", "fresh_inputs", "identity", "identity_mode",
    "observe_call", "outcomes", "require_same", "same_as_eager", "stator_compiler", "tensors_in", "without_addresses",
]  # fmt: skip
