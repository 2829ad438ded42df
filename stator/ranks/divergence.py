"""Name a divergence of ranks before it hangs.   rank 0 runs all_reduce, rank 1 broadcast  ->  RankDivergence

In: collectives that compiled graphs launch (`launches.py`) and collectives in which a thread waits (`stalls.py`).  Out:
one `RankDivergence` event and a warning for the first difference of a group, with the line of each rank, the branch or
the guard that led there and a remedy.

Before the first launch of a graph, and by a thread from time to time, the last launches of this rank are published in
the store of the process group and compared with those of its neighbours in each group.  Reported are

- a number that two ranks give to different collectives, as soon as both have launched the graphs with them;
- two ranks that wait for one another in different collectives.

A rank that is only late, breaks alone or compiles alone gives the same numbers to the same collectives.
"""

from __future__ import annotations

import atexit
import dataclasses
import functools
import json
import threading
import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

import torch.distributed as dist
from torch import fx

from stator import errors, events
from stator.ranks import launches, stalls
from stator.ranks.branches import Branch, branch_between
from stator.ranks.launches import Call, Facts, Launch
from stator.ranks.stalls import Stall

PAUSE = 0.1  # between two looks at this rank
LOOKS = 4  # at this rank for one at others, while nothing waits
IDLE_PAUSE = 1.0  # while nothing is launched
QUIET_LOOKS = 20
REPORT_PAUSE = 0.5
RIPE_LOOKS = 4
FRESH_LOOKS = 3
MOST_PEERS = 64  # that a rank in a stall reads


class RankDivergence(events.Event):
    """Two ranks run different collectives as the same one of a group, or wait for one another."""

    group: str
    number: int  # of the collective in its group
    rank: int
    other_rank: int
    mine: Call
    theirs: Call
    branch: str = ""
    guard: str = ""
    remedy: str = ""

    def text(self) -> str:
        led = " ".join(f"{word} {found}." for word, found in (("The branch:", self.branch), ("The guard:", self.guard))
                       if found)
        return (f"stator: ranks {self.rank} and {self.other_rank} diverge at collective {self.number} of group "
                f"{self.group!r}. Rank {self.rank} runs {self.mine.text()}; rank {self.other_rank} runs "
                f"{self.theirs.text()}. {led}{' ' if led else ''}Remedy: {self.remedy}")


# ---------------------------------------------------------------------- one rank, as others see it


class Snapshot(NamedTuple):
    """The last launches of a rank."""

    launches: list[Launch]
    numbers: dict[str, int]  # how many collectives each group has begun
    stall: Stall | None = None

    def data(self) -> str:
        return json.dumps([[each.data() for each in self.launches], self.numbers, self.stall])

    @classmethod
    def of(cls, text: str | bytes, facts: Callable[[int], Facts]) -> Snapshot:
        noted, numbers, stall = json.loads(text)
        return cls([Launch(number, facts(number), first, after) for number, first, after in noted], numbers,
                   Stall.of(stall))


class Numbered:
    """Collectives of some launches, by group and number."""

    def __init__(self, noted: list[Launch], stall: Stall | None) -> None:
        self.calls: dict[tuple[str, int], Call] = {}
        self.lost: dict[tuple[str, int], Call] = {}  # kept from their number by an exception
        self.guards: dict[tuple[str, int], dict[str, str]] = {}
        for launch in noted:
            for index, name in enumerate(launch.facts.calls):
                if launch.first[index] >= 0:
                    found, lost = launch.numbered(index, name)
                    self.calls.update({(name, number): call for number, call in found.items()})
                    self.guards.update({(name, number): launch.facts.guards for number in found})
                    if lost is not None and launch.after is not None:
                        self.lost[name, launch.after[index]] = lost
        if stall is not None and stall.number >= 0:
            known = self.calls.get((stall.call.group, stall.number), stall.call)
            self.calls[stall.call.group, stall.number] = known._replace(outer=stall.call.outer)


def snapshot(noted: list[Launch], stall: Stall | None) -> Snapshot:
    groups = {name for each in noted for name in each.facts.calls}.union([stall.call.group] if stall else [])
    return Snapshot(noted, {name: launches.number_of(name) for name in sorted(groups)}, stall)


# ---------------------------------------------------------------------- comparison


