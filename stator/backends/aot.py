"""Backends that pass the graph through AOTAutograd and run the result eagerly.

In: a graph module of torch functions.  Out: a callable that runs functionalised ATen graphs, with a backward
graph where an input requires grad and grad mode is on.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import torch

from stator.backends.inner_calls import keep_pass
from stator.backends.random_draws import draws_in_place, eager_streams
from stator.backends.saved_values import saving_values
from stator.graph.fx.graph_modules import straight_function
from stator.settings.options import Settings


def load_autograd() -> ModuleType:
    """AOTAutograd, which loads torch's own tracer: only those who use it should wait for it."""
    return importlib.import_module("torch._functorch.aot_autograd")


def load_partition() -> Any:
    return importlib.import_module("torch._functorch.partitioners").min_cut_rematerialization_partition


def run_as_is(kind: str, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler of AOTAutograd's graphs that compiles nothing.

    Detach results that are views of temporary tensors (the inverse of a view that was written to): autograd would
    refuse to have them changed in place.  Call the operators themselves: FX's code finds them by name at each call,
    where the program may have put something else since.
    """
    forward = straight_function(gm, located=True)

    def run(*args: object) -> Any:
        return [detach_view(each) for each in forward(*args)]

    return keep_pass(kind, len(example_inputs), load_autograd().make_boxed_func(run))  # type: ignore[no-any-return]


# The compilers of AOTAutograd's graphs.
_COMPILERS: dict[str, Any] = {
    "fw_compiler": functools.partial(run_as_is, "forward"), "bw_compiler": functools.partial(run_as_is, "backward"),
    "inference_compiler": functools.partial(run_as_is, "inference"),
}


def detach_view(value: object) -> object:
    return value.detach() if isinstance(value, torch.Tensor) and value._is_view() else value


def compile_aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                      settings: Settings ) -> Callable[..., Any]:
    """AOTAutograd alone: shows whether a fault lies in it or in what follows."""
    with eager_streams(gm):
        return load_autograd().aot_module_simplified(  # type: ignore[no-any-return]
            gm,
            example_inputs,
            **_COMPILERS,
            partition_fn=draws_in_place(saving_values(load_partition(), gm, example_inputs)),
            keep_inference_input_mutations=True,
        )


def compile_aot_eager_decomp_partition(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                                       settings: Settings ) -> Callable[..., Any]:
    """AOTAutograd with Inductor's decompositions and partitioning, but without its code generation."""
    # Inductor takes seconds to import, and only those who use it should wait for it.
    compile_fx = importlib.import_module("torch._inductor.compile_fx")
    with eager_streams(gm):
        return load_autograd().aot_module_simplified(  # type: ignore[no-any-return]
            gm,
            example_inputs,
            **_COMPILERS,
            decompositions=compile_fx.select_decomp_table(),
            partition_fn=draws_in_place(saving_values(
                functools.partial(load_partition(), compiler="inductor"), gm, example_inputs)),
        )


def failed_in_autograd(error: BaseException) -> bool:
    """Whether a backend failed where AOTAutograd traces the graph, and not in a compiler of what it traced."""
    traceback = error.__cause__.__traceback__ if error.__cause__ is not None else None
    last = ""
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        last = name if name.startswith(("torch._functorch._aot_autograd", "torch._inductor")) else last
        traceback = traceback.tb_next
    return last.startswith("torch._functorch")
