"""Compare each miss of a compiled callable with its contract.

In: a site and a call that none of its entries accepts.  Out: the capture goes on where the contract covers the call;
otherwise an error or a warning.  Calls that an entry accepts never come here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch

from stator import errors
from stator.capture import miss
from stator.capture.call_site import CallSite
from stator.contracts.contract import Contract
from stator.contracts.facts import Change, UserTerms, changes
from stator.contracts.patterns import Fact
from stator.contracts.trial import captured_guards, guards_accept_before
from stator.contracts.violation import ContractViolation, Tried, violation_text
from stator.host.suspended_patches import find_patches, suspended
from stator.settings import marks, stance
from stator.settings.process_config import config
from stator.shapes import profile

if TYPE_CHECKING:
    from stator import _core

MOST_DIMS = 16
_FIRST_NAME = re.compile(r"\w+")


class Table(dict[str, Sequence[int]]):
    """Dimensions that a contract lets vary, by the name of a value in guards."""

    def __init__(self, known: dict[str, Sequence[int]], dims_of: Callable[[str], Sequence[int]]) -> None:
        super().__init__(known)
        self.dims_of = dims_of

    def get(self, name: str, default: object = ()) -> Sequence[int]:  # type: ignore[override]
        return (*super().get(name, ()), *self.dims_of(name))


class Names(list[str]):
    """Values that a contract lets vary, by their names in guards."""

    def __init__(self, known: Sequence[str], varies: Callable[[str], bool]) -> None:
        super().__init__(known)
        self.varies = varies

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or isinstance(name, str) and self.varies(name)


def foreseen(contract: Contract, named: UserTerms, ranks: dict[str, int], place: str) -> dict[str, object]:
    """The form in which `shapes.policy.Memory` has sizes and numbers that are symbols from the first capture on."""
    known = profile.foreseen(place) or {"numbers": [], "tuples": [], "sizes": {}, "strides": {}, "lengths": {}}

    def sizes(name: str) -> Sequence[int]:
        user = named(name)
        rank = ranks.get(user, 0)
        return [dim for dim in range(MOST_DIMS) if contract.allows(Fact(f"{user}.size({dim})", user, rank))]

    return {"sizes": Table(known["sizes"], sizes), "strides": known["strides"],
            "lengths": Table(known["lengths"], lambda name: (0,) if contract.allows(
                Fact(f"len({named(name)})", f"\0{named(name)}")) else ()),
            "numbers": Names(known["numbers"], lambda name: contract.allows(Fact(named(name), named(name)))),
            "tuples": Names(known["tuples"], lambda name: any(
                pattern.text.startswith(f"{named(name)}[") for pattern in contract.varies))}


def tensor_ranks(fn: Callable[..., object], bound: Sequence[object], named: UserTerms) -> dict[str, int]:
    """Numbers of dimensions of the tensors among the arguments: `x.size(-1)` needs them."""
    values = dict(zip(fn.__code__.co_varnames, bound, strict=False))
    args, kwargs = values.get("args"), values.get("kwargs")
    if isinstance(args, tuple):
        values.update({named(f"args[{number}]"): value for number, value in enumerate(args)})
    if isinstance(kwargs, dict):
        values.update(kwargs)
    with torch._C.DisableTorchFunction():
        return {name: value.dim() for name, value in values.items() if isinstance(value, torch.Tensor)}


def prepare(contract: Contract, site: CallSite, bound: tuple[object, ...]) -> UserTerms:
    """Let the next capture of a site leave open what varies."""
    named = UserTerms(site.fn, site.point, bound, contract.of_module)
    ranks = tensor_ranks(site.fn, bound, named)
    site.shapes.memory.foreseen = foreseen(contract, named, ranks, site.place)
    return named


class Governor:
    """Keeps the sites of one compiled callable to a contract."""

    def __init__(self, contract: Contract, root: CallSite) -> None:
        self.contract, self.root = contract, root
        self.parameters = frozenset(root.fn.__code__.co_varnames)
        make_entry = root.points.make_entry

        def make_governed(point: object) -> _core.CompiledFunction:
            entry = make_entry(point)
            self.govern(entry._stator_site)
            return entry

        for entry in root.points.entries():
            self.govern(entry._stator_site)
        root.points.make_entry = make_governed
        self.govern(root)

    def govern(self, site: CallSite) -> None:
        site.compiled.miss.__setstate__((functools.partial(self.on_miss), (site,), {}, None))

    def on_miss(self, site: CallSite, compiled: _core.CompiledFunction, bound: tuple[object, ...],
                args: tuple[object, ...], kwargs: dict[str, object] | None) -> object:
        """A miss: compare it with the contract, then handle it as any other."""
        if self.would_compile(site):
            if compiled.entries() and (miss.take_from_family(site, bound) or miss.take_stored(site, bound)):
                return miss.on_miss(site, compiled, bound, args, kwargs)  # which finds it, and makes the call again
            with suspended(find_patches()):
                prepare(self.contract, site, bound)
                found = self.violation(site, bound) if compiled.entries() else None
            if found is not None:
                if not self.contract.warns:
                    raise found
                errors.warn(f"stator: {found}")
        return miss.on_miss(site, compiled, bound, args, kwargs)

    def would_compile(self, site: CallSite) -> bool:
        return not (getattr(miss._tracing, "active", False) or marks.disable_depth() or config.disable
                    or torch._C._get_tracing_state() is not None or marks.disabled_mark(site.fn) is not None
                    or stance.current() not in ("default", "eager_then_compile"))

    def allows(self, site: CallSite, fact: Fact) -> bool:
        """Whether a fact may vary; behind a break, sizes of values that were computed before it follow others."""
        if self.contract.allows(fact):
            return True
        first = _FIRST_NAME.match(fact.subject)
        computed = site.point is not None and first is not None and first[0] not in {*self.parameters, "self"}
        return computed and bool(self.contract.varies) and (
            fact.size_index is not None or fact.text.endswith((".stride()", ".dim()")))

    def violation(self, site: CallSite, bound: tuple[object, ...]) -> ContractViolation | None:
        """The error of this call; None where the contract covers its changes from one of the entries."""
        named = UserTerms(site.fn, site.point, bound, self.contract.of_module)
        entries = [(program, tag) for program, _, tag in site.compiled.entries() if tag is not None]
        if any(program.check(bound) == -1 for program, _ in entries):
            return None  # another thread has made one meanwhile
        with torch._C.DisableTorchFunction():  # a mode of the user must not see these reads of tensors
            each = [changes(tag.guards, bound, named, site.user_line(bound)) for _, tag in entries]
        rows = [([change for change in found if self.outside(site, change)], found) for found in each if found]
        if not rows or not all(outside for outside, _ in rows):
            return None
        outside, found = min(rows, key=lambda row: (len(row[0]), len(row[1])))
        fixed = [change for change in outside if self.contract.fixes(change.fact)]
        others = [change for change in outside if change not in fixed]
        tried = None if fixed else self.tried(site, bound, others, found, named)
        entries_fixed = [pattern.shown for pattern in self.contract.fixed
                         if any(pattern.covers(change.fact) for change in fixed)]
        unique = list(dict.fromkeys(entries_fixed))
        return violation_text(site.name, (*fixed, *others), unique, self.contract.entries, tried)

    def outside(self, site: CallSite, change: Change) -> bool:
        return self.contract.fixes(change.fact) or not any(
            self.allows(site, fact) for fact in (change.fact, *change.fact.operands))

    def tried(self, site: CallSite, bound: tuple[object, ...], outside: Sequence[Change], changed: Sequence[Change],
              named: UserTerms) -> Tried:
        """Capture the call under the contract with the missing facts."""
        wider = self.contract.with_facts([fact for change in outside for fact in change.to_add])
        guards = captured_guards(site, self.root, bound, lambda other: prepare(wider, other, bound))
        if isinstance(guards, str):
            return Tried(False, guards, captured=False)
        return guards_accept_before(guards, changed, bound, named, site.user_line(bound))
