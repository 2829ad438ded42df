"""Take the program's TorchFunctionModes off torch's stack.   while Stator works, or a residual runs  ->  none is called

The trace has called modes and `__torch_function__` of subclasses already.  Hooks on saved tensors are taken off for a
capture alone: what a residual saves for the backward pass is theirs.
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
    """State that this thread's capture has taken off: modes, innermost last, `__torch_function__`, hooks."""

    modes: list[Any] = []
    functions: Any = None
    saved_hooks: list[Any] = []  # innermost first
    of_residual: list[Any] = []  # modes that the running residual puts on again


_aside = _Aside()


def function_modes() -> list[Any]:
    """Torch's stack, innermost last; reading does not disturb it."""
    return [C._get_function_stack_at(level) for level in range(C._len_torch_function_stack())]


def mode_around(level: int) -> Any:
    """A reader for guards and residuals: the program's mode of that level, also while a capture has taken it off."""
    return (_aside.modes or function_modes())[level]


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
    taken = _take_off()
    before, _aside.modes = _aside.modes, taken
    functions_before, _aside.functions = _aside.functions, C._get_torch_function_state()
    try:
        with C.DisableTorchFunctionSubclass(), _without_saved_hooks():
            yield
    finally:
        _aside.modes, _aside.functions = before, functions_before
        _put_on(taken)


@contextlib.contextmanager
def _without_saved_hooks() -> Iterator[None]:
    taken: list[Any] = []
    while C._autograd._saved_tensors_hooks_is_enabled() and \
            (hooks := C._autograd._top_saved_tensors_default_hooks(True)) is not None:
        taken.append(hooks)
        C._autograd._pop_saved_tensors_default_hooks()
    before, _aside.saved_hooks = _aside.saved_hooks, taken + _aside.saved_hooks
    try:
        yield
    finally:
        _aside.saved_hooks = before
        _push_hooks(taken)


def _push_hooks(taken: list[Any]) -> None:
    for hooks in reversed(taken):
        C._autograd._push_saved_tensors_default_hooks(*hooks)


def saved_hooks_around() -> bool:
    """Whether the program has hooks on saved tensors, also while a capture has taken them off."""
    hooks = C._autograd
    return bool(_aside.saved_hooks) or hooks._saved_tensors_hooks_is_enabled() and \
        hooks._top_saved_tensors_default_hooks(True) is not None


@contextlib.contextmanager
def put_back() -> Iterator[None]:
    """While a capture looks at the state of torch as the program has it."""
    taken, functions, hooks = _aside.modes, _aside.functions, _aside.saved_hooks
    now = C._get_torch_function_state()
    if functions is not None:
        C._set_torch_function_state(functions)
    _aside.modes, _aside.saved_hooks = [], []
    _put_on(taken)
    _push_hooks(hooks)
    try:
        yield
    finally:
        for _ in hooks:
            C._autograd._pop_saved_tensors_default_hooks()
        for _ in taken:
            C._pop_torch_function_stack()
        _aside.modes, _aside.saved_hooks = taken, hooks
        C._set_torch_function_state(now)


def unasked(residual: Callable[..., Any]) -> Callable[..., Any]:
    """A residual whose operations no mode sees: it was traced with them."""
    def run(*values: object) -> Any:
        taken = _take_off()
        before, _aside.of_residual = _aside.of_residual, taken
        try:
            return residual(*values)
        finally:
            _aside.of_residual = before
            _put_on(taken)
    return run


def leave_modes(dropped: int, *entered: object) -> None:
    """Called by a residual: its program has left the innermost modes, and others stay on."""
    taken = _aside.of_residual
    taken[len(taken) - dropped:] = entered
