"""What a graph asserts on the program's behalf, and what the program raises where that does not hold.

    1 / t.item()   ->  the graph asserts that the divisor is not zero; ZeroDivisionError where it is
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from stator.interp.tracebacks import Place, add_place

UNSPOKEN = "unspoken assertions"  # the way of capturing, where a site has to turn it off


@dataclass(frozen=True)
class Assertion:
    """What the program raises when the graph's assertion fails, whose message holds `text`."""

    text: str
    cls: type[BaseException] | None  # None: the program itself has to raise it, as only it knows what to say
    args: tuple[Any, ...]
    places: tuple[Place, ...] = ()  # the frames that it leaves, innermost first

    def exception(self) -> BaseException:
        assert self.cls is not None, "such a graph writes nothing, and the call is made again"
        made = self.cls(*self.args)
        for place in self.places:
            add_place(made, place)
        return made


def as_program_exception(error: RuntimeError, assertions: tuple[Assertion, ...]) -> BaseException:
    """What the program would have raised where the graph raised `error`."""
    text = str(error)
    for assertion in assertions:
        at = text.find(assertion.text)
        if at >= 0 and not text[at + len(assertion.text):][:1].isalnum():
            return assertion.exception()
    if text.startswith("Runtime assertion failed for expression"):  # its expression was simplified meanwhile
        return assertions[0].exception()
    return error
