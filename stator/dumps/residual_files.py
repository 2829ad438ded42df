"""Files of residual programs and graphs.

In: entries of call sites, or residuals as they are linked.  Out: Python files, and code objects that name them: a
residual's text is the file's beginning, so that its line numbers hold; guards follow as comments.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FunctionType, MethodType

from torch import fx

from stator import events
from stator.capture import miss
from stator.capture.call_site import CallSite
from stator.emit.residual.residual import Residual, UnderLocks
from stator.guards.guard import Guard
from stator.host.garbage_collection import living
from stator.report.names import short, user_lines


def dump_site(site: CallSite, folder: Path) -> list[Path]:
    """Write every entry of a compiled callable, and of what follows its breaks."""
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for compiled in [site.compiled, *site.points.entries()]:
        compiled.steppable = True
        name = file_name(compiled._stator_site.name)
        for number, (_, function, tag) in enumerate(compiled.entries()):
            if tag is None or tag.residual is None:
                continue  # it runs the program as it is
            path = free_path(folder, f"{name}_{number}", written)
            path.write_text(residual_text(tag.residual, tag.guards), encoding="utf-8")
            point_to(residual_function(function), path)
            written.append(path)
            if tag.residual.graph is not None:
                written.append(dump_graph(tag.residual.graph, path))
    return written


def file_name(name: str) -> str:
    return re.sub(r"\W+", "_", short(name)).strip("_") or "captured"


def free_path(folder: Path, stem: str, taken: Sequence[Path]) -> Path:
    """A file of this name that this dump has not written yet."""
    path, count = folder / f"{stem}.py", 1
    while path in taken:
        count += 1
        path = folder / f"{stem}_{count}.py"
    return path


def residual_text(residual: Residual, guards: Sequence[Guard] = ()) -> str:
    line_of = user_lines(guards)
    lines = [f"#     {guard.text()}" + (f"   # {place[0]}:{place[1]}" if (place := line_of(guard)) else "")
             for guard in guards]
    text = residual.source.rstrip("\n") + "\n"
    return text + "\n".join(["", "# Runs where these guards hold:", *lines, ""]) if lines else text


def dump_graph(graph: fx.GraphModule, beside: Path) -> Path:
    path = beside.with_name(f"{beside.stem}_graph.py")
    path.write_text(graph.code.strip("\n") + "\n" if not graph.code.startswith("\n") else graph.code, encoding="utf-8")
    point_to(type(graph).forward, path)
    return path


def residual_function(function: object) -> object:
    """The function that runs the residual's text, behind those that take locks or modes."""
    while True:
        if type(function) is UnderLocks:
            function = function.residual
        elif isinstance(function, FunctionType) and function.__name__ != "residual" and function.__closure__:
            function = next((cell.cell_contents for cell in function.__closure__
                             if isinstance(cell.cell_contents, (FunctionType, UnderLocks))), None)
        else:
            return function


def point_to(function: object, path: Path) -> None:
    """Let the code of a function, and of functions inside it, name a file."""
    if isinstance(function, MethodType):
        function = function.__func__
    if isinstance(function, FunctionType):
        function.__code__ = moved(function.__code__, str(path))


def moved(code: CodeType, filename: str) -> CodeType:
    constants = tuple(moved(each, filename) if isinstance(each, CodeType) else each for each in code.co_consts)
    return code.replace(co_filename=filename, co_consts=constants)


def dump_all(folder: Path) -> None:
    """Write each residual when it is linked; its code names the file from the start."""
    folder.mkdir(parents=True, exist_ok=True)
    name = ["captured"]

    def file_of(self: Residual) -> str:
        number = 0
        while (path := folder / f"{file_name(name[0])}_{number}.py").exists():
            number += 1
        path.write_text(residual_text(self), encoding="utf-8")
        if self.graph is not None:
            dump_graph(self.graph, path)
        return str(path)

    def listen(event: events.Event) -> None:
        if isinstance(event, events.CaptureStarted):
            name[0] = event.name
            for compiled in living(miss._entries):
                compiled.steppable = True

    events.subscribe(listen)
    Residual.filename = file_of  # type: ignore[method-assign]
