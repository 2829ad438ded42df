"""The exception that the caller of the compiled function is handling.   except OSError: compiled(x)

It is a fact from outside: `sys.exc_info()` and a bare `raise` read it, and it is the context of exceptions raised in
the call.  That there is none is guarded where a handler of the program can see its absence.

An exception from outside that is raised inside gets its traceback from notes.  `exc.__traceback__ = traceback`, with a
traceback that it had before, forgets those that came after it.
"""

from __future__ import annotations

import sys
import types

from stator.guards.guard import Kind
from stator.interp.frame import Unwound, with_place
from stator.interp.services import VM
from stator.source import CallOf, Pinned

_HANDLED = CallOf(Pinned(sys.exception), ())


def handled_exception(vm: VM) -> BaseException | None:
    """The exception being handled, by the program or by its caller."""
    current = vm.exc_state.topmost()
    if current is not None:
        return current
    outside = vm.exc_state.outside()
    if outside is None:
        vm.heap.guard(_HANDLED, Kind.FRESH_CALL, None)
        return None
    adopted: BaseException = vm.heap.adopt(outside, _HANDLED)
    return adopted


def restores_traceback(vm: VM, exc: object, traceback: object) -> bool:
    """Forget the frames that an exception from outside passed since it had this traceback.   False: it had not."""
    if not isinstance(exc, BaseException) or not vm.is_from_outside(exc):
        return False
    notes = [at for at, each in enumerate(vm.effects.noted) if type(each) is Unwound and each.exc is exc]
    known, kept = None, 0
    if vm.traceback_of(exc) is not None and not notes:  # the one that it came with, which is guarded now
        return False
    while not _is_same(known, traceback):
        if kept == len(notes):
            return False
        known = with_place(known, vm.effects.noted[notes[kept]].place)
        kept += 1
    for at in reversed(notes[kept:]):
        del vm.effects.noted[at]
        vm.effects.early -= at < vm.effects.early
    return True


def _is_same(left: types.TracebackType | None, right: object) -> bool:
    while left is not None and isinstance(right, types.TracebackType) and left.tb_lineno == right.tb_lineno \
            and left.tb_frame.f_code is right.tb_frame.f_code:
        left, right = left.tb_next, right.tb_next
    return left is None and right is None
