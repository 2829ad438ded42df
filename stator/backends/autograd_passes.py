"""Passes of compiled graphs under one node of autograd.   passes  ->  a function that calls them one after the other

In: forward and backward passes, and the numbers of the values between them.  Out: a function; the backward of its node
calls the backward passes in reverse order.  Gradients are added as autograd would: that of the piece behind first.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from stator.backends.inner_calls import Boxed

Record = Callable[[str, Boxed, int], Boxed]  # a pass, and how many of its first inputs the forward pass has saved


def unrecorded(kind: str, run: Boxed, saved: int = 0) -> Boxed:
    return run


@dataclass(frozen=True)
class Direct:
    """A compiled piece: its passes, and what is known of its outputs."""

    forward: Boxed
    backward: Boxed | None = None
    outputs: int = 0
    differentiable: tuple[int, ...] = ()  # outputs that have gradients
    tangents: tuple[Any, ...] = ()  # for each of those: size, stride, dtype and device of its gradient


@dataclass(eq=False)
class JoinedPasses:
    """Passes that run one after the other under one node of autograd; values have numbers, inputs first."""

    inputs: int
    count: int
    steps: list[tuple[Direct, list[int], list[int], list[int]]]  # numbers it takes, makes, and is the last to need
    returned: list[int]
    unused: list[int]  # places of results that need no gradient
    autocast: Callable[[], Any]

    def __call__(self, *args: object) -> object:
        return self.node.apply(*args)

    def build(self, record: Record = unrecorded) -> None:
        """Make the node; `record` gets each function over all passes."""
        saved_by: list[int] = []  # how many tensors each piece saves, the same in every call
        kinds: dict[int, Any] = {}  # dtype and device of each value, too
        returned, unused, autocast = self.returned, self.unused, self.autocast

        def run_forward(args: list[Any]) -> list[Any]:
            """The results, and behind them what is saved; `args` is emptied."""
            values = [*args, *[None] * (self.count - self.inputs)]
            args.clear()
            saved: list[Any] = []
            counts = []
            for direct, given, made, gone in self.steps:
                out = direct.forward([values[number] for number in given])
                for place, number in enumerate(made):
                    values[number] = out[place]
                    if number not in kinds:
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

        forward_pass = record("forward", run_forward, 0)
        backward_passes: dict[tuple[int, ...], Boxed] = {}

        class Pieces(torch.autograd.Function):
            _aot_id = -1  # what `double_backward` knows compiled nodes by

            @staticmethod
            def forward(ctx: Any, *args: object) -> Any:
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
                    backward_passes[wanted] = record("backward", functools.partial(run_backward, wanted), sum(saved_by))
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
