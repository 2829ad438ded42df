"""Names for people: of functions, arguments, modules and lines.   names.site("forward")  ->  the text of a message

`stator.report.own_names` has those that users give, and takes the place of `names`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stator.events import Recompile, Terms


class Names:
    """Names as the engine knows them."""

    def modules(self, root: object, members: Sequence[object]) -> dict[int, str]:
        """The way from a module to others inside it, by id."""
        return {}

    def arguments(self, fn: Callable[..., object], point: object, values: Sequence[object]) -> Terms:
        """Names of the arguments of a call, or of what goes on at a resume point."""
        return ()

    def expression(self, code: CodeType, offset: int) -> str:
        """The source of one instruction."""
        return ""

    def resumed(self, places: Sequence[tuple[str, int]]) -> tuple[tuple[str, int], str]:
        """The user's line among those of frames, the innermost last; and as text."""
        return places[-1], f"line {places[-1][1]}"

    def site(self, name: str) -> str:
        """A compiled function, or the rest of it behind a break."""
        return name

    def missed(self, event: Recompile | None) -> str:
        """The end of a sentence about a call that no entry accepted."""
        return "" if event is None else f"; the guard {event.guard_text} failed"

    def line(self, guard: Any, guards: Sequence[Any], begins: tuple[str, int], point: object = None) -> tuple[str, int]:
        """The user's line behind a guard, else where the function begins."""
        return guard.where[:2] if guard.where else begins


names = Names()
