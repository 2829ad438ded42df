"""Continuations that are not compiled.   with natively(): every resume point runs the rest of its call as CPython would"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from stator.capture import miss


@contextlib.contextmanager
def natively() -> Iterator[None]:
    capture = miss.capture

    def only_first(site: Any, bound: tuple[Any, ...]) -> Any:
        return None if site.point is not None else capture(site, bound)

    with mock.patch.object(miss, "capture", only_first):
        yield
