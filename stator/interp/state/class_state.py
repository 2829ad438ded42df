"""Classes and identities.   setattr(cls, ...), id(obj), weakref.ref(obj)  ->  notes for guards and residual"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stator.host.mechanism import Mechanism, key_ids


@dataclass(slots=True, eq=False)
class ClassState(Mechanism):
    """Facts about classes, and attributes set on them."""

    lookups: dict[tuple[type, str], Any] = field(default_factory=dict)
    ancestry: set[type] = field(default_factory=set)  # classes whose MRO is guarded
    named: set[type] = field(default_factory=set)  # whose names are guarded
    asked: set[type] = field(default_factory=set)  # whose special methods are guarded
    overlays: dict[type, dict[str, Any]] = field(default_factory=dict)  # attributes as the program has set them
    reborn: set[tuple[type, str]] = field(default_factory=set)  # deleted and set again: last in the class from now on
    making: int = 0  # how many type.__new__ are running

    def fingerprint(self) -> Any:
        return key_ids(self.overlays)  # type: ignore[arg-type]

    def has_changes(self) -> bool:
        return bool(self.overlays)


@dataclass(slots=True, eq=False)
class IdentityState(Mechanism):
    """Addresses that the program has seen: the objects of the residual have others."""

    handed: dict[int, None] = field(default_factory=dict)  # the ids of what the entry was called with
    addresses: set[int] = field(default_factory=set)  # of tuples made inside the trace, which it does not hold
    ids: dict[int, Any] = field(default_factory=dict)  # of objects made inside the trace whose id was read
    hashes: dict[int, Any] = field(default_factory=dict)  # the same, of hashes that are made of addresses
    shown: dict[int, Any] = field(default_factory=dict)  # objects of the trace whose default repr was made
    tells_of_deaths: bool = False  # whether a weak reference with a callback was made (see weak_references)

    def replay_key(self) -> int:
        return len(self.shown)


@dataclass(slots=True, eq=False)
class FunctionState(Mechanism):
    """Facts about functions, of the program and made by the trace."""

    type_parameters: dict[int, tuple[Any, str, tuple[Any, ...]]] = field(default_factory=dict)  # which, from what
    defaults: dict[int, Any] = field(default_factory=dict)
    callbacks: dict[int, Any] = field(default_factory=dict)  # functions that stand for C callables inside C iterators
    compiled_inside: dict[int, Any] = field(default_factory=dict)  # compiled functions made by the trace
    coded: dict[int, Any] = field(default_factory=dict)  # outside functions whose code is guarded
