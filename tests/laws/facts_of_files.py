"""Probes: files and buffers from outside, written and read by the program."""

from __future__ import annotations

import io
import os
import tempfile
from typing import Any

from probing import Scene, probe, ramp
from scenery import one


@probe("SB001 SB005 SB006 SB014 SB015")
def file_object():
    file = io.StringIO("1\n2\n3\n4\n5\n")
    return Scene(lambda x: x * int(file.readline()), one(ramp()), lambda: file.seek(0), lambda: file.tell())


@probe()
def file_object_written():
    file = io.StringIO()

    def fn(x):
        print("shape", x.shape[0], file=file)
        return x * file.write("more")

    return Scene(fn, one(ramp()), lambda: file.write("changed"), lambda: file.getvalue())


@probe()
def real_files_written():
    streams: list[Any] = [tempfile.TemporaryFile("w"), io.BytesIO()]

    def fn(x):
        print("shape", x.shape[0], file=streams[0], flush=True)
        return x * streams[0].write("more") * streams[1].write(b"ab")

    return Scene(fn, one(ramp()), lambda: streams.__setitem__(1, io.BytesIO(b"x")),
                 lambda: (os.path.getsize(streams[0].fileno()), streams[1].getvalue()), undo=streams[0].close)


@probe("SB001 SB005 SB006")
def closed_file_written():
    file = io.StringIO()

    def fn(x):
        try:
            file.write("text")
        except ValueError as error:
            return x * 2, str(error)
        return x * 3

    return Scene(fn, one(ramp()), file.close)


@probe("SB001 SB005 SB006 SB014 SB015")
def file_object_written_and_read():
    file = io.StringIO()

    def fn(x):
        file.write("ab")
        size = len(file.getvalue())
        file.write("cd")
        return x * size

    return Scene(fn, one(ramp()), lambda: file.write("changed"), lambda: file.getvalue())
