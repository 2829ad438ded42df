"""Run a program with graph breaks eagerly and compiled.   compare(program, args_of_each_call)  ->  Report, after asserting equality

All frames of an exception's traceback are compared: a break leaves no frame of Stator's behind.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

from tests.comparison import (
    Checks,
    Report,
    Surroundings,
    World,
    compare_worlds,
    require_same,
    stator_compiler,
)

CHECKS = Checks(traceback="frames")


def compare(program: Callable[..., Any], calls: Sequence[Sequence[Any]], checks: Checks = CHECKS, **settings: Any) -> Report:
    """Every call compiled equals the same call eager."""
    module = program.__module__ if isinstance(program, types.FunctionType) else type(program).__module__
    world = World(program, [tuple(args) for args in calls], Surroundings(module, getattr(program, "__code__", compare.__code__).co_filename))
    return require_same(compare_worlds(lambda: world, stator_compiler(**settings), checks=checks))
