"""Functions that draw from numpy's stream.   mask = compute_mask((2, 64), 0.05, 10)  ->  an array of the residual

In: a Python function that depends on its plain arguments and on numpy's own stream alone, proved from its code.  Out:
the array that it returns, as an input of the graph.  The residual calls the function itself, in the order of the draws.
A guard makes the draws of the call ahead, compares the layout of the array, and puts the stream back.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Callable
from typing import Any

import numpy

from stator import _hook
from stator.breaks import Break, Strategy
from stator.guards.guard import is_constant
from stator.interp.frame import Continuation, outward
from stator.interp.pure_kernels import Vocabulary, is_pure_code
from stator.interp.rule_registry import CODE_RULES, code_rule
from stator.interp.vm import VM
from stator.library.python.random_states import drawn_array
from stator.source import Pinned

STREAM = numpy.random.mtrand._rand  # behind the functions of numpy.random
Layout = tuple[Any, ...]
_MODULES = (numpy, numpy.random)
_STATE = ("seed", "get_state", "set_state", "bytes")
_MEMBERS = """
    all any argmax argmin argsort astype clip copy cumsum dot dtype fill flatten item max mean min ndim nonzero prod
    ravel repeat reshape round shape size sort squeeze std sum swapaxes take tolist transpose T var
""".split()
_FUNCTIONS = """
    abs all any arange argmax argmin argsort array array_equal asarray atleast_1d atleast_2d bincount broadcast_to ceil
    clip concatenate copy cumsum diff dot empty empty_like expand_dims eye flip full full_like hstack linspace max mean
    median min nonzero ones ones_like outer pad prod put_along_axis quantile ravel repeat reshape roll round
    sort split squeeze stack std sum swapaxes take take_along_axis tile transpose unique var vstack where zeros
    zeros_like searchsorted
""".split()
_NAMED = {id(value): value for value in [
    *_MODULES, *(getattr(numpy, name) for name in _FUNCTIONS),
    *(getattr(cls, name) for cls in (numpy.ndarray, numpy.generic) for name in _MEMBERS if hasattr(cls, name)),
    *(value for name, value in vars(numpy.random).items()
      if getattr(value, "__self__", None) is STREAM and name not in _STATE)]}
_RECEIVERS = (numpy.ndarray, numpy.generic, int, float, bool, str, list, tuple, dict, set, range, slice, complex)
_CHECKED: dict[int, tuple[types.CodeType, bool]] = {}


def _is_allowed(value: object) -> bool:
    return id(value) in _NAMED or isinstance(value, numpy.ufunc) or is_constant(value) \
        or isinstance(value, type) and issubclass(value, numpy.generic)


_VOCABULARY = Vocabulary(_RECEIVERS, _is_allowed, closed=True)


def depends_on_stream_alone(function: object) -> bool:
    """Whether a function has branches, and reads its arguments and numpy's stream only."""
    if type(function) is not types.FunctionType or function.__closure__ or function.__kwdefaults__ \
            or not all(map(is_constant, function.__defaults__ or ())):
        return False
    code = function.__code__
    if id(code) not in _CHECKED:
        branches = any("JUMP" in each.opname and "_IF_" in each.opname for each in dis.get_instructions(code))
        _CHECKED[id(code)] = code, branches and not code.co_flags & _SUSPENDS and is_pure_code(
            code, function.__globals__, set(), words=_VOCABULARY)
    return _CHECKED[id(code)][1]


_SUSPENDS = 0x20 | 0x80 | 0x100 | 0x200  # generators and coroutines


def draw_whole(vm: VM, stream: object) -> None:
    """At the first draw of such a function: capture again, and let the residual call it."""
    if stream is not STREAM or Strategy.SINGLE_DRAWS in vm.turned_off or Strategy.DRAWN_NUMBERS in vm.turned_off:
        return
    for frame in outward(vm.frame):
        if depends_on_stream_alone(getattr(frame, "func", None)):
            if id(frame.code) not in CODE_RULES:
                code_rule(frame.code)(_call)
            raise Break("SB013", "a function that draws random numbers one by one", turn_off=Strategy.SINGLE_DRAWS)


def _call(vm: VM, cont: Continuation | None, function: types.FunctionType, /, *args: object, **kwargs: object) -> None:
    if not (Strategy.SINGLE_DRAWS in vm.turned_off and Strategy.DRAWN_NUMBERS not in vm.turned_off
            and depends_on_stream_alone(function) and all(map(_is_plain, (*args, *kwargs.values())))
            and id(STREAM) not in vm.random.seeded and not vm.locks.used and not vm.effects.watched
            and vm.recorder.scope.enclosing is None and vm.recorder.scope.data_dependent
            and id(function) not in vm.fresh):
        return vm.push(vm.frame_for(function, args, kwargs), cont)
    source = vm.heap.source_of(vm.heap.adopt(STREAM, Pinned(STREAM)))
    draw = WholeDraw(function)
    before = [each for each in vm.residual.draws if each.stream == source]
    ahead = LayoutsAhead([*((each.function, each.args, dict(each.kwargs)) for each in before), (draw, args, kwargs)])
    token = _hook.pause()
    try:
        example = ahead.drawn()
    finally:
        _hook.resume(token)
    if type(example) is not numpy.ndarray or example.dtype.kind not in "biuf" or example.base is not None:
        return vm.push(vm.frame_for(function, args, kwargs), cont)
    vm.guard_identity(function)
    vm.guard_code(function)
    guard_globals(vm, function, function.__code__)
    vm.heap.guard_call(ahead, layout_of(example))
    vm.give(drawn_array(vm, draw, source, args, kwargs, example), cont)


def _is_plain(value: object) -> bool:
    return type(value) in (int, float, bool, str, type(None)) or type(value) is tuple and all(map(_is_plain, value))


def guard_globals(vm: VM, function: types.FunctionType, code: types.CodeType) -> None:
    """Guard what the proof has read of the namespace."""
    scope = vm.heap.scope(function.__globals__)
    for each in dis.get_instructions(code):
        if each.opname == "LOAD_GLOBAL":
            scope.read(each.argval)
    for inner in code.co_consts:
        if type(inner) is types.CodeType:
            guard_globals(vm, function, inner)


class WholeDraw:
    """The call that the residual makes."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.__name__ = function, function.__name__

    def __call__(self, stream: object, *args: object, **kwargs: object) -> object:
        return self.function(*args, **kwargs)


class LayoutsAhead:
    """A guard: the layout of the array that the last of some draws will give."""

    __name__ = __qualname__ = "drawn_layout"

    def __init__(self, draws: list[tuple[Any, Any, Any]]) -> None:
        self.draws = draws

    def __repr__(self) -> str:
        return "<layout of an array of random numbers>"

    def __call__(self) -> Layout | None:
        found = self.drawn()
        return layout_of(found) if type(found) is numpy.ndarray else None

    def drawn(self) -> object:
        """The value of the last draw; None where one raises."""
        state, found = STREAM.get_state(), None
        try:
            for function, args, kwargs in self.draws:
                found = function(STREAM, *args, **kwargs)
            return found
        except Exception:
            return None
        finally:
            STREAM.set_state(state)


def layout_of(array: numpy.ndarray[Any, Any]) -> Layout:
    return array.dtype.str, array.shape, array.strides
