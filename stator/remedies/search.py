"""Find changes that remove breaks and recompiles, one after the other.

In: a function of the user and recorded calls.  Out: `Proposals`. Each problem of the current version has candidates
(`registry.py`); the first that leaves fewer problems and the results of eager is kept, and the next problem is met on
top of it.
"""

from __future__ import annotations

import ast
import itertools
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from stator.breaks import Break
from stator.remedies.observation import Observation
from stator.remedies.proposals import Cost, Failure, Proposal, Proposals
from stator.remedies.recorded_calls import Call, Calls
from stator.remedies.registry import Candidate, Problem, Site, candidates
from stator.remedies.rewrites import registered  # noqa: F401  (the table of rewrites)
from stator.remedies.source_text import Edit, Function, SourceText, first_line
from stator.remedies.trial import Result, Version, World
from stator.report.frames import source_line

MOST_PROPOSALS = 12
MOST_CANDIDATES = 16  # for one problem
MOST_SIDEWAYS = 3  # changes that trade one problem for another, and are followed
DEPTH = 1
FAILURES = (Exception, Break)  # of a rewrite or its trial: the candidate is dropped
Branch = tuple[str, ast.If | ast.IfExp | ast.While]  # with the function it is in


@dataclass
class Found:
    """Candidates that together work."""

    candidates: list[Candidate]
    version: Version
    result: Result
    remarks: list[str]


def propose(fn: Callable[..., object], calls: Sequence[Call], settings: Mapping[str, object] | None = None,
            name: str = "") -> Proposals:
    """Try changes for every break and recompile of the calls; nothing of the program is changed."""
    search = Search(World(fn, Calls(fn, calls), settings or {}))
    return search.run(name or getattr(fn, "__qualname__", type(fn).__qualname__))


