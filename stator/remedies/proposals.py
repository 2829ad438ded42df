"""Results of trials, for people and machines.   print(proposals);  proposals.data()  ->  JSON

In: accepted changes with the captures before and after.  Out: text with diffs and savings; a dict of plain values.
"""

from __future__ import annotations

from dataclasses import dataclass, field

Data = dict[str, object]


@dataclass(frozen=True)
class Cost:
    """Breaks, recompiles, graphs and time of one version of a program."""

    breaks: int
    recompiles: int
    graphs: int
    microseconds: float

    def __str__(self) -> str:
        return (f"{self.breaks} breaks, {self.recompiles} recompiles, {self.graphs} graphs, "
                f"{self.microseconds:.0f} us a call")

    def data(self) -> Data:
        return {"breaks": self.breaks, "recompiles": self.recompiles, "graphs": self.graphs,
                "microseconds": self.microseconds}


@dataclass(frozen=True)
class Proposal:
    """A change that was captured and gave the results of eager."""

    title: str
    problem: str  # the break or recompile that it removes
    filename: str | None
    line: int | None
    diff: str  # to be applied after those of the proposals before it
    settings: Data = field(default_factory=dict)  # arguments of compile() to add
    added: dict[str, str] = field(default_factory=dict)  # arguments that callers are to compute
    before: Cost = Cost(0, 0, 0, 0.0)
    after: Cost = Cost(0, 0, 0, 0.0)
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        lines = [f"{self.title}: {self.problem}", *(self.diff.splitlines() if self.diff else ())]
        lines += [f"compile with {name}={value!r}" for name, value in self.settings.items()]
        lines += [f"call with {name}={text}" for name, text in self.added.items()]
        lines += [f"before: {self.before}", f"after:  {self.after}", *(f"note: {each}" for each in self.remarks)]
        return "\n  ".join(lines)

    def data(self) -> Data:
        return {"title": self.title, "problem": self.problem, "file": self.filename, "line": self.line,
                "diff": self.diff, "settings": {name: repr(value) for name, value in self.settings.items()},
                "added": dict(self.added), "before": self.before.data(), "after": self.after.data(),
                "remarks": list(self.remarks)}


@dataclass(frozen=True)
class Failure:
    """A break or recompile that no change removes."""

    problem: str
    filename: str | None
    line: int | None
    tried: tuple[tuple[str, str], ...] = ()  # titles, and why not

    def __str__(self) -> str:
        lines = [f"{self.problem}: none of {len(self.tried)} tried works" if self.tried
                 else f"{self.problem}: no change is known that could be tried"]
        return "\n  ".join([*lines, *(f"{title}: {why}" for title, why in self.tried)])

    def data(self) -> Data:
        return {"problem": self.problem, "file": self.filename, "line": self.line,
                "tried": [list(pair) for pair in self.tried]}


@dataclass(frozen=True)
class Proposals:
    """Proposals for one function, each on top of those before it, and problems that stay."""

    name: str
    proposals: tuple[Proposal, ...]
    failures: tuple[Failure, ...]
    before: Cost
    after: Cost
    texts: dict[str, str] = field(default_factory=dict)  # changed files, whole

    def __str__(self) -> str:
        if not self.proposals and not self.failures:
            return f"{self.name}: no breaks, no recompiles"
        lines = [f"{self.name}: {self.before}"]
        lines += [f"proposal {number}: {each}" for number, each in enumerate(self.proposals, 1)]
        lines += [str(each) for each in self.failures]
        return "\n".join([*lines, f"with all proposals: {self.after}"])

    def data(self) -> Data:
        return {"name": self.name, "before": self.before.data(), "after": self.after.data(),
                "proposals": [each.data() for each in self.proposals],
                "failures": [each.data() for each in self.failures]}
