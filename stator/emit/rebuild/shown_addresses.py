"""Addresses in texts, of objects made inside.   repr(obj), obj  ->  '<K object at 0x' + address_of(k) + '>', k

In: a text of the trace, which shows addresses of objects of the trace.  Out: an expression that shows those of the
objects that the residual makes.  An object that stays inside is not made again for its address: any will do.  Where an
object turns out to leave after its text was written, the call is captured again, and its texts make the object first.
"""

from __future__ import annotations

import re

from stator.breaks import Break, Strategy
from stator.emit.services import Rebuilder


def write_shown(build: Rebuilder, text: str) -> str | None:
    """An expression for a text with addresses of objects that leave; None for any other text."""
    shown = build.vm.identity.shown
    first = Strategy.ADDRESSES_AS_SHOWN in build.vm.turned_off
    leaving = {f"{number:x}": value for number, refer in shown.items()
               if (first or number in build.memo) and (value := refer()) is not None}
    if not leaving or (found := re.split(f"({'|'.join(leaving)})", text))[1:] == []:
        return None
    if (known := build.memo.get(id(text))) is not None:
        return known
    show = build.writer.constant(address_of)
    parts = [f"{show}({build.value(leaving[part])})" if at % 2 else repr(part) for at, part in enumerate(found) if part]
    return build.variable(text, "shown", f"''.join([{', '.join(parts)}])")


def require_shown(build: Rebuilder) -> None:
    """Break where the residual makes an object whose address stands in one of its literals."""
    for number, refer in build.vm.identity.shown.items():
        texts = [*build.writer.lines, *(held for held in build.writer.names.values() if type(held) is str)]
        if number in build.memo and any(f"{number:x}" in text for text in texts):
            raise Break("SB013", f"the address of a {type(refer()).__name__} in text, beside the object itself",
                        turn_off=Strategy.ADDRESSES_AS_SHOWN)


def require_unordered(build: Rebuilder) -> None:
    """Break where the residual makes an object again that was a member of a set whose order counted."""
    if not build.vm.identity.ordered.isdisjoint(build.memo):
        raise Break("SB013", "the order of a set whose members hash by identity, beside its members",
                    turn_off=Strategy.SET_ORDER)


def address_of(value: object) -> str:
    """The digits of an address in a default repr."""
    return f"{id(value):x}"