def compare(mine: Snapshot, theirs: Snapshot, rank: int, other: int, fresh: bool = True) -> RankDivergence | None:
    """The first difference between two ranks; `fresh`: the other's stall was seen again since this rank stalls."""
    same = {each.key() for each in mine.launches} & {each.key() for each in theirs.launches}
    here, there = (Numbered([each for each in one.launches if each.key() not in same], one.stall)
                   for one in (mine, theirs))
    for place in sorted(here.calls.keys() & there.calls.keys(), key=lambda place: place[1]):
        one, two = here.calls[place], there.calls[place]
        lost = here.lost.get(place) or there.lost.get(place)
        if lost is not None and (mine if place in there.lost else theirs).numbers.get(place[0], 0) <= place[1]:
            continue  # the other rank has not begun it, and may leave the call by the same exception
        if one.differs(two) or lost is not None and (one.filename, one.line) != (two.filename, two.line):
            guard = differing_guard(here.guards.get(place, {}), there.guards.get(place, {}), rank, other)
            return explained(RankDivergence(*place, rank, other, one, two, guard=guard), lost)
    if fresh and mine.stall is not None and theirs.stall is not None and deadlocked(mine, theirs, rank, other):
        return explained(RankDivergence(mine.stall.call.group, mine.stall.number, rank, other, mine.stall.call,
                                        theirs.stall.call))
    return None


# ---------------------------------------------------------------------- numbers that messages have shifted


_LATE = 16  # launches by which a rank may be ahead of another, where the first ones are forgotten


def explained_by_messages(mine: Snapshot, theirs: Snapshot, group: str, agree: Callable[[Snapshot, Snapshot], bool]
                          ) -> bool:
    """Whether ranks agree once their numbers are shifted: gloo counts messages of two ranks for these two alone.

    Launches that both have completed in one order are agreed, whatever their numbers; the last of them gives the shift.
    """
    def collectives(launch: Launch) -> list[tuple[object, ...]]:
        return [call.compared() for call in launch.facts.calls.get(group, ()) if call is not None]

    one, two = ([each for each in side.launches if each.after is not None and collectives(each)]
                for side in (mine, theirs))
    whole = max(len(mine.launches), len(theirs.launches)) < launches.KEPT  # both begin with the first launch
    lates = [len(one) - len(two)] if whole else sorted(range(-_LATE, _LATE + 1), key=abs)
    for late in lates:  # how many more of them this rank has completed
        ours, others = one[:len(one) - max(late, 0)], two[:len(two) - max(-late, 0)]
        common = min(len(ours), len(others))
        if not common or any(collectives(each) != collectives(other)
                             for each, other in zip(ours[-common:], others[-common:], strict=True)):
            continue
        numbers = [sorted(each.numbered(list(each.facts.calls).index(group), group)[0])
                   for each in (ours[-1], others[-1])]
        shift = numbers[1][-1] - numbers[0][-1] if all(numbers) else 0
        if shift and agree(since(mine, ours[-1], group, 0), since(theirs, others[-1], group, shift)):
            return True
    return False


def since(side: Snapshot, last: Launch, group: str, shift: int) -> Snapshot:
    """The launches behind one, with other numbers in a group."""
    def moved(launch: Launch) -> Launch:
        at = [shift if name == group else 0 for name in launch.facts.calls]
        first, after = ([number - by for number, by in zip(numbers, at, strict=True)] if numbers is not None else None
                        for numbers in (launch.first, launch.after))
        assert first is not None
        return Launch(launch.number, launch.facts, first, after)

    place = next(place for place, each in enumerate(side.launches) if each is last)
    stall = side.stall
    if stall is not None and stall.call.group == group and stall.number >= 0:
        stall = stall._replace(number=stall.number - shift)
    numbers = {name: number - (shift if name == group else 0) for name, number in side.numbers.items()}
    return Snapshot([moved(each) for each in side.launches[place + 1:]], numbers, stall)


def deadlocked(mine: Snapshot, theirs: Snapshot, rank: int, other: int) -> bool:
    """Whether two ranks wait for one another."""
    one, two = mine.stall, theirs.stall
    assert one is not None and two is not None
    if one.peer >= 0 and two.peer >= 0 and ("recv" in one.call.kind) != ("recv" in two.call.kind):
        return False  # a send and its receive
    return waits_for(one, other, theirs) and waits_for(two, rank, mine)


def waits_for(stall: Stall, rank: int, its: Snapshot) -> bool:
    """Whether a stall ends only when a rank launches something that it has not launched."""
    if stall.number < 0:
        return stall.peer == rank
    return rank in stalls.members_of(stall.call.group) and its.numbers.get(stall.call.group, 0) <= stall.number


