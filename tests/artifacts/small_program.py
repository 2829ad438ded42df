"""A small program and its hostile changes: statements that run behind its import, or edits of its text.

`m` is the imported module; a pair replaces text of the source.
"""

from __future__ import annotations

from typing import NamedTuple


class Small(NamedTuple):
    """A module with `program(x)`; changes behind `|` must leave its entry in use."""

    name: str
    text: str
    changes: tuple[str | tuple[str, str], ...]
    backend: str = "eager"
    unrelated: tuple[str, ...] = ()