class Search:
    """The current version, its captures, and what has been tried."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.version = Version()
        self.result = world.capture(self.version)
        self.given_up: dict[str, Failure] = {}
        self.proposals: list[Proposal] = []

    def run(self, name: str) -> Proposals:
        before = self._cost(self.version)
        now = before
        while len(self.proposals) < MOST_PROPOSALS:
            problem = next((each for each in self.result.problems if _key(each) not in self.given_up), None)
            if problem is None:
                break
            kept = self._mend(problem, now)
            if kept is not None:
                now = kept
        left = {_key(each) for each in self.result.problems}
        failures = tuple(each for key, each in self.given_up.items() if key in left)
        texts = {filename: text.text for filename, text in self.version.texts.items()}
        return Proposals(name, tuple(self.proposals), failures, before, now, texts)

    def _cost(self, version: Version) -> Cost:
        result = self.world.capture(version, timed=True)
        return Cost(result.breaks, result.recompiles, result.graphs, result.microseconds)

    def _mend(self, problem: Problem, before: Cost) -> Cost | None:
        """Keep the first change that works; else note why none does."""
        tried: list[tuple[str, str]] = []
        found = self._attempt(problem, self.result.score, tried, DEPTH)
        if found is not None:
            return self._keep(problem, found, before)
        filename = None if problem.filename is None else problem.filename.partition("#remedy")[0]
        self.given_up[_key(problem)] = Failure(str(problem), filename, problem.line, tuple(tried))
        return None

    def _attempt(self, problem: Problem, goal: tuple[int, int, int], tried: list[tuple[str, str]], depth: int,
                 branches: Sequence[Branch] = ()) -> Found | None:
        """The first candidate, or two of them, with a better score than `goal` and the results of eager."""
        site = self._site(problem)
        known = {_key(each) for each in self.result.problems}
        sideways: list[tuple[Candidate, Version, Result, list[Branch]]] = []
        for candidate in itertools.islice(candidates(site), MOST_CANDIDATES):
            remarks: list[str] = []
            try:
                version = self._with(site, candidate)
                result = self.world.capture(version)
                every = [*branches, *self._originals(site, candidate)]
                if len(every) < len(branches) + len(candidate.branches):
                    why = "the branch is not in the original text"
                elif result.steady > self.result.steady:
                    why = "calls are captured again and again"
                elif result.score < goal:
                    why, remarks = self.world.compare(version, result, every, site.functions)
                else:
                    why = f"it does not help: {next(map(str, result.problems), 'as many captures')}"
                    if depth and _key(problem) not in map(_key, result.problems):
                        sideways.append((candidate, version, result, every))
            except FAILURES as error:
                why = f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"
            if not why:
                return Found([candidate], version, result, remarks)
            tried.append((candidate.title, why))
        here = self.version, self.result
        for candidate, version, result, every in sideways[:MOST_SIDEWAYS]:
            fresh = [each for each in result.problems if _key(each) not in known]
            self.version, self.result = version, result
            found = self._attempt(fresh[0], goal, [], depth - 1, every) if fresh else None
            self.version, self.result = here
            if found is not None:
                return Found([candidate, *found.candidates], found.version, found.result, found.remarks)
        return None

    def _originals(self, site: Site, candidate: Candidate) -> list[Branch]:
        """The branches of a candidate in the original text: by their tests, else by their order in the function."""
        if site.text is None or site.function is None or (original := SourceText.of_file(site.text.filename)) is None:
            return []
        now, found = _branches(site.function), []
        for name, function in original.functions:
            if name != site.qualname:
                continue
            before = _branches(function)
            for branch in candidate.branches:
                test = ast.dump(branch.test)
                same = [node for node in before if ast.dump(node.test) == test]
                if not same and len(now) == len(before):
                    same = [old for old, new in zip(before, now, strict=True) if ast.dump(new.test) == test]
                found += [(name, node) for node in same]
        return found

    def _keep(self, problem: Problem, found: Found, before: Cost) -> Cost:
        after = self._cost(found.version)
        diffs = [(self._text(filename) or text).diff(text) for filename, text in found.version.texts.items()
                 if text != self.version.texts.get(filename)]
        filename = None if problem.filename is None else problem.filename.partition("#remedy")[0]
        notes = dict.fromkeys([each.note for each in found.candidates if each.note] + found.remarks)
        title = ", and then ".join(dict.fromkeys(each.title for each in found.candidates))
        settings = {name: value for each in found.candidates for name, value in each.settings.items()}
        added = {name: text for each in found.candidates for name, text in each.added.items()}
        self.proposals.append(Proposal(title, str(problem), filename, self._original_line(problem), "\n".join(diffs),
                                       settings, added, before, after, tuple(notes)))
        self.version, self.result = found.version, found.result
        return after

    # ------------------------------------------------------------------ places

    def _text(self, filename: str) -> SourceText | None:
        return self.version.texts.get(filename) or SourceText.of_file(filename)

    def _original_line(self, problem: Problem) -> int | None:
        """The line in the original file: that of the same text, where a changed copy has moved it."""
        if problem.filename is None or problem.line is None or "#remedy" not in problem.filename:
            return problem.line
        filename = problem.filename.partition("#remedy")[0]
        text, original = self._text(filename), SourceText.of_file(filename)
        if text is None or original is None or problem.line > len(text.lines):
            return None
        line = text.lines[problem.line - 1]
        return original.lines.index(line) + 1 if line in original.lines else None

    def _site(self, problem: Problem) -> Site:
        """The statements around a problem, in the current version."""
        entry = self._entry_function()
        filename = (problem.filename or "").partition("#remedy")[0]
        text = self._text(filename) if filename else None
        around = [] if text is None or problem.line is None else text.function_at(problem.line)
        for name, node in around:
            if functions := self.world.functions.find(filename, name):
                return self._observed(Site(problem, text, name, node, functions, is_entry=entry in functions))
        if entry is None or (text := self._text(entry.__code__.co_filename)) is None:
            return Site(problem)
        for name, node in text.functions:
            if name == entry.__code__.co_qualname:
                return self._observed(Site(replace(problem, line=None), text, name, node, [entry], is_entry=True))
        return Site(problem)

    def _observed(self, site: Site) -> Site:
        """A site with the types and shapes of its names in an eager run."""
        seen = Observation()
        self.world.calls.run(self.world.fn, around=lambda whole: seen.watch([site.functions[0].__code__], whole))
        return replace(site, types=seen.types.get(site.qualname, {}), shapes=seen.shapes.get(site.qualname, {}))

    def _entry_function(self) -> types.FunctionType | None:
        """The Python function that is compiled: `forward` of a module."""
        forward: object = getattr(self.world.fn, "forward", self.world.fn)
        function = getattr(forward, "__func__", forward)
        return function if isinstance(function, types.FunctionType) else None

    def _with(self, site: Site, candidate: Candidate) -> Version:
        """The current version with one more change."""
        texts, definitions = dict(self.version.texts), dict(self.version.definitions)
        if site.text is not None and (candidate.edits or candidate.definitions):
            filename, edits = site.text.filename, list(candidate.edits)
            if candidate.definitions:
                top = _top_level(site.text, site.function)
                edits.append(Edit(top, top - 1, (*candidate.definitions.rstrip().splitlines(), "", "")))
                definitions[filename] = definitions.get(filename, "") + candidate.definitions
            texts[filename] = site.text.changed(edits)
        settings = {**self.version.settings, **candidate.settings}
        return Version(texts, definitions, settings,
                       {**self.version.added, **candidate.added})


def _top_level(text: SourceText, function: Function | None) -> int:
    """The first line of the top-level statement around a function."""
    assert function is not None
    line = function.lineno
    return next(first_line(each) for each in text.tree.body if first_line(each) <= line <= (each.end_lineno or 0))


def _branches(function: Function) -> list[ast.If | ast.IfExp | ast.While]:
    return [node for node in ast.walk(function) if isinstance(node, ast.If | ast.IfExp | ast.While)]


def _key(problem: Problem) -> str:
    """A problem, wherever a change has moved it."""
    line = source_line(problem.filename or "", problem.line or 0)
    return f"{problem.code} {problem.cause} {(problem.filename or '').partition('#remedy')[0]} {line}"
