"""Backends that run the graph as it is.

In: a graph module.  Out: its own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator.errors import BackendError
from stator.options import Settings


def compile_eager(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings
) -> Callable[..., Any]:
    """Run the captured operators one by one."""
    return gm.forward


def compile_eager_noexcept(
    gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings
) -> Callable[..., Any]:
    """Like "eager", for finding wrong captures: an exception in the graph is reported as the graph's fault,
    so that the program cannot take it for one of its own."""

    def run(*args: Any) -> Any:
        try:
            return gm.forward(*args)
        except Exception as error:
            raise BackendError("eager_noexcept", f"the captured graph raised {error!r}") from error

    return run
