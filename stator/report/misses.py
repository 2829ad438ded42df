"""Causes of recompiles.   tensor x: float32[3] cpu  ->  x was float32[3], is float32[4]

In: the failed guard of an entry with the old and the new value.  Out: its subject, before and after, in one line.
"""

from __future__ import annotations

import re

from stator import events
from stator.report.names import translate


def nearest(event: events.Recompile) -> events.Miss:
    """The miss of the entry with the fewest failed guards."""
    return events.Miss(event.guard_text, event.old, event.new, event.filename, event.line)


def change(miss: events.Miss, terms: events.Terms) -> str:
    """`x was float32[3], is float32[4]`: the subject of a guard, before and after."""
    guard = translate(miss.guard_text, terms)
    if not miss.old and not miss.new:
        return guard
    old, new = (_plain(translate(text, terms)) for text in (miss.old, miss.new))
    old = f"[{old[1:-1].removesuffix(',')}]" if miss.new.startswith("keys ") else old
    subject = re.fullmatch(r"tensor (.+?): .*|(.+?) (?:==|is|holds) .*", miss.guard_text, re.DOTALL)
    relation = miss.old == miss.guard_text or "at_least(" in miss.guard_text or new in ("one object", "two objects")
    if relation or subject is None and not guard.startswith("torch state"):
        return f"{guard} no longer holds{f': {new}' if new not in ('', 'True', 'False') else ''}"
    if guard.startswith("torch state"):
        pairs = zip(old.split(", "), new.split(", "), strict=False)
        return ", ".join(f"{was.partition('=')[0]} was {was.partition('=')[2]}, is {now.partition('=')[2]}"
                         for was, now in pairs)
    assert subject is not None
    name = translate(subject[1] or subject[2], terms)
    if new.endswith(" is gone"):
        return f"{name} was {old}, is gone" + ("" if name == new.removesuffix(" is gone") else f": {new}")
    old, new = differing(old, new) if subject[1] else (old, new)
    return f"{name} was {old}, is {new}"


def differing(old: str, new: str) -> tuple[str, str]:
    """The properties of a tensor that differ; all, where none does."""
    was, now = (re.findall(r"strides \([^)]*\)|[^ \[(]+(?:[\[(][^\])]*[\])])?", text) for text in (old, new))
    before, after = [word for word in was if word not in now], [word for word in now if word not in was]
    return (" ".join(before) or "contiguous", " ".join(after) or "contiguous") if before or after else (old, new)


def _plain(text: str) -> str:
    """`length 2` -> 2, `keys [0, 1]` -> [0, 1]: values as Python writes them."""
    return re.sub(r"^(?:length|keys) (?=[\[\d])", "", text)
