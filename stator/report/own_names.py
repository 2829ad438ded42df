"""Names that users give, in place of those of `shown_names.Names`.

In: modules, calls, frames and misses of a capture.  Out: the way to a module, the names of arguments, lines and causes.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from types import CodeType, FrameType
from typing import cast

from stator import events
from stator.host import shown_names
from stator.report.expressions import expression_at
from stator.report.frames import is_library
from stator.report.misses import change, nearest
from stator.report.names import Placed, Point, loop_of, members, short, terms_of, user_lines


class UserNames(shown_names.Names):
    """Modules by the way from the compiled one, arguments by the parameters of `forward`."""

    def modules(self, root: object, wanted: Sequence[object]) -> dict[int, str]:
        sought = {id(each) for each in wanted}
        return {id(module): path for module, path in members(root) if id(module) in sought}

    def arguments(self, fn: Callable[..., object], point: object, values: Sequence[object]) -> events.Terms:
        return terms_of(fn, point, values)

    def expression(self, code: CodeType, offset: int) -> str:
        return expression_at(code, offset)

    def resumed(self, places: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], str]:
        inner = places[-1]
        own = next((each for each in reversed(places) if not is_library(each[0])), inner)
        return own, f"line {own[1]}" + ("" if own == inner else f" ({os.path.basename(inner[0])}:{inner[1]})")

    def missed(self, event: events.Recompile | None) -> str:
        if event is None:
            return ""
        place = f" ({event.filename}:{event.line})" if event.filename is not None else ""
        return f": {change(nearest(event), event.terms)}{place}"

    def site(self, name: str) -> str:
        return short(name)

    def line(self, guard: Placed, guards: Sequence[Placed], begins: tuple[str, int],
             point: object = None) -> tuple[str, int]:
        found = loop_of(cast("Point", point), guard.text()) if point is not None else None
        found = found or user_lines(guards)(guard)
        if found is None or is_library(found[0]):
            found = begins if not is_library(begins[0]) else calling_line() or found or begins
        return found


def calling_line() -> tuple[str, int] | None:
    """The innermost line of the user that is running: of a model of torch's modules alone, the call itself."""
    frame: FrameType | None = sys._getframe(1)
    found: list[tuple[str, int]] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if not is_library(name) and not name.startswith((_STATOR, "<")):
            found.append((name, frame.f_lineno))
        frame = frame.f_back
    return next((each for each in found if "-packages/" not in each[0]), found[0] if found else None)


_STATOR = events.__file__.removesuffix("events.py")


shown_names.names = UserNames()
