"""The exception that the caller of the compiled function is handling.   except OSError: compiled(x)

It is a fact from outside: `sys.exc_info()` and a bare `raise` read it, and it is the context of exceptions raised in
the call.  That there is none is guarded where a handler of the program can see its absence.
"""

from __future__ import annotations

import sys

from stator.guards.guard import Kind
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
