"""Random integer programs over sizes: equal to eager on every shape, and guarded by exactly what they decided."""

from __future__ import annotations

import os
import random
from typing import Any

import torch
from counting import same
from hypothesis import HealthCheck, Phase, given, settings
from programs import build, programs

import stator

EXAMPLES = int(os.environ.get("STATOR_EXAMPLES", "10"))
SHAPES = 50
quick = settings(max_examples=EXAMPLES, deadline=None, derandomize=True, print_blob=True,
                 suppress_health_check=list(HealthCheck), phases=(Phase.explicit, Phase.generate))


def calls(count: int, seed: int = 0) -> list[tuple[torch.Tensor, int]]:
    chance = random.Random(seed)
    return [(torch.arange(float(rows * columns)).reshape(rows, columns), chance.randint(-4, 30))
            for rows, columns in ((chance.choice((1, 2, 3, 4, 8, 16, chance.randint(1, 40))), chance.randint(1, 9))
                                  for _ in range(count))]


def outcome(fn: Any, args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error).__name__, str(error)


@quick
@given(programs())
def test_equal_to_eager_on_fifty_shapes(text):
    program = build(text)
    compiled = stator.compile(program, backend="eager", dynamic=True, recompile_limit=200, options={"strict": True})
    for args in calls(SHAPES):
        want, got = outcome(program, args), outcome(compiled, args)
        assert same(want, got), f"{tuple(args[0].shape)}, {args[1]}: {got} instead of {want}\n{text}"


@quick
@given(programs())
def test_guards_accept_what_was_traced_and_reject_other_paths(text):
    program = build(text)
    traced, *others = calls(12, seed=1)
    compiled = stator.compile(program, backend="eager", dynamic=True, options={"strict": True})
    if isinstance(outcome(program, traced)[0], str):
        return  # it raises: there is no path
    path = program(*traced)[0]
    compiled(*traced)
    guards, _, _ = compiled.entries()[0]
    assert guards.check(traced) == -1
    for args in others:
        found = outcome(program, args)
        if isinstance(found[0], str) or found[0] != path:
            assert guards.check(args) != -1, f"{tuple(args[0].shape)}, {args[1]} takes another path\n{text}"
