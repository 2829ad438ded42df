"""Keep torch's logging to the program.

In: log records and warnings of fake tensors; the loggers of the process around a capture.  Out: those that a capture
has caused are dropped, others pass; the loggers are as they were.
"""

from __future__ import annotations

import contextlib
import logging
import operator
import sys
import types
import warnings
from collections.abc import Iterator
from itertools import compress, islice
from typing import Any

import torch
from torch._logging._internal import LazyTraceHandler, trace_log

from stator._core import newest_version

_EVERYTHING = [("always", None, Warning, None, 0)]  # a filter that keeps no registry of what was shown
_warnings: Any = warnings
_C: Any = torch._C


class DropOurs(logging.Filter):
    """Drops what is logged below a frame of one of `codes`."""

    def __init__(self, codes: tuple[types.CodeType, ...]) -> None:
        super().__init__()
        self.codes = frozenset(codes)

    def filter(self, record: logging.LogRecord) -> bool:
        frame: types.FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_code in self.codes:
                return False
            frame = frame.f_back
        return True


def keep_quiet(*functions: Any) -> None:
    """From now on, what torch's fake tensors log while one of these functions runs is dropped."""
    logging.getLogger("torch._subclasses.fake_tensor").addFilter(DropOurs(tuple(f.__code__ for f in functions)))


class _LoggerLevels:
    """The memoised levels of all loggers; listed anew where a logger was made."""

    def __init__(self) -> None:
        self.known: list[dict[int, bool]] = []
        self.version = 0  # of the dict of loggers
        self.sizes: list[int] = []
        self.sized_at = 0  # the newest version of the memos when they had these sizes

    def memos(self) -> list[dict[int, bool]]:
        names = logging.root.manager.loggerDict
        version = newest_version([names])
        if not version or version != self.version:
            self.version = version
            self.known = [logger._cache for logger in list(names.values())  # type: ignore[attr-defined]
                          if not isinstance(logger, logging.PlaceHolder)]
            self.sized_at = 0
        return self.known

    def measure(self) -> tuple[list[dict[int, bool]], list[int], int]:
        """The memos, their sizes and their newest version."""
        memos = self.memos()
        version = newest_version(memos)
        if not version or version != self.sized_at:
            self.sizes, self.sized_at = list(map(len, memos)), version
        return memos, self.sizes, version

    def take_back(self, memos: list[dict[int, bool]], sizes: list[int]) -> None:
        """Drop the newest entries. Entries are only added; a change of levels clears them all."""
        grown = map(operator.gt, map(len, memos), sizes)
        for memo, size in list(compress(zip(memos, sizes, strict=True), grown)):
            for level in list(islice(memo, size, None)):
                memo.pop(level, None)
        if memos is self.known and list(map(len, memos)) == sizes:
            self.sizes, self.sized_at = sizes, newest_version(memos)


_LEVELS = _LoggerLevels()


@contextlib.contextmanager
def loggers_unchanged() -> Iterator[None]:
    """Take back memoised levels of loggers, and keep torch's handler of structured traces from removing itself."""
    memos, sizes, version = _LEVELS.measure()
    handlers = trace_log.handlers
    idle = [each for each in handlers if type(each) is LazyTraceHandler and each.root_dir is None]
    if idle:
        trace_log.handlers = [each for each in handlers if each not in idle]
    try:
        yield
    finally:
        if idle:
            trace_log.handlers = handlers
        if not version or newest_version(memos) != version:
            _LEVELS.take_back(memos, sizes)


class Heard:
    """Collect the warnings of a block instead of showing them; filters that make exceptions of warnings still do."""

    __slots__ = ("said", "before", "always")

    def __init__(self, always: bool = True) -> None:
        self.always = always  # else torch keeps count of what it warns of once

    def __enter__(self) -> list[warnings.WarningMessage]:
        self.said: list[warnings.WarningMessage] = []
        self.before = warnings.filters, _warnings._showwarnmsg, _C._get_warnAlways()
        _warnings._showwarnmsg = self.said.append
        if not warnings_can_raise():
            warnings.filters = _EVERYTHING.copy()  # which the block may change
        if self.always:
            _C._set_warnAlways(True)
        return self.said

    def __exit__(self, *exc: object) -> None:
        warnings.filters, _warnings._showwarnmsg, always = self.before
        _C._set_warnAlways(always)


def muted(target: object, args: tuple[Any, ...] | None, kwargs: dict[str, Any]) -> Heard:
    """Around an operation on fakes: it warns when it runs."""
    return Heard()


def warnings_can_raise() -> bool:
    """A pure reader for guards: whether some filter makes exceptions of warnings; the first that fits decides."""
    for action, message, category, module, line in warnings.filters:
        if action == "error":
            return True
        if message is None and category is Warning and module is None and not line:
            return False
    return bool(_warnings.defaultaction == "error")
