"""Take the program's TorchFunctionModes off torch's stack.   while Stator works, or a residual runs  ->  none is asked

What a trace, a backend and a residual do with tensors is none of a mode's business: the trace has asked it already.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._device import DeviceContext

C: Any = torch._C


class _Aside(threading.local):
    """The modes that this thread's capture has taken off, innermost last."""

    modes: list[Any] = []


_aside = _Aside()


def function_modes() -> list[Any]:
    """Torch's stack, innermost last; reading does not disturb it."""
    return [C._get_function_stack_at(level) for level in range(C._len_torch_function_stack())]


def _take_off() -> list[Any]:
    """Every mode; none where a default device is all there is, which the recorder plays itself."""
    modes = function_modes()
    if all(type(mode) is DeviceContext for mode in modes):
        return []
    for _ in modes:
        C._pop_torch_function_stack()
    return modes


def _put_on(modes: list[Any]) -> None:
    for mode in modes:
        C._push_on_torch_function_stack(mode)


@contextlib.contextmanager
def set_aside() -> Iterator[None]:
    """While a call is captured."""
    taken = _take_off()
    if not taken:
        yield
        return
    before, _aside.modes = _aside.modes, taken
    try:
        yield
    finally:
        _aside.modes = before
        _put_on(taken)


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """While a capture looks at the state of torch as the program has it."""
    taken = _aside.modes
    if not taken:
        yield
        return
    _aside.modes = []
    _put_on(taken)
    try:
        yield
    finally:
        for _ in taken:
            C._pop_torch_function_stack()
        _aside.modes = taken


def unasked(residual: Callable[..., Any]) -> Callable[..., Any]:
    """A residual whose operations no mode sees: it was traced with them."""
    def run(*values: Any) -> Any:
        taken = _take_off()
        try:
            return residual(*values)
        finally:
            _put_on(taken)
    return run
