"""Call compiled pieces without the code that AOTAutograd puts around each.   pieces  ->  one autograd.Function, or none

In: the steps of a graph whose pieces write to nothing outside and return no views: then a pass takes the inputs of its
piece as they are, and what it returns are the outputs.  Out: a function that calls the forward passes one after the
other, and under it one node of autograd (`autograd_passes.py`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from stator.backends.aot_wrappers import takes_gradient
from stator.backends.autograd_passes import Direct, JoinedPasses, Record, unrecorded
from stator.backends.inner_calls import Passes
from stator.backends.regions.extraction import Piece, wants_grad
from stator.backends.regions.flow import Flow
from stator.backends.regions.stitching import stitch
from stator.graph.state.torch_state import C

COMPILED_IN = frozenset([id(setter) for setter in (
    C._set_grad_enabled, C.set_autocast_enabled, C.set_autocast_dtype, C.set_autocast_cache_enabled)])


def direct_passes(passes: Passes, meta: Any, inputs: int, outputs: Sequence[Any] = (), writes: bool = False
                  ) -> Direct | None:
    """None where AOTAutograd does more than to call the passes; `writes`: a pass may write to its inputs itself."""
    if passes.doubled or passes.unrecordable or meta is None or has_work_around(meta, writes) or any(
            count != inputs for kind, (count, _) in passes.found.items() if kind != "backward"):
        return None
    if "inference" in passes.found:
        return Direct(passes.found["inference"][1], outputs=meta.num_outputs)
    if passes.found.keys() != {"forward", "backward"} or meta.num_symints_saved_for_bw:
        return None
    places = tuple([place for place, info in enumerate(meta.output_info) if takes_gradient(info)])
    expected = meta.subclass_tangent_meta
    if len(expected) != len(places):
        return None
    tangents = tuple([layout_of(each.memory_format, outputs[place] if outputs else None)
                      for each, place in zip(expected, places, strict=True)])
    if None in tangents:
        return None
    return Direct(passes.found["forward"][1], passes.found["backward"][1], meta.num_outputs, places, tangents)


def layout_of(expected: object, output: torch.Tensor | None) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """Size and stride that a backward pass expects of a gradient; torch 2.11 knows a memory format of the output."""
    if (stride := getattr(expected, "stride", None)) is not None:
        return tuple(expected.size), tuple(stride)  # type: ignore[attr-defined]
    if output is None or not isinstance(kind := getattr(expected, "memory_format", None), torch.memory_format):
        return None
    size = tuple(output.shape)
    if not all(type(each) is int for each in size):
        return None
    return size, torch.empty(size, device="meta", memory_format=kind).stride()


def has_work_around(meta: Any, writes: bool) -> bool:
    counts = ("num_mutated_inp_runtime_indices", "num_outputs_aliased", "num_intermediate_bases", "tokens",
              "is_rng_op_functionalized", "num_graphsafe_rng_states", "num_backward_tokens",
              "num_opaque_objects_saved_for_bw")
    return any(getattr(meta, name, 0) for name in counts) or meta.grad_enabled_mutation is not None \
        or any(info.mutates_data and not writes or info.mutates_metadata for info in meta.input_info)


def join_directly(flow: Flow, steps: list[Piece | fx.Node], record: Record = unrecorded) -> Callable[..., Any] | None:
    """None where some piece needs AOTAutograd's own code; `record` gets each function over all pieces."""
    pieces = [step for step in steps if isinstance(step, Piece)]
    between = [step for step in steps if isinstance(step, fx.Node)]
    if any(piece.direct is None for piece in pieces) or between and not are_compiled_in(flow, between):
        return None
    autocast = torch._C._DisableAutocast if torch._C._is_any_autocast_enabled() else contextlib.nullcontext
    results = flow.output.args[0]
    plain = isinstance(results, (tuple, list)) and all(isinstance(node, fx.Node) for node in results) \
        and not any(node.op == "placeholder" for node in results) and len(set(results)) == len(results)
    if any(piece.direct.backward is not None for piece in pieces):
        return with_backward(flow, pieces, list(results), autocast, record) if plain else None
    if record is not unrecorded and not plain:
        return None
    stitched = stitch(flow, list(pieces), directly=True)

    def run_all(args: list[object]) -> object:
        given = tuple(args)
        args.clear()
        return stitched(*given)

    if record is not unrecorded:
        recorded = record("inference", run_all, 0)

    def run(*args: object) -> Any:
        with torch.no_grad(), autocast():
            return stitched(*args) if record is unrecorded else recorded(list(args))

    return run


def are_compiled_in(flow: Flow, setters: list[fx.Node]) -> bool:
    """Whether the passes between these nodes have their effect in them, and nothing of it is left behind the graph."""
    return all(id(node.target) in COMPILED_IN for node in setters) and flow.states[0] == flow.states[-1]


def with_backward(flow: Flow, pieces: list[Piece], results: list[fx.Node], autocast: Callable[[], Any],
                  record: Record) -> Callable[..., Any]:
    numbered = {node: number for number, node in enumerate(flow.inputs)}
    for piece in pieces:
        for node in piece.outputs:
            numbered[node] = len(numbered)
    unused = [number for number, node in enumerate(results) if not wants_grad(flow.value(node))]
    last = {numbered[node]: number for number, piece in enumerate(pieces) for node in piece.inputs}
    steps = [(piece.direct, [numbered[node] for node in piece.inputs], [numbered[node] for node in piece.outputs],
              [numbered[node] for node in dict.fromkeys(piece.inputs)
               if node.op != "placeholder" and last[numbered[node]] == number and node not in results])
             for number, piece in enumerate(pieces)]
    returned = [numbered[node] for node in results]
    joined = JoinedPasses(len(flow.inputs), len(numbered), steps, returned, unused, autocast)
    joined.build(record)
    return joined
