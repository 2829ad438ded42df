"""Profiles of changing sizes.   Memory of every place  ->  JSON  ->  the same choices in another process

In: sizes and numbers that have changed in one process, by place of the program and by name (`x`, `self.step`).  Out:
plain JSON for other processes, so that all of a fleet start with the same graphs.  Reading it runs nothing.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterable
from typing import Any

from stator.errors import OptionTypeError, OptionValueError
from stator.shapes.policy import Memory
from stator.source import Source

VERSION = 1
_LISTS = ("numbers", "tuples")  # names of values
_TABLES = ("sizes", "strides", "lengths")  # names, and dimensions or lengths
_foreseen: dict[str, dict[str, Any]] = {}


def export(memories: Iterable[tuple[str, Memory]]) -> str:
    """The profile of these places; what was imported and not seen yet is part of it."""
    places: dict[str, dict[str, Any]] = copy.deepcopy(_foreseen)
    for place, memory in memories:
        _merge(places.setdefault(place, _empty()), {kind: map(_name, getattr(memory, kind)) for kind in _LISTS},
               {kind: [(_name(source), found) for source, found in getattr(memory, kind).items()] for kind in _TABLES})
    found = {place: known for place, known in sorted(places.items()) if any(known.values())}
    return json.dumps({"version": VERSION, "places": found}, indent=1, sort_keys=True)


def _merge(known: dict[str, Any], lists: dict[str, Any], tables: dict[str, Any]) -> None:
    for kind, names in lists.items():
        known[kind] = sorted({*known[kind], *filter(None, names)})
    for kind, table in tables.items():
        for name, numbers in table:
            if name is not None:
                known[kind][name] = sorted({*known[kind].get(name, ()), *numbers})


def load(text: str) -> None:
    """Take over a profile; later places of the same name start from it."""
    for place, known in _checked(text).items():
        _merge(_foreseen.setdefault(place, _empty()), {kind: known.get(kind, ()) for kind in _LISTS},
               {kind: known.get(kind, {}).items() for kind in _TABLES})


def foreseen(place: str) -> dict[str, Any] | None:
    return _foreseen.get(place)


def forget() -> None:
    _foreseen.clear()


def _empty() -> dict[str, Any]:
    return {"numbers": [], "tuples": [], "sizes": {}, "strides": {}, "lengths": {}}


def _name(source: Source) -> str | None:
    """The user's name for a value; None for an object that another process cannot know by name."""
    text = source.text()
    return None if " object at 0x" in text else text


def _checked(text: object) -> dict[str, dict[str, Any]]:
    if not isinstance(text, str):
        raise OptionTypeError(f"a shape profile is the text that stator.shape_profile() gives, "
                              f"not a {type(text).__name__}")
    try:
        profile = json.loads(text)
    except ValueError as error:
        raise OptionValueError(f"this is no shape profile: {error}") from None
    if not isinstance(profile, dict) or profile.get("version") != VERSION \
            or not isinstance(profile.get("places"), dict):
        raise OptionValueError(f"this is no shape profile of version {VERSION}")
    for place, known in profile["places"].items():
        if not isinstance(known, dict) or not all(map(_is_known, known, known.values())):
            raise OptionValueError(f"the shape profile says something of {place!r} that is not understood: {known!r}")
    places: dict[str, dict[str, Any]] = profile["places"]
    return places


def _is_known(kind: str, value: object) -> bool:
    if kind in _LISTS:
        return isinstance(value, list) and all(isinstance(name, str) for name in value)
    return kind in _TABLES and isinstance(value, dict) and all(
        isinstance(numbers, list) and all(type(number) is int and number >= 0 for number in numbers)
        for numbers in value.values())
