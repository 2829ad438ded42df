"""What the running CPython warns of.   a call  ->  the text of its DeprecationWarning, "" where it gives none

Asked once of CPython itself, because the texts differ between versions and patch releases.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Callable, Iterator
from typing import Any


def _text_of(call: Callable[[], Any]) -> str:
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        call()
    return str(seen[0].message) if seen else ""


def _waiting() -> Iterator[None]:
    try:
        yield
        yield
    except ValueError:
        yield


def _throw_by_parts() -> None:
    generator = _waiting()
    next(generator)
    generator.throw(ValueError, "text")  # type: ignore[attr-defined]


INVERTED_BOOL = _text_of(lambda: operator.invert(True))  # ~True
THROWN_BY_PARTS = _text_of(_throw_by_parts)  # generator.throw(type, value)
