"""Output of calls that change loggers, handlers, formatters, streams or print options is shown as in eager."""

from __future__ import annotations

import contextlib
import io
import logging
import logging.handlers
import sys
from typing import Any

import pytest
import torch

from tests.comparison import Programs, call, same_as_eager

SHOWN, COUNTS = io.StringIO(), {"n": 0}
LOG = logging.getLogger("stator.tests.changed_loggers")
HANDLER, MEMORY = logging.StreamHandler(SHOWN), logging.handlers.MemoryHandler(100)
PROGRAMS = Programs()


class Numbered(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return f"{COUNTS['n']}: {super().format(record)}"


class Marked(logging.Logger):
    def _log(self, level: int, msg: object, *args: Any, **kwargs: Any) -> None:
        COUNTS["n"] += 1
        super()._log(level, f"marked {msg}", *args, **kwargs)


MARKED = Marked("marked")
MARKED.addHandler(HANDLER)


def as_at_first() -> dict[str, Any]:
    SHOWN.seek(0)
    SHOWN.truncate()
    MEMORY.buffer.clear()
    MEMORY.setTarget(None)
    LOG.disabled, LOG.propagate, LOG.handlers[:], LOG.filters[:], LOG.level = False, False, [HANDLER], [], logging.INFO
    HANDLER.stream, HANDLER.level, HANDLER.formatter = SHOWN, 0, None
    logging.disable(logging.NOTSET)
    COUNTS["n"] = 0
    return {}


@PROGRAMS
def levels(x: Any) -> Any:
    LOG.setLevel("ERROR")
    LOG.info("no")
    LOG.setLevel("INFO")
    LOG.info("yes")
    HANDLER.level = 50
    LOG.info("no")
    HANDLER.level = 0
    return SHOWN.getvalue()


@PROGRAMS
def disabled(x: Any) -> Any:
    LOG.disabled = True
    LOG.info("no")
    LOG.disabled = False
    logging.disable(logging.ERROR)
    LOG.info("no")
    logging.disable(logging.NOTSET)
    LOG.info("yes")
    return SHOWN.getvalue()


@PROGRAMS
def formatted(x: Any) -> Any:
    HANDLER.setFormatter(logging.Formatter("A %(message)s"))
    LOG.info("one")
    HANDLER.setFormatter(None)
    LOG.info("two")
    return SHOWN.getvalue()


@PROGRAMS
def formatted_by_code(x: Any) -> Any:
    HANDLER.setFormatter(Numbered())
    LOG.info("one")
    COUNTS["n"] += 1
    LOG.info("two")
    HANDLER.setFormatter(None)
    return SHOWN.getvalue()


@PROGRAMS
def handled_elsewhere(x: Any) -> Any:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    LOG.addHandler(handler)
    LOG.info("both %s", x.shape)
    LOG.removeHandler(handler)
    LOG.removeHandler(HANDLER)
    LOG.warning("neither")
    LOG.addHandler(HANDLER)
    return stream.getvalue(), SHOWN.getvalue()


@PROGRAMS
def streamed_elsewhere(x: Any) -> Any:
    stream = io.StringIO()
    before = HANDLER.setStream(stream)
    LOG.info("in")
    HANDLER.setStream(before)
    LOG.info("out")
    return stream.getvalue(), SHOWN.getvalue()


@PROGRAMS
def filtered(x: Any) -> Any:
    def keeps(record: logging.LogRecord) -> bool:
        return "keep" in record.msg

    LOG.addFilter(keeps)
    LOG.info("drop")
    LOG.info("keep")
    LOG.removeFilter(keeps)
    LOG.info("after")
    return SHOWN.getvalue()


@PROGRAMS
def buffered(x: Any) -> Any:
    LOG.addHandler(MEMORY)
    LOG.info("one")
    held = len(MEMORY.buffer)
    MEMORY.setTarget(HANDLER)
    MEMORY.flush()
    LOG.removeHandler(MEMORY)
    return held, SHOWN.getvalue()


@PROGRAMS
def other_records(x: Any) -> Any:
    made = logging.getLogRecordFactory()

    def louder(*args: Any, **kwargs: Any) -> logging.LogRecord:
        record = made(*args, **kwargs)
        record.msg = record.msg.upper()
        return record

    logging.setLogRecordFactory(louder)
    try:
        LOG.info("one")
    finally:
        logging.setLogRecordFactory(made)
    LOG.info("two")
    return SHOWN.getvalue()


@PROGRAMS
def marked(x: Any) -> Any:
    MARKED.warning("told")
    return COUNTS["n"], SHOWN.getvalue()


@PROGRAMS
def changed_later(x: Any) -> Any:
    COUNTS["n"] += 1
    LOG.info("yes")
    LOG.setLevel("ERROR")
    return x + 1


@PROGRAMS
def changed_after_a_write(x: Any) -> Any:
    x.add_(1)
    LOG.info("%s", x)
    LOG.disabled = True
    x.add_(1)
    return x + 1


@PROGRAMS
def printed_with_other_options(x: Any) -> Any:
    x = x / 7
    texts = [str(x)]
    torch.set_printoptions(precision=2)
    texts.append(str(x))
    print(x)
    torch.set_printoptions(profile="default")
    print(x)
    return texts


@PROGRAMS
def printed_elsewhere(x: Any) -> Any:
    stream = io.StringIO()
    with contextlib.redirect_stdout(stream):
        print("in", x)
    print("out", x, file=sys.stdout)
    return stream.getvalue()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_output_goes_where_it_goes_in_eager(name: str, backend: str) -> None:
    shown: list[str] = []

    def setup() -> dict[str, Any]:
        shown.append(SHOWN.getvalue())
        return as_at_first()

    same_as_eager(PROGRAMS[name], call(torch.arange(2.0)), setup=setup, fullgraph=False, backend=backend)
    setup()
    assert shown[-1] == shown[-2], "eager and compiled calls have written other text"


def test_records_that_nothing_changes_are_captured() -> None:
    def told(x: Any) -> Any:
        COUNTS["n"] += 1
        LOG.info("yes %s", x)
        return x + COUNTS["n"]

    def setup() -> dict[str, Any]:
        return {**as_at_first(), "COUNTS": {"n": 0}}

    same_as_eager(told, call(torch.arange(2.0)), setup=setup, graphs=1)
