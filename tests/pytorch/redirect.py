"""torch._dynamo's names lead to Stator.   redirect(); torch._dynamo.optimize("eager")(f)  ->  stator.compile(f)

In: a process that has not imported a test file yet.  Out: the names that PyTorch's tests use to compile, to break
and to mark are Stator's; what only torch._dynamo has (its guard managers, variables, logs, its export) stays its own, and a
test that asks for it fails.
"""

from __future__ import annotations

from typing import Any

import torch
import torch._dynamo
import torch._dynamo.backends.registry
import torch._dynamo.decorators
import torch._dynamo.eval_frame
import torch._dynamo.exc
import torch._dynamo.test_case
import torch._dynamo.testing

import stator
from stator import events

REPLACED: list[Any] = []  # kept alive: torch._dynamo knows functions by their ids


def reset() -> None:
    stator.reset()


def redirect() -> None:
    """For the rest of this process."""
    stator.install()
    dynamo, testing = torch._dynamo, torch._dynamo.testing
    dynamo.list_backends()  # those of its own register themselves with it, not with Stator
    torch._dynamo.backends.registry.lookup_backend("inductor")
    dynamo.reset = reset
    testing.optimize, testing.optimize_assert, testing.reset = dynamo.optimize, dynamo.optimize_assert, reset
    dynamo.eval_frame.optimize, dynamo.eval_frame.reset = dynamo.optimize, reset  # its optimize_assert serves torch
    dynamo.test_case.reset = reset
    for name in ("graph_break", "allow_in_graph", "assume_constant_result", "skip_frame",
                 "mark_dynamic", "maybe_mark_dynamic", "mark_static", "mark_static_address", "substitute_in_graph",
                 "register_backend"):
        if hasattr(stator, name):
            REPLACED.append(getattr(dynamo, name, None))
            setattr(dynamo, name, getattr(stator, name))
            if hasattr(dynamo.decorators, name):
                setattr(dynamo.decorators, name, getattr(stator, name))
    dynamo.decorators.mark_unbacked = stator.mark_unbacked
    dynamo.OptimizedModule = stator.CompiledModule
    count_events()


def count_events() -> None:
    """torch._dynamo.utils.counters counts Stator's breaks and graphs."""
    counters = torch._dynamo.utils.counters

    def count(event: object) -> None:
        if isinstance(event, events.GraphBreak):
            counters["graph_break"][event.cause] += 1
        elif isinstance(event, events.CaptureFinished) and event.graph is not None:
            counters["stats"]["unique_graphs"] += 1
            counters["stats"]["calls_captured"] += sum("call" in node.op for node in event.graph.graph.nodes)

    events.subscribe(count)
