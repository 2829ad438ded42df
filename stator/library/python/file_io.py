"""Rules for streams.   file.write("text")  ->  its length; the text is written when the effects are replayed

Writing to an open stream from outside is an effect, in order with print and log records.  That it is open, writable
and takes the text is a fact.  Reading one moves it: that breaks, at that very call.
"""

from __future__ import annotations

import io
import sys
from dataclasses import dataclass
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.interp.noted_effects import Printed, may_break, note, written_in_python
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import CallOf, Pinned, Source


@dataclass(frozen=True)
class Written:
    """Text or bytes written to an outside stream; None: the stream is flushed."""

    source: Source
    data: Any


_TEXT = (io.StringIO, io.TextIOWrapper)
_BYTES = (io.BytesIO, io.BufferedWriter)
_RAW = (io.FileIO, io.BytesIO, io.BufferedWriter)


def takes_data(stream: Any) -> Any:
    """A pure reader for guards: how a stream takes what is written, or None where it takes nothing as it should.

    Written in C down to the file: a user's own code would see at what time it is called.
    """
    cls = type(stream)
    if cls not in _TEXT + _BYTES or stream.closed or not stream.writable():
        return None
    if cls is io.StringIO:
        return "str", "", ""
    if cls is io.BytesIO:
        return "bytes", "", ""
    inner = stream.buffer if cls is io.TextIOWrapper else stream.raw
    if type(inner) not in _RAW or type(inner) is io.BufferedWriter and type(inner.raw) is not io.FileIO:
        return None
    return ("str", stream.encoding, stream.errors) if cls is io.TextIOWrapper else ("bytes", "", "")


@rule(io.StringIO.write, io.TextIOWrapper.write, io.BytesIO.write, io.BufferedWriter.write)
def _write(vm: VM, callee: Any, stream: Any, data: Any, /) -> Any:
    """sys.stdout.write(text) is an effect like print; a stream of the trace's own is simply written."""
    if vm.heap.tracker_of(stream) is None:
        return vm.native_unhooked(callee, (stream, data))
    for name in ("stdout", "stderr"):
        if stream is vm.heap.scope(sys.__dict__).read(name) and type(data) is str:
            note(vm, Printed(name, data), written_in_python(stream))
            return len(data)
    may_break(vm, "write()")
    _note_write(vm, stream, data)
    return len(data)


def _note_write(vm: VM, stream: object, data: Any) -> None:
    source, takes = vm.heap.source_of(stream), takes_data(stream)
    fits = takes is not None and (type(data) is (bytes if takes[0] == "bytes" else str))
    if fits and takes[1]:
        try:
            data.encode(takes[1], takes[2])
        except UnicodeError:
            fits = False
    if not fits:
        raise Break("SB006", f"write to a {type(stream).__name__} from outside")
    vm.heap.guard(CallOf(Pinned(takes_data), (source,)), Kind.FRESH_CALL, takes)
    vm.append_output(Written(source, data))


@rule(io.TextIOWrapper.flush, io.BufferedWriter.flush, io._io._IOBase.flush)  # type: ignore[attr-defined]
def _flush(vm: VM, callee: Any, stream: Any, /) -> Any:
    if vm.heap.tracker_of(stream) is None:
        return vm.native_unhooked(callee, (stream,))
    source, takes = vm.heap.source_of(stream), takes_data(stream)
    if takes is None:
        raise Break("SB006", f"flush of a {type(stream).__name__} from outside")
    vm.heap.guard(CallOf(Pinned(takes_data), (source,)), Kind.FRESH_CALL, takes)
    vm.append_output(Written(source, None))
    return None
