"""Guards by family.   284 guards  ->  142 classes, 97 containers, 31 tensors, 14 values

In: guards, each with a kind and a text.  Out: rows with a title, the guards, and the time of a check, where it was
measured.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

FAMILIES = {
    "TENSOR": "tensors", "VALUES": "contents of tensors", "SHAPE": "sizes", "EQUALS": "values", "TYPE": "types",
    "TYPE_ATTR": "classes", "TYPE_FIELD": "classes", "ID": "identities", "NOT_ID": "identities", "ALIAS": "aliases",
    "NOT_ALIAS": "aliases", "PARTITION": "aliases", "LEN": "containers", "KEYS": "containers", "ABSENT": "containers",
    "PRESENT": "containers", "SET_EQUALS": "containers", "CELL_EMPTY": "containers", "SLOT_EMPTY": "containers",
    "GLOBAL_STATE": "state of torch", "FRESH_CALL": "calls of readers",
}


@dataclass
class Family:
    title: str
    guards: list[Any] = field(default_factory=list)
    microseconds: float | None = None  # of checking them once, measured

    def __str__(self) -> str:
        cost = "" if self.microseconds is None else f", {self.microseconds:.2f} us a call"
        return f"{len(self.guards)} {self.title}{cost}"


def fold(guards: Iterable[Any], costs: Iterable[tuple[str, float]] = ()) -> list[Family]:
    """Families of guards, the costliest and largest first; `costs` are microseconds by kind of guard."""
    found: dict[str, Family] = {}
    for guard in guards:
        title = FAMILIES.get(guard.kind.name, guard.kind.name.lower())
        found.setdefault(title, Family(title)).guards.append(guard)
    for kind, cost in costs:
        if (family := found.get(FAMILIES.get(kind, kind.lower()))) is not None:
            family.microseconds = (family.microseconds or 0.0) + cost
    return sorted(found.values(), key=lambda family: (-(family.microseconds or 0.0), -len(family.guards)))
