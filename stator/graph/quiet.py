"""Keep torch's logging to the program.

In: log records of torch's fake tensors; the loggers of the process around a capture.  Out: records that a capture has
caused are dropped, others pass; the loggers are as they were.

torch logs, with a traceback, each error that a rule for fake tensors meets.  In a capture it is the program's own
error, to be raised or caught, or the sign that a rule cannot live with a symbol, and then something else
is tried; eager would have logged nothing.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import types
from collections.abc import Iterator
from itertools import islice
from typing import Any

from torch._logging._internal import LazyTraceHandler, trace_log


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


@contextlib.contextmanager
def loggers_unchanged() -> Iterator[None]:
    """Take back what a capture leaves in loggers: levels that `isEnabledFor` memoised, a handler that removed itself.

    torch's handler of structured traces is detached without TORCH_TRACE: its first record reads source files and
    imports modules, then the handler removes itself.
    """
    memos = [logger._cache for logger in list(logging.root.manager.loggerDict.values())  # type: ignore[attr-defined]
             if not isinstance(logger, logging.PlaceHolder)]
    sizes = list(map(len, memos))
    handlers = trace_log.handlers
    idle = [each for each in handlers if type(each) is LazyTraceHandler and each.root_dir is None]
    if idle:
        trace_log.handlers = [each for each in handlers if each not in idle]
    try:
        yield
    finally:
        if idle:
            trace_log.handlers = handlers
        for memo, size in zip(memos, sizes, strict=True):
            if len(memo) > size:  # entries are only added; a change of levels clears them all
                for level in list(islice(memo, size, None)):
                    memo.pop(level, None)
