"""`stator.dump`, and the environment variable STATOR_DUMP.

In: a compiled callable and a folder.  Out: paths of files.  The module that writes them is loaded with the tracer.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stator import api
from stator.capture.first_call import with_tracer
from stator.host.lazy_imports import load

WRITER = "stator.dumps.residual_files"


def dump(compiled: Callable[..., Any], folder: str | os.PathLike[str]) -> list[Path]:
    """Write residual programs and graphs of a compiled callable to a folder; the paths of the files.

    From now on `sys.settrace` and debuggers step through these files in calls that an entry accepts.  Other calls, and
    callables that were not dumped, run as plain Python under a debugger.
    """
    paths: list[Path] = load(WRITER).dump_site(api.site_of(compiled), Path(folder))
    return paths


def follow_environment() -> None:
    """Dump every capture of the process to the folder that STATOR_DUMP names."""
    folder = os.environ.get("STATOR_DUMP", "")
    if folder.strip():
        with_tracer(lambda: load(WRITER).dump_all(Path(folder)))


api.about_compiling(dump)
follow_environment()
