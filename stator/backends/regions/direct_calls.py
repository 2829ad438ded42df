"""Call compiled pieces without the code that AOTAutograd puts around each.   pieces  ->  one autograd.Function, or none

In: the steps of a graph whose pieces write to nothing outside and return no views: then a pass takes the inputs of its
piece as they are, and what it returns are the outputs.  Out: a function that calls the forward passes one after the
other, and under it one node of autograd, whose backward calls the backward passes in reverse order.

Gradients are added in the order in which autograd would: that of the piece behind comes first.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.autograd.function import once_differentiable

from stator.backends.inner_calls import Boxed, Passes
from stator.backends.regions.extraction import Piece, wants_grad
from stator.backends.regions.flow import Flow
from stator.backends.regions.stitching import stitch

Record = Callable[[str, Boxed], Boxed]


def unrecorded(kind: str, run: Boxed) -> Boxed:
    return run


@dataclass(frozen=True)
class Direct:
    """A compiled piece: its passes, and what is known of its outputs."""

    forward: Boxed
    backward: Boxed | None = None
    outputs: int = 0
    differentiable: tuple[int, ...] = ()  # outputs that have gradients
    tangents: tuple[Any, ...] = ()  # for each of those: size, stride, dtype and device of its gradient


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


def takes_gradient(info: Any) -> bool:
    """Whether backward gets the gradient of an output; torch 2.11 has one field for this and `requires_grad`."""
    return bool(getattr(info, "requires_grad_for_backward", info.requires_grad))


def has_work_around(meta: Any, writes: bool) -> bool:
    counts = ("num_mutated_inp_runtime_indices", "num_outputs_aliased", "num_intermediate_bases", "tokens",
              "is_rng_op_functionalized", "num_graphsafe_rng_states", "num_backward_tokens",
              "num_opaque_objects_saved_for_bw")
    return any(getattr(meta, name, 0) for name in counts) or meta.grad_enabled_mutation is not None \
        or any(info.mutates_data and not writes or info.mutates_metadata for info in meta.input_info)


def join_directly(flow: Flow, steps: list[Piece | fx.Node], record: Record = unrecorded) -> Callable[..., Any] | None:
    """None where some piece needs AOTAutograd's own code; `record` gets each function over all pieces."""
    pieces = [step for step in steps if isinstance(step, Piece)]
    if any(piece.direct is None for piece in pieces) or len(pieces) != len(steps):
        return None
    autocast = torch._C._DisableAutocast if torch._C._is_any_autocast_enabled() else contextlib.nullcontext
    results = flow.output.args[0]
    plain = isinstance(results, (tuple, list)) and all(isinstance(node, fx.Node) for node in results) \
        and not any(node.op == "placeholder" for node in results) and len(set(results)) == len(results)
    if any(piece.direct.backward is not None for piece in pieces):
        return with_backward(flow, pieces, list(results), autocast, record) if plain else None
    if record is not unrecorded and not plain:
        return None
    stitched = stitch(flow, steps, directly=True)
    if record is not unrecorded:
        recorded = record("inference", lambda args: stitched(*args))

    def run(*args: Any) -> Any:
        with torch.no_grad(), autocast():
            return stitched(*args) if record is unrecorded else recorded(list(args))

    return run


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


@dataclass(eq=False)
class JoinedPasses:
    """Passes that run one after the other under one node of autograd; values have numbers, inputs first."""

    inputs: int
    count: int
    steps: list[tuple[Direct, list[int], list[int], list[int]]]  # numbers it takes, makes, and is the last to need
    returned: list[int]
    unused: list[int]  # places of results that need no gradient
    autocast: Callable[[], Any]

    def __call__(self, *args: Any) -> Any:
        return self.node.apply(*args)

    def build(self, record: Record = unrecorded) -> None:
        """Make the node; `record` gets each function over all passes."""
        saved_by: list[int] = []  # how many tensors each piece saves, the same in every call
        kinds: dict[int, Any] = {}  # dtype and device of each value, too
        returned, unused, autocast = self.returned, self.unused, self.autocast

        def run_forward(args: list[Any]) -> list[Any]:
            """The results, and behind them what is saved."""
            values = [*args, *[None] * (self.count - self.inputs)]
            saved: list[Any] = []
            counts = []
            for direct, given, made, gone in self.steps:
                out = direct.forward([values[number] for number in given])
                for place, number in enumerate(made):
                    values[number] = out[place]
                    kinds[number] = getattr(out[place], "dtype", None), getattr(out[place], "device", None)
                kept = out[direct.outputs:] if direct.backward is not None else ()
                counts.append(len(kept))
                saved += kept
                for number in gone:
                    values[number] = None
            saved_by[:] = counts
            return [*[values[number] for number in returned], *saved]

        def run_backward(wanted: tuple[int, ...], given: list[Any]) -> list[Any]:
            """`given`: what was saved, and the gradients of the results `wanted`; it is emptied on the way."""
            sums: list[Any] = [None] * self.count
            for number in reversed(wanted):
                sums[number] = given.pop()
            for (direct, taken, made, _), length in zip(reversed(self.steps), reversed(saved_by), strict=True):
                kept = given[len(given) - length:]
                del given[len(given) - length:]
                if direct.backward is None or all(sums[made[place]] is None for place in direct.differentiable):
                    continue
                for place, (size, stride) in zip(direct.differentiable, direct.tangents, strict=True):
                    kept.append(laid_out(sums[made[place]], size, stride, kinds[made[place]]))
                    sums[made[place]] = None
                for number, grad in zip(taken, direct.backward(kept), strict=True):
                    if grad is not None:
                        known = sums[number]
                        sums[number] = grad if known is None else known + grad
            return sums[:self.inputs]

        forward_pass = record("forward", run_forward)
        backward_passes: dict[tuple[int, ...], Boxed] = {}

        class Pieces(torch.autograd.Function):
            _aot_id = -1  # what `double_backward` knows compiled nodes by

            @staticmethod
            def forward(ctx: Any, *args: Any) -> Any:
                with autocast():
                    made = forward_pass(list(args))
                out = tuple(made[:len(returned)])
                ctx.save_for_backward(*[each.detach() if each._is_view() else each for each in made[len(returned):]])
                ctx.set_materialize_grads(False)
                ctx.mark_non_differentiable(*[out[number] for number in unused
                                              if isinstance(out[number], torch.Tensor)])
                return out

            @staticmethod
            @once_differentiable
            def backward(ctx: Any, *grads: Any) -> Any:
                wanted = tuple([number for number, grad in zip(returned, grads, strict=True) if grad is not None])
                if wanted not in backward_passes:
                    backward_passes[wanted] = record("backward", functools.partial(run_backward, wanted))
                given = [*ctx.saved_tensors, *[grad for grad in grads if grad is not None]]
                ctx.maybe_clear_saved_tensors()
                del grads
                with autocast():
                    return tuple(backward_passes[wanted](given))

        self.node = Pieces
        self.recorded = record is not unrecorded


def laid_out(grad: Any, size: tuple[int, ...], stride: tuple[int, ...], kind: tuple[Any, Any]) -> Any:
    """A gradient as the backward pass expects it."""
    if grad is None:
        return torch.empty_strided(size, stride, dtype=kind[0], device=kind[1]).zero_()
    if grad.stride() == stride:
        return grad
    return torch.empty_strided(size, stride, dtype=grad.dtype, device=grad.device).copy_(grad)