def differing_guard(mine: dict[str, str], theirs: dict[str, str], rank: int, other: int) -> str:
    """The first place of which two entries have different guards."""
    for place, text in mine.items():
        if theirs.get(place, text) != text:
            return f"{text} on rank {rank}, {theirs[place]} on rank {other}"
    return ""


def explained(found: RankDivergence, lost: Call | None = None) -> RankDivergence:
    """Add the branch that led there, and a remedy."""
    mine, theirs = found.mine, found.theirs
    if mine.outer and theirs.outer:
        branch = branch_between(mine.outer + mine.stack, theirs.outer + theirs.stack)
    else:
        branch = branch_between(mine.stack, theirs.stack)
    shown = "" if branch is None else branch.text()
    return dataclasses.replace(found, branch=shown, remedy=remedy_of(mine, theirs, branch, found.guard, lost))


def remedy_of(mine: Call, theirs: Call, branch: Branch | None, guard: str, lost: Call | None) -> str:
    if lost is not None:
        return (f"an exception left a call before {lost.text()}; let all ranks learn of an error before the next "
                "collective, or raise it on all of them.")
    if mine.group != theirs.group:
        return "run collectives of different groups in one order on all ranks."
    if mine.kind == theirs.kind and mine.line == theirs.line and mine.differs(theirs):
        (reduction, other), (root, other_root), (dtype, other_dtype), _ = mine.properties(theirs)
        if reduction != other:
            return "give all ranks the same reduction."
        if root != other_root:
            return "give all ranks the same root."
        if dtype != other_dtype:
            return "convert to one dtype before the collective."
        return "pad tensors to one size before the collective, or gather them with their sizes."
    if branch is None:
        return (f"give all ranks the same value ({guard})." if guard
                else "let values that all ranks share decide which collectives run.")
    if branch.loops:
        return "agree on the number of iterations first (all_reduce it with MIN or MAX)."
    if "rank" in branch.code:
        return ("take the collective out of the branch, or give it a group of the ranks that reach it "
                "(torch.distributed.new_group).")
    return "let all ranks take the same way: all_reduce the condition before the branch."


# ---------------------------------------------------------------------- the thread


class Watcher:
    """Publishes launches of this rank and reads those of others, in one world."""

    def __init__(self, store: dist.Store, rank: int) -> None:
        self.store, self.rank = store, rank
        self.threads = stalls.Watch()
        self.published = ""
        self.graphs: set[int] = set()  # whose facts are published
        self.theirs: dict[tuple[int, int], Facts] = {}
        self.reported: set[str] = set()
        self.looks = 0  # since others were read
        self.quiet = 0  # since the last change
        self.postponed = 0
        self.heard: dict[int, tuple[tuple[object, ...], int]] = {}  # own stall, and looks of a rank at that time
        self.lock = threading.Lock()

    def look(self) -> None:
        """Look at the threads of this rank; now and then at others."""
        noted = list(launches.LOG)
        stall = self.threads.look(noted)
        self.looks += 1
        if noted and (stall is not None or self.looks >= LOOKS):
            self.looks = 0
            self.exchange(noted, stall)

    def exchange(self, noted: list[Launch], stall: Stall | None) -> bool:
        """Publish this rank and compare it with others; whether one of them differs."""
        with self.lock:
            difference = self._exchange(snapshot(noted, stall), {
                each.number: each.facts for each in noted if each.number not in self.graphs})
        if difference is not None:
            report(difference)
        return difference is not None

    def _exchange(self, mine: Snapshot, new: dict[int, Facts]) -> RankDivergence | None:
        for number, facts in new.items():
            self.store.set(f"{self.rank}/{number}", facts.data())
            self.graphs.add(number)
        text = mine.data()
        self.quiet = 0 if text != self.published else self.quiet + 1
        if text != self.published:
            self.store.set(str(self.rank), text)
            self.published = text
        for other in self.peers(mine):
            if self.store.check([str(other)]):
                theirs = Snapshot.of(self.store.get(str(other)), functools.partial(self.facts, other))
                fresh = self.is_fresh(other, mine.stall, theirs.stall)
                found = compare(mine, theirs, self.rank, other, fresh)
                if found is not None and stalls.counts_messages(found.group) and explained_by_messages(
                        mine, theirs, found.group, lambda a, b: compare(a, b, self.rank, other, fresh) is None):  # noqa: B023
                    found = None
                if found is not None and found.group not in self.reported and self.is_ripe(found):
                    self.reported.add(found.group)
                    if mine.stall is not None:  # the process may end with the report: let the other one find it fresh
                        seen = mine.stall._replace(looks=mine.stall.looks + 2 * FRESH_LOOKS)
                        self.store.set(str(self.rank), mine._replace(stall=seen).data())
                    return found
        return None

    def is_fresh(self, other: int, mine: Stall | None, theirs: Stall | None) -> bool:
        """Whether another rank has found itself stalled since this one stalls: a message may be on its way."""
        if mine is None or theirs is None:
            self.heard.pop(other, None)
            return False
        stall, looks = self.heard.setdefault(other, (mine[:3], theirs.looks))
        if stall != mine[:3] or theirs.looks < looks:
            self.heard[other] = mine[:3], theirs.looks
            return False
        return theirs.looks >= looks + FRESH_LOOKS

    def is_ripe(self, found: RankDivergence) -> bool:
        """Whether both ranks know the lines that led there, where these tell; they do after some looks."""
        native = "?" in (found.mine.reduction, found.theirs.reduction)
        self.postponed += native and bool(found.mine.outer) != bool(found.theirs.outer)
        return not native or self.postponed > RIPE_LOOKS or bool(found.mine.outer) == bool(found.theirs.outer)

    def facts(self, rank: int, number: int) -> Facts:
        if (rank, number) not in self.theirs:
            self.theirs[rank, number] = Facts.of(self.store.get(f"{rank}/{number}"))
        return self.theirs[rank, number]

    def peers(self, mine: Snapshot) -> list[int]:
        """Neighbours in each group; all members of a group in which this rank waits."""
        found: dict[int, None] = {}
        for name in mine.numbers:
            members = stalls.members_of(name)
            if self.rank in members:
                place = members.index(self.rank)
                found.update(dict.fromkeys((members[place - 1], members[(place + 1) % len(members)])))
                if mine.stall is not None and mine.stall.call.group == name:
                    found.update(dict.fromkeys(members[:MOST_PEERS]))
        return [each for each in found if each != self.rank]


