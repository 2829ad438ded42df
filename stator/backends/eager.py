"""Backends that run the graph as it is.

In: a graph module.  Out: its own forward.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator.backends.number_checks import check_in_python
from stator.errors import BackendError
from stator.graph.fx.graph_modules import straight_function
from stator.settings.options import Settings


def compile_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], settings: Settings ) -> Callable[...,
                  Any]:
    branch_in_python(gm)
    return straight_function(gm)


def branch_in_python(gm: torch.fx.GraphModule) -> None:
    """Take one of two inner graphs by an `if`: the operator would trace both at each call that needs gradients."""
    for module in gm.modules():
        if isinstance(module, torch.fx.GraphModule):
            found = [node for node in module.graph.find_nodes(op="call_function", target=torch.ops.higher_order.cond)
                     if node.meta.get("is_branch")]
            for node in found:
                node.target = choose
            if check_in_python(module.graph) or found:
                module.recompile()


def choose(condition: Any, when_true: Any, when_false: Any, operands: tuple[Any, ...]) -> Any:
    return when_true(*operands) if condition else when_false(*operands)


def compile_eager_noexcept(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                           settings: Settings ) -> Callable[..., Any]:
    """Like "eager", for finding wrong captures: an exception in the graph is reported as the graph's fault,
    so that the program cannot take it for one of its own."""
    branch_in_python(gm)
    forward = straight_function(gm)

    def run(*args: object) -> Any:
        try:
            return forward(*args)
        except Exception as error:
            raise BackendError("eager_noexcept", f"the captured graph raised {error!r}") from error

    return run


# What runs the graph without FX's own code for it.
NEED_NO_CODE = (compile_eager, compile_eager_noexcept)
