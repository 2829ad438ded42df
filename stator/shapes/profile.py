"""What was learned about changing sizes, as text.   Memory of every place  ->  JSON  ->  the same choices elsewhere

In: what one process has seen to change, by place of the program and in the user's terms (`x`, `self.step`).  Out: text
that another process reads, so that a fleet starts with the same graphs and none of its members diverges.  The text is
plain JSON: reading it runs nothing.
"""

from __future__ import annotations

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
    places: dict[str, dict[str, Any]] = {name: _copied(known) for name, known in _foreseen.items()}
    for place, memory in memories:
        known = places.setdefault(place, _empty())
        for kind in _LISTS:
            known[kind] = sorted({*known[kind], *filter(None, map(_name, getattr(memory, kind)))})
        for kind in _TABLES:
            for source, numbers in getattr(memory, kind).items():
                name = _name(source)
                if name is not None:
                    known[kind][name] = sorted({*known[kind].get(name, ()), *numbers})
    found = {place: known for place, known in sorted(places.items()) if any(known.values())}
    return json.dumps({"version": VERSION, "places": found}, indent=1, sort_keys=True)


def load(text: str) -> None:
    """Take over a profile; later places of the same name start from it."""
    for place, known in _checked(text).items():
        mine = _foreseen.setdefault(place, _empty())
        for kind in _LISTS:
            mine[kind] = sorted({*mine[kind], *known.get(kind, ())})
        for kind in _TABLES:
            for name, numbers in known.get(kind, {}).items():
                mine[kind][name] = sorted({*mine[kind].get(name, ()), *numbers})


def foreseen(place: str) -> dict[str, Any] | None:
    """What the loaded profiles say of a place."""
    return _foreseen.get(place)


def forget() -> None:
    _foreseen.clear()


def _empty() -> dict[str, Any]:
    return {"numbers": [], "tuples": [], "sizes": {}, "strides": {}, "lengths": {}}


def _copied(known: dict[str, Any]) -> dict[str, Any]:
    return {kind: dict(value) if isinstance(value, dict) else list(value) for kind, value in known.items()}


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