_worlds: list[int] = []  # ids of default groups, in order: a store may outlive a world
_watchers: list[tuple[Watcher, threading.Thread]] = []  # of this world
_stop = threading.Event()


def watched(compiled: launches.Compiled, graph: fx.Graph, guards: Iterable[launches.GuardText]) -> launches.Compiled:
    """The compiled graph; where it has collectives, they are compared with those of other ranks from now on."""
    return launches.recorded(compiled, graph, guards, compare_first)


def compare_first() -> None:
    """Compare before the first launch of a graph.  Two ranks that differ may crash there: let the other report too."""
    try:
        if watch().exchange(list(launches.LOG), None):
            time.sleep(REPORT_PAUSE)
    except (RuntimeError, ValueError):  # the store is gone, and the group with it
        pass


def watch() -> Watcher:
    """The watcher of this world, and its thread."""
    world = id(dist.group.WORLD)
    if not (_watchers and _worlds[-1] == world and _watchers[0][1].is_alive()):
        end()
        last = list(launches.LOG)[-1:]
        launches.LOG.clear()  # of another world
        launches.LOG.extend(last)
        _worlds.append(world)
        _stop.clear()
        watcher = Watcher(dist.PrefixStore(f"stator/launches/{len(_worlds)}", _own_store()), dist.get_rank())
        thread = threading.Thread(target=_run, args=(world, watcher), name="stator ranks", daemon=True)
        _watchers.append((watcher, thread))
        thread.start()
    return _watchers[0][0]


def _own_store() -> dist.Store:
    store = dist.distributed_c10d._get_default_store()
    try:
        return store.clone()  # with a connection of its own: another thread may wait in the other one
    except RuntimeError:
        return store


def end() -> None:
    """End the thread: it must not be in C++ code when the interpreter goes."""
    _stop.set()
    launches.WAKE.set()
    if _watchers:
        _watchers.pop()[1].join(5.0)


atexit.register(end)


def _run(world: int, watcher: Watcher) -> None:
    try:
        while not _stop.is_set() and dist.is_initialized() and id(dist.group.WORLD) == world:
            watcher.look()
            launches.IDLE[:] = [True] * (watcher.quiet > QUIET_LOOKS)
            launches.WAKE.wait(IDLE_PAUSE if launches.IDLE else PAUSE)
            launches.WAKE.clear()
    except (RuntimeError, ValueError):  # the store is gone, and the group with it
        pass
    launches.IDLE.clear()


def report(difference: RankDivergence) -> None:
    errors.warn(difference.text())
    events.emit(difference)
