"""A call outside a contract: the error, and its text.

In: the changes that no entry of the contract covers, and the outcome of a trial.  Out: `ContractViolation`, whose text
names each fact with both values and the user's line, and the line to add.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from stator.errors import StatorError

if TYPE_CHECKING:
    from stator.contracts.facts import Change


class ContractViolation(StatorError):
    """A call would be compiled again for a fact that its contract does not let vary.

    `facts` are its facts as text, `add` is the entry to add to `varies`, None where none helps or the fact is fixed.
    """

    like = "torch._dynamo.exc", "RecompileError"

    def __init__(self, text: str, facts: tuple[str, ...] = (), add: tuple[str, ...] | None = None) -> None:
        super().__init__(text, facts, add)
        self.text, self.facts, self.add = text, facts, add

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Tried:
    """Outcome of a capture under the wider contract."""

    shared: bool  # one entry accepts this call and the one before
    why: str = ""  # otherwise: the guard that distinguishes them, or the failure of the capture
    captured: bool = True


def violation_text(name: str, changed: Sequence[Change], fixed: Sequence[str], varies: Sequence[str],
             tried: Tried | None) -> ContractViolation:
    """The error of a call; `fixed` are entries of the contract that forbid it."""
    kind = "fixed by" if fixed else "outside"
    lines = [f"{name} would be compiled again, {kind} its contract: {changed[0].text()}"]
    lines += [f"  and {change.text()}" for change in changed[1:]]
    facts = tuple(change.fact.text for change in changed)
    if tried is None:
        lines.append(f"  fixed: {', '.join(map(repr, fixed))}; remove it from `fixed` to let it vary")
        return ContractViolation("\n".join(lines), facts)
    added = tuple(dict.fromkeys(fact.text for change in changed for fact in change.to_add))
    entry = f"varies=[{', '.join(map(repr, (*varies, *added)))}]"
    if not tried.captured:
        return ContractViolation("\n".join([*lines, f"  tried {entry}: {tried.why}"]), facts)
    lines.append(f"  add: {entry}")
    lines.append("  tried: one entry then accepts this call and the one before; nothing is compiled again"
                 if tried.shared else f"  tried: each value is then compiled once, because {tried.why}")
    return ContractViolation("\n".join(lines), facts, added)
