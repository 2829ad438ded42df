"""A rule for sys.__excepthook__.   sys.stderr = io.StringIO(); sys.__excepthook__(...)  ->  the text is in the stream

In: an exception, while the program has put a stream of its own in the place of sys.stderr.  Out: the stream with the
text of the exception.  For a NameError CPython compares the names of the frames behind it, which a trace does not have.
"""

from __future__ import annotations

import io
import sys

from stator.breaks import Break
from stator.host.value_kinds import is_a
from stator.interp.rule_registry import rule
from stator.interp.vm import VM

_CHAIN = [vars(BaseException)[name].__get__ for name in ("__cause__", "__context__")]
_parts_of = vars(BaseExceptionGroup)["exceptions"].__get__


@rule(sys.__excepthook__)
def _show(vm: VM, exc_type: object, value: object, traceback: object, /) -> None:
    stream = vm.heap.scope(sys.__dict__).read("stderr")
    if type(stream) is not io.StringIO or vm.heap.tracker_of(stream) is not None:
        raise Break("SB015", "sys.__excepthook__: output to another stream than one of the call")
    todo: list[object] = [value]
    seen: set[int] = set()
    while todo:
        error = todo.pop()
        if id(error) in seen or not is_a(error, BaseException):
            continue
        seen.add(id(error))
        if is_a(error, (NameError, ImportError, SyntaxError)) or vm.heap.tracker_of(error) is not None:
            raise Break("SB015", f"sys.__excepthook__ of a {type(error).__name__}, which reads frames or files")
        todo += [get(error) for get in _CHAIN]
        todo += _parts_of(error) if is_a(error, BaseExceptionGroup) else ()
    vm.heap.expose_deep(value)
    before = sys.stderr
    sys.stderr = stream
    try:
        vm.native(sys.__excepthook__, (exc_type, value, traceback))
    finally:
        sys.stderr = before
