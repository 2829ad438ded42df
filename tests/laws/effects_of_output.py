"""Probes: printed text, log records and warnings, in order with what the program changes."""

from __future__ import annotations

import io
import logging
import sys
import warnings
from typing import Any

from probing import Scene, probe, ramp
from scenery import Thing, one


@probe()
def printed_text():
    ks = [1]

    def fn(x):
        print("scale", ks, x.shape)
        ks.append(2)
        print("scale", ks, sep="=", end="!\n")
        return x * len(ks)

    return Scene(fn, one(ramp()), ks.clear, lambda: list(ks))


WORLDS: dict[int, list[Any]] = {}


def hidden(world: list[Any]) -> int:
    """A number under which code finds a list by a name that it computes: nobody who reads the code can tell."""
    WORLDS[id(world)] = world
    return id(world)


class Watching(io.StringIO):
    """A stream that notes what the world looks like at each write."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.notes = number, []

    def write(self, text: str) -> int:
        self.notes.append((text, list(globals()["SDLROW"[::-1]][self.number])))
        return len(text)


@probe("SB006 SB015 SB001 SB005")
def text_between_mutations():
    world: list[Any] = []
    stream = Watching(hidden(world))

    def fn(x):
        world.append("before")
        print("now")
        world.append("after")
        return x * 2

    class Redirect:
        def __enter__(self):
            self.kept, sys.stdout = sys.stdout, stream

        def __exit__(self, *exc):
            sys.stdout = self.kept

    return Scene(fn, one(ramp()), world.clear, lambda: list(stream.notes), around=Redirect)


@probe()
def text_before_mutations():
    world: list[Any] = []
    stream = Watching(hidden(world))

    def fn(x):
        print("now")
        world.append("after")
        return x * 2

    class Redirect:
        def __enter__(self):
            self.kept, sys.stdout = sys.stdout, stream

        def __exit__(self, *exc):
            sys.stdout = self.kept

    return Scene(fn, one(ramp()), world.clear, lambda: list(stream.notes), around=Redirect)


class Listening(logging.Handler):
    def __init__(self, number: int) -> None:
        super().__init__()
        self.number, self.notes = number, []

    def emit(self, record: logging.LogRecord) -> None:
        self.notes.append((record.levelname, record.getMessage(), list(globals()["SDLROW"[::-1]][self.number])))


@probe("SB006 SB015 SB001 SB005")
def logging_between_mutations():
    world: list[Any] = []
    handler = Listening(hidden(world))
    logger = logging.Logger("stator law probe")
    logger.addHandler(handler)

    def fn(x):
        world.append("before")
        logger.warning("scale %s", x.shape[0])
        world.append("after")
        logger.debug("done")
        return x * 2

    return Scene(fn, one(ramp()), lambda: logger.setLevel(logging.WARNING), lambda: list(handler.notes))


@probe()
def logging_level_asked():
    LOGGER.setLevel(logging.WARNING)
    return Scene(lambda x: x * (2 if LOGGER.isEnabledFor(logging.INFO) else 3), one(ramp()),
                 lambda: LOGGER.setLevel(logging.DEBUG))


LOGGER = logging.getLogger("stator law probe")


@probe()
def warnings_and_text_interleaved():
    def fn(x):
        print("one")
        warnings.warn("two")
        print("three")
        warnings.warn("four", RuntimeWarning)
        return x * 2

    return Scene(fn, one(ramp()))


@probe("SB006 SB015 SB001 SB005")
def warning_that_looks_at_the_world():
    world: list[Any] = []
    notes: list[Any] = []

    def fn(x):
        world.append("before")
        warnings.warn("careful")
        world.append("after")
        return x * 2

    class Watch:
        def __enter__(self):
            self.kept = warnings.showwarning
            warnings.showwarning = lambda *args, **kwargs: notes.append(list(world))

        def __exit__(self, *exc):
            warnings.showwarning = self.kept

    return Scene(fn, one(ramp()), world.clear, lambda: list(notes), around=Watch)


@probe("SB013")
def warning_turned_into_an_error():
    state = [0]

    def fn(x):
        state[0] += 1
        warnings.warn("stop", UserWarning)
        state[0] += 10
        return x * 2

    return Scene(fn, one(ramp()), lambda: warnings.simplefilter("ignore"), lambda: list(state),
                 around=lambda: Filtering("error"))


class Filtering:
    def __init__(self, action: str) -> None:
        self.action = action

    def __enter__(self) -> None:
        self.manager = warnings.catch_warnings()
        self.manager.__enter__()
        warnings.simplefilter(self.action)
        warnings.showwarning = warnings._showwarning_orig

    def __exit__(self, *exc: Any) -> None:
        self.manager.__exit__(*exc)


def told_where(name: str) -> tuple[Any, Any, Any]:
    """A logger that says who has called it."""
    logger, stream = logging.Logger(name), io.StringIO()  # known to no manager, whose other loggers would be looked at
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("%(levelname)s %(funcName)s %(lineno)d %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    return logger, lambda: stream.getvalue().splitlines(), lambda: logger.removeHandler(handler)


@probe()
def logging_of_a_size():
    logger, look, undo = told_where("laws.size")

    def program(x):
        logger.info("of %s", x.shape)
        return x * 2

    return Scene(program, one(ramp()), lambda: logger.setLevel(logging.WARNING), look, undo)


@probe("SB015")
def logging_of_an_object_that_may_change():
    logger, look, undo = told_where("laws.object")
    thing = Thing()

    def program(x):
        logger.info("of %s", type(thing).__name__)
        logger.info("of %s", thing)
        return x * 2

    def shown():
        return [line.partition(" object at ")[0] for line in look()]

    return Scene(program, one(ramp()), lambda: logger.setLevel(logging.WARNING), shown, undo)
