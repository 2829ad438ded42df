"""Recorded calls of one function, and like ones with other numbers.

In: a function of the user and the arguments of calls of it.  Out: outcomes of the calls in their order, eager or
compiled; afterwards the state of the program is the same as before.

A perturbation writes other numbers into the tensors that the calls reach; shapes, types and everything else stay.
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import random
import sys
import threading
import time
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch.utils import _pytree as pytree

from stator.audit.checkpoint import Checkpoint
from stator.audit.comparison import Outcome, run
from stator.audit.reach import Reached, reach

Perturbation = Callable[[torch.Tensor], torch.Tensor]


@dataclass(frozen=True)
class Call:
    """The arguments of one call."""

    args: tuple[object, ...] = ()
    kwargs: Mapping[str, object] = field(default_factory=dict)


def _noise(tensor: torch.Tensor) -> torch.Tensor:
    generator = torch.Generator().manual_seed(tensor.numel())
    return tensor + torch.randn(tensor.shape, generator=generator, dtype=torch.float64).to(tensor)


def _spike(value: float) -> Perturbation:
    def spiked(tensor: torch.Tensor) -> torch.Tensor:
        changed = tensor.clone()
        changed.reshape(-1)[:1] = value
        return changed
    return spiked


Added = Callable[[Call], Mapping[str, object]]  # further arguments of a call
NUMBERS: tuple[tuple[str, Perturbation], ...] = (
    ("negated", torch.neg), ("with noise", _noise), ("times 100", lambda tensor: tensor * 100),
    ("times 0.001", lambda tensor: tensor * 0.001), ("zero", torch.zeros_like),
    ("positive", lambda tensor: tensor.abs() + 1), ("negative", lambda tensor: -tensor.abs() - 1),
    ("one large number", _spike(1e6)), ("ones", torch.ones_like), ("sorted", lambda tensor: tensor.sort(-1).values
                                                                    if tensor.dim() else tensor))
BAD_NUMBERS: tuple[tuple[str, Perturbation], ...] = (
    ("with NaN", _spike(float("nan"))), ("with inf", _spike(float("inf"))))
ALWAYS = 4  # perturbations that are compared whether or not a branch needs them


class TooLong(BaseException):
    """Calls that have not ended in time: with other numbers a loop of the program may never end."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise TooLong in the block where it takes longer."""
    thread, lock, state = threading.get_ident(), threading.Lock(), {"done": False, "stopped": False}

    def stop() -> None:
        with lock:
            if not state["done"]:
                state["stopped"] = True
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), ctypes.py_object(TooLong))

    timer = threading.Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        with lock:
            state["done"] = True
        timer.cancel()
        timer.join()
        delivered = isinstance(sys.exc_info()[1], TooLong)
        while state["stopped"] and not delivered:  # it arrives between two instructions
            time.sleep(0)


class Calls:
    """A function, calls of it, and everything that they reach."""

    def __init__(self, fn: Callable[..., object], calls: Sequence[Call]) -> None:
        self.fn, self.calls = fn, tuple(calls)
        self.reached: dict[int, Reached] = reach(fn, (self.calls,), {})
        self.before = Checkpoint(self.reached)
        self.leaves = [each.value for each in self.reached.values() if isinstance(each.value, torch.Tensor)
                       and each.value.is_leaf and each.value.requires_grad]
        self.shared: list[list[int]] = []  # of the last run: for each call, results that are inputs
        owned = reach(_nothing, (self.calls,), {})
        self.inputs = [each.value for each in owned.values() if isinstance(each.value, torch.Tensor)]
        self.state = [each.value for each in self.reached.values() if isinstance(each.value, torch.Tensor)
                      and id(each.value) not in {id(one) for one in self.inputs}]

    def run(self, callee: Callable[..., object], perturbation: Perturbation | None = None, state: bool = False,
            added: Added | None = None, around: Callable[..., object] | None = None,
            seconds: float | None = None) -> Outcome:
        """Make all calls on the callee, and put everything back; TooLong where they take longer than `seconds`."""
        self.shared = []

        def whole() -> object:
            return [self._call(callee, each, {} if added is None else added(each)) for each in self.calls]

        try:
            if perturbation is not None:
                self._perturb(perturbation, state)
            with contextlib.nullcontext() if seconds is None else within(seconds):
                return run(whole if around is None else lambda: around(whole), self.reached, True)
        finally:
            self.before.restore()

    def _perturb(self, perturbation: Perturbation, state: bool) -> None:
        random.seed(perturbation.__code__.co_firstlineno if isinstance(perturbation, types.FunctionType) else 0)
        with torch.no_grad():
            for tensor in [*self.inputs, *(self.state if state else ())]:
                if tensor.is_floating_point() and tensor.numel():
                    tensor.copy_(perturbation(tensor.detach()))
                elif tensor.dtype is torch.bool:
                    tensor.logical_not_()
                elif tensor.dim() and tensor.numel():
                    tensor.copy_(tensor.flip(0))

    def _call(self, callee: Callable[..., object], call: Call, added: Mapping[str, object]) -> object:
        """The value of one call with gradients, or its exception; tensors are copied: later calls may write to them."""
        try:
            value = callee(*call.args, **call.kwargs, **added)
        except Exception as error:
            return ("raised", type(error).__qualname__, str(error))
        self.shared.append([number for number, each in enumerate(pytree.tree_leaves(value))
                            if isinstance(each, torch.Tensor) and any(each is one for one in self.inputs)])
        return (pytree.tree_map(_copied, value), self._gradients(value))

    def _gradients(self, value: object) -> object:
        outputs = [each for each in pytree.tree_leaves(value) if isinstance(each, torch.Tensor) and each.requires_grad
                   and each.grad_fn is not None and not each.is_complex()]
        if not outputs or not self.leaves:
            return None
        try:
            return torch.autograd.grad([each.sum() for each in outputs], self.leaves, allow_unused=True,
                                       retain_graph=True)
        except RuntimeError as error:
            return f"no gradients: {type(error).__name__}"


def _nothing() -> None:
    """Reaches nothing."""


def _copied(value: object) -> object:
    if not isinstance(value, torch.Tensor):
        return copy.copy(value) if isinstance(value, (bytearray, types.SimpleNamespace)) else value
    made = value.detach().clone()
    return made.requires_grad_() if value.requires_grad else made
