"""Call a compiled graph past the monkeypatches of the program."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from stator.host.suspended_patches import ABSENT, find_patches, original, suspended

_RUNTIME = ("torch._functorch._aot_autograd.runtime_wrappers", "torch._functorch._aot_autograd.functional_utils")


@functools.cache
def runtime_names() -> frozenset[str]:
    """Members of Tensor that code around a compiled graph may use. Call it when a graph was compiled."""
    own = __name__.rpartition(".")[0]
    modules = [module for name, module in list(sys.modules.items()) if name in _RUNTIME or name.startswith(own)]
    return frozenset(name for module in modules for code in _codes(module) for name in code.co_names
                     if original(name) is not ABSENT)


def _codes(module: types.ModuleType) -> Iterator[types.CodeType]:
    pending: list[Any] = [value for value in vars(module).values()
                          if getattr(value, "__module__", "") == module.__name__]
    while pending:
        value = pending.pop()
        if isinstance(value, types.CodeType):
            yield value
            pending += value.co_consts
        elif isinstance(value, type):
            pending += vars(value).values()
        elif isinstance(value, (staticmethod, classmethod)):
            pending.append(value.__func__)
        elif isinstance(value, types.FunctionType):
            pending.append(value.__code__)


def past_patches(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """Take monkeypatches of Tensor off while a graph runs: the wrappers around it call torch's own members."""
    def run(*args: object) -> Any:
        with suspended(find_patches()):
            return compiled(*args)

    return run
