"""Keep the arguments of calls that are captured.   with kept_calls() as kept: ...  ->  functions and calls

In: compiled functions of a program that runs.  Out: for each, the first calls that no entry accepted, with copies of
their tensors.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from stator.capture import miss
from stator.remedies.recorded_calls import Call
from stator.report.names import PLUMBING, is_module, short

MOST_CALLS, MOST_SITES = 4, 20


@dataclass
class Kept:
    """A compiled function and calls of it."""

    name: str
    fn: Callable[..., object]
    calls: list[Call] = field(default_factory=list)


def _copied(value: object) -> object:
    if not isinstance(value, torch.Tensor) or isinstance(value, torch.nn.Parameter):
        return value
    return value.detach().clone().requires_grad_(value.requires_grad)


@contextlib.contextmanager
def kept_calls() -> Iterator[dict[int, Kept]]:
    """Keep calls while the block runs."""
    found: dict[int, Kept] = {}
    handle = miss.handle_miss

    def keep(site: object, fn: types.FunctionType, args: tuple[object, ...], kwargs: dict[str, object]) -> None:
        whole = fn.__name__ in PLUMBING and args and is_module(args[0])
        if id(site) not in found and len(found) >= MOST_SITES:
            return
        callee: object = args[0] if whole else fn
        assert callable(callee)
        kept = found.setdefault(id(site), Kept(short(getattr(site, "name", "?")), callee))
        if len(kept.calls) < MOST_CALLS:
            args, kwargs = pytree.tree_map(_copied, (args[1:] if whole else args, kwargs))
            kept.calls.append(Call(args, kwargs))

    def watch(site, compiled, bound, args, kwargs):  # type: ignore[no-untyped-def]
        if site.point is None:
            with torch.no_grad(), torch._C.DisableTorchFunction():
                keep(site, site.fn, args, kwargs or {})
        return handle(site, compiled, bound, args, kwargs)

    miss.handle_miss = watch
    try:
        yield found
    finally:
        miss.handle_miss = handle
