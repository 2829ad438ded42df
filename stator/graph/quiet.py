"""Errors of the program are the program's to report.

In: log records of torch's fake tensors.  Out: those that a capture has caused are dropped; others pass.

torch logs, with a traceback, each error that a rule for fake tensors meets.  In a capture it is the program's own
error, to be raised or caught, or the sign that a rule cannot live with a symbol, and then something else
is tried; eager would have logged nothing.
"""

from __future__ import annotations

import logging
import sys
import types
from typing import Any


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
