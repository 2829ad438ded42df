"""Backends that pass the graph through AOTAutograd and run the result eagerly.

In: a graph module of torch functions.  Out: a callable that runs functionalised ATen graphs, with a backward
graph where an input requires grad and grad mode is on.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Sequence
from types import ModuleType
from typing import Any

import torch
from torch._guards import TracingContext

from stator.backends.aot_rules import draws_in_place, eager_streams
from stator.backends.inner_calls import keep_pass
from stator.graph.fx.graph_modules import straight_function, write_code
from stator.settings.options import Settings


def load_autograd() -> ModuleType:
    """AOTAutograd, which loads torch's own tracer: only those who use it should wait for it."""
    return importlib.import_module("torch._functorch.aot_autograd")


def load_partition() -> Any:
    return importlib.import_module("torch._functorch.partitioners").min_cut_rematerialization_partition


def run_as_is(kind: str, shielded: bool, gm: torch.fx.GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
    """The compiler for AOTAutograd that compiles nothing; `shielded`: run the graph with autocast off.

    Detach results that are views of temporary tensors: autograd would refuse to have them changed in place.  Call the
    operators themselves: FX's code finds them by name at each call, where the program may have replaced them.
    """
    forward = straight_function(gm, located=True)

    def run(*args: object) -> Any:
        if kind == "backward" and torch._C._is_any_autocast_enabled():
            return Casting(gm).run(*args)
        with torch._C._DisableAutocast() if shielded else contextlib.nullcontext():
            given = set(map(id, args))  # which are returned as they are: the class of a wrapper may know them
            return [each if id(each) in given else detach_view(each) for each in forward(*args)]

    return keep_pass(kind, len(example_inputs), load_autograd().make_boxed_func(run))  # type: ignore[no-any-return]


class Casting(torch.fx.Interpreter):
    """Run a backward pass under autocast: autograd casts each gradient to the dtype of its tensor."""

    def run_node(self, n: torch.fx.Node) -> Any:
        result, example = super().run_node(n), n.meta.get("val")
        if isinstance(result, (tuple, list)) and n.op != "output":
            return type(result)([as_traced(*pair) for pair in zip(result, example, strict=True)])
        return as_traced(result, example)


def as_traced(value: Any, example: Any) -> Any:
    return value.to(example.dtype) if isinstance(value, torch.Tensor) and value.dtype != example.dtype else value


@contextlib.contextmanager
def compilers(gm: torch.fx.GraphModule) -> Iterator[dict[str, Any]]:
    """The compilers of AOTAutograd's graphs; the graph turns autocast on itself, for its forward pass alone."""
    kinds = [kind for kind in ("cpu", "cuda") if torch.is_autocast_enabled(kind)]
    if kinds:
        *_, first = gm.graph.find_nodes(op="placeholder") or [gm.graph._root]
        for kind in kinds:
            with gm.graph.inserting_after(first):
                gm.graph.call_function(torch.set_autocast_enabled, (kind, True))
            with gm.graph.inserting_before(gm.graph.output_node()):
                gm.graph.call_function(torch.set_autocast_enabled, (kind, False))
            torch.set_autocast_enabled(kind, False)
        write_code(gm)
    try:
        yield {"fw_compiler": functools.partial(run_as_is, "forward", bool(kinds)),
               "bw_compiler": functools.partial(run_as_is, "backward", False),
               "inference_compiler": functools.partial(run_as_is, "inference", bool(kinds))}
    finally:
        for kind in kinds:
            torch.set_autocast_enabled(kind, True)


def detach_view(value: object) -> object:
    return value.detach() if isinstance(value, torch.Tensor) and value._is_view() else value


def compile_aot_eager(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                      settings: Settings ) -> Callable[..., Any]:
    """AOTAutograd alone: shows whether a fault lies in it or in what follows."""
    return pass_through(gm, example_inputs, load_partition())


def compile_aot_eager_decomp_partition(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                                       settings: Settings ) -> Callable[..., Any]:
    """AOTAutograd with Inductor's decompositions and partitioning, but without its code generation."""
    # Inductor takes seconds to import, and only those who use it should wait for it.
    compile_fx = importlib.import_module("torch._inductor.compile_fx")
    partition = functools.partial(load_partition(), compiler="inductor")
    return pass_through(gm, example_inputs, partition, compile_fx.select_decomp_table)


def pass_through(gm: torch.fx.GraphModule, example_inputs: Sequence[Any], partition: Callable[..., Any],
                 decompositions: Callable[[], object] = lambda: None) -> Callable[..., Any]:
    with eager_streams(gm), compilers(gm) as given:  # the decompositions of draws depend on the streams
        compiled = load_autograd().aot_module_simplified(
            gm, example_inputs, **given, decompositions=decompositions(), partition_fn=draws_in_place(partition),
            keep_inference_input_mutations=True)
    context = TracingContext.try_get()
    if context is not None and context.fw_metadata is not None:
        context.fw_metadata.bw_donated_idxs = []  # nobody reuses saved buffers here: a kept graph can run again
    return compiled  # type: ignore[no-any-return]


def failed_in_autograd(error: BaseException) -> bool:
    """Whether a backend failed where AOTAutograd traces the graph, and not in a compiler of what it traced."""
    traceback = error.__cause__.__traceback__ if error.__cause__ is not None else None
    last = ""
    while traceback is not None:
        name = traceback.tb_frame.f_globals.get("__name__", "")
        last = name if name.startswith(("torch._functorch._aot_autograd", "torch._inductor")) else last
        traceback = traceback.tb_next
    return last.startswith("torch._functorch")
