"""Let ranks agree on sizes before they capture.   rank 0 has x of 3 rows, rank 1 of 5  ->  both capture any number

In: a call that no entry accepts, on each rank.  Out: a shape profile (shapes/profile.py) that all ranks have.

At the first miss of a place each rank publishes the sizes and numbers of its arguments in the store of the process
group, and waits for those of the others, at most `config.compiler_collectives_seconds`.  What differs is a symbol on
all ranks.  A later miss publishes what the rank has learned and adopts what others have published; it waits for nobody.

Behind each capture a rank publishes its result: the breaks, and why it compiled again.  Ranks compare the results of
equal numbers: a difference is an event, and a capture that no other rank has made after those seconds is one.  Nobody
waits for it, unless `options={"strict": True}` wants an error.  Calls that hit an entry come here never.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import types
import weakref
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
import torch.distributed as dist

from stator import errors, events
from stator.errors import RankAgreementTimeout, RanksDisagree
from stator.settings.options import Settings
from stator.settings.process_config import config
from stator.shapes import profile
from stator.shapes.policy import Policy
from stator.source import Index, Key, Local, Source

PAUSE = 0.005
MOST = 1000  # values of one call that are compared
Facts = dict[str, list[int] | int]  # sizes of a tensor or a number, by the name of the value


class Site(Protocol):
    """A call site, as `capture` keeps it."""

    fn: types.FunctionType
    name: str
    settings: Settings
    compiled: Any
    shapes: Policy
    point: object

    @property
    def is_nested(self) -> bool: ...

    @property
    def place(self) -> str: ...


class RanksAgreed(events.Event):
    """Ranks have different sizes or numbers at one place, which are symbols from now on."""

    site: str
    varying: tuple[str, ...]

    def text(self) -> str:
        return f"stator: {self.site}: {', '.join(self.varying)} differ between ranks and are symbols on all of them"


class RankMissing(events.Event):
    """Some ranks did not come to a place in time; this one goes on alone."""

    site: str
    rank: int
    missing: tuple[int, ...]
    seconds: float

    def text(self) -> str:
        ranks = f"rank{'s' if len(self.missing) > 1 else ''} {', '.join(map(str, self.missing))}"
        return (f"stator: rank {self.rank} captures {self.site}; {ranks} did not come there within {self.seconds:g} s. "
                "It goes on with its own sizes. Remedy: compile on all ranks what all of them call, mark sizes with "
                "mark_dynamic, or turn stator.config.enable_compiler_collectives off")


class RanksDiffer(events.Event):
    """Two ranks captured one place with different results; `theirs` is empty where the other did not capture it."""

    site: str
    rank: int
    other: int
    mine: str
    theirs: str

    def text(self) -> str:
        theirs = f": {self.theirs}" if self.theirs else " has not captured it as often"
        return (f"stator: {self.site}: rank {self.rank}: {self.mine}; rank {self.other}{theirs}. While one rank "
                "compiles, the others wait in their next collective. Remedy: let ranks take the same branches, or "
                "mark_dynamic what differs")


# ---------------------------------------------------------------------- facts of a call


def facts_of(names: Sequence[str], bound: Sequence[object]) -> Facts:
    """Sizes of tensors and numbers among the arguments, also in tuples, lists and dicts."""
    found: Facts = {}
    with torch._C.DisableTorchFunction():
        for index, value in enumerate(bound):
            for source, each in _values(Local(names[index], index), value, 0):
                if len(found) < MOST:
                    found[source.text()] = list(map(int, each.shape)) if isinstance(each, torch.Tensor) else each
    return found


def _values(source: Source, value: object, depth: int) -> Iterator[tuple[Source, torch.Tensor | int]]:
    if isinstance(value, torch.Tensor) or type(value) is int:
        yield source, value
    elif depth < 3 and type(value) in (tuple, list):
        for index, item in enumerate(value):  # type: ignore[arg-type, var-annotated]
            yield from _values(Index(source, index), item, depth + 1)
    elif depth < 3 and type(value) is dict:
        for key, item in value.items():
            if type(key) is str:
                yield from _values(Key(source, key), item, depth + 1)


def differing(all_facts: Sequence[Mapping[str, list[int] | int]]) -> dict[str, object]:
    """Entries of a shape profile: sizes and numbers that two ranks have and that differ."""
    sizes: dict[str, list[int]] = {}
    numbers = []
    for name in sorted(set().union(*all_facts)):
        seen = [facts[name] for facts in all_facts if name in facts]
        if all(isinstance(each, int) for each in seen):
            numbers += [name] if len({*seen}) > 1 else []  # type: ignore[arg-type]
        elif all(isinstance(each, list) for each in seen) and len({len(each) for each in seen}) == 1:  # type: ignore[arg-type]
            dims = [dim for dim, column in enumerate(zip(*seen, strict=True)) if len({*column}) > 1]  # type: ignore[arg-type]
            sizes.update({name: dims} if dims else {})
    return {"sizes": sizes, "numbers": numbers}


# ---------------------------------------------------------------------- exchange


class Exchange:
    """The part of a store that the ranks of one world use for agreement."""

    def __init__(self, store: dist.Store, rank: int, size: int) -> None:
        self.store, self.rank, self.size = store, rank, size
        self.first_misses: Counter[str] = Counter()  # by place: several compile() calls may have one place
        self.adopted = 0  # entries of the log that this rank has read

    def compare(self, place: str, facts: Facts, seconds: float) -> tuple[list[Facts], tuple[int, ...]]:
        """Facts of all ranks that come to a place in time, and the ranks that do not."""
        key = f"{place}/{self.first_misses[place]}"
        self.first_misses[place] += 1
        self.store.set(f"{key}/{self.rank}", json.dumps(facts))
        waiting = [rank for rank in range(self.size) if rank != self.rank]
        found, end = [facts], time.monotonic() + seconds
        while waiting:
            for rank in [rank for rank in waiting if self.store.check([f"{key}/{rank}"])]:
                waiting.remove(rank)
                found.append(json.loads(self.store.get(f"{key}/{rank}")))
            if waiting and time.monotonic() > end:
                break
            time.sleep(PAUSE if waiting else 0)
        return found, tuple(waiting)

    def publish(self, text: str) -> None:
        number = self.store.add("log", 1)
        self.store.set(f"log/{number}", text)

    def learned(self) -> Iterator[str]:
        """Profiles that ranks have published since the last call."""
        count = self.store.add("log", 0)
        while self.adopted < count and self.store.check([f"log/{self.adopted + 1}"]):
            self.adopted += 1
            yield self.store.get(f"log/{self.adopted}").decode()


    def publish_result(self, key: str, text: str) -> None:
        self.store.set(f"{key}/{self.rank}", text)

    def result_of(self, key: str, rank: int) -> str | None:
        return self.store.get(f"{key}/{rank}").decode() if self.store.check([f"{key}/{rank}"]) else None


@dataclass
class Capture:
    """One capture of this rank, and the ranks whose result is not known yet."""

    key: str
    site: str
    result: str
    again: bool
    ended: float
    waiting: list[int]
    alike: bool = True


_latest: list[Capture] = []  # the last one
_captures: list[Capture] = []  # not yet compared with all ranks
_numbers: Counter[str] = Counter()  # captures by place
_exchanges: dict[int, Exchange] = {}  # of the world that there is, by the id of its group
_worlds: list[int] = []  # a store may outlive a world
_met: weakref.WeakSet[object] = weakref.WeakSet()  # entry objects that have had their first miss
_published: dict[str, str] = {}  # by place: the last profile of this rank


def exchange() -> Exchange | None:
    """The exchange of the ranks of this process; None without other ranks."""
    if not (config.enable_compiler_collectives and dist.is_available() and dist.is_initialized()
            and dist.get_world_size() > 1):
        return None
    world = id(dist.group.WORLD)
    if world not in _exchanges:
        _exchanges.clear()
        _captures.clear()
        _latest.clear()
        _numbers.clear()
        _worlds.append(world)
        store = dist.PrefixStore(f"stator/agreement/{len(_worlds)}/", dist.distributed_c10d._get_default_store())
        _exchanges[world] = Exchange(store, dist.get_rank(), dist.get_world_size())
    return _exchanges[world]


def agree(site: Site, bound: Sequence[object]) -> None:
    """Learn which sizes and numbers of a call vary between ranks, before it is captured."""
    with_others = exchange()
    if with_others is None or site.settings.dynamic is False:
        return
    place = site.place
    if site.compiled not in _met:
        _met.add(site.compiled)
        names = site.fn.__code__.co_varnames
        seconds = patience(with_others, site, float(config.compiler_collectives_seconds))
        everybody, missing = with_others.compare(place, facts_of(names, bound), seconds)
        if missing and seconds:
            _report_missing(site, RankMissing(site.name, with_others.rank, missing, seconds))
        found = differing(everybody)
        if any(found.values()):
            profile.load(json.dumps({"version": profile.VERSION, "places": {place: found}}))
            events.emit(RanksAgreed(site.name, (*found["sizes"], *found["numbers"])))  # type: ignore[misc]
    else:
        mine = profile.export([(place, site.shapes.memory)])
        if _published.get(place) != mine:
            _published[place] = mine
            with_others.publish(mine)
    for text in with_others.learned():
        profile.load(text)
    site.shapes.memory.foreseen = profile.foreseen(place)
    for capture in list(_captures):
        compare_results(with_others, capture, float(config.compiler_collectives_seconds))


def patience(with_others: Exchange, site: Site, seconds: float) -> float:
    """Seconds to wait for other ranks at a place: none behind a break that not all of them have."""
    if site.point is None and not site.is_nested or not _latest:
        return seconds
    while _latest[0].waiting and time.monotonic() < _latest[0].ended + seconds:
        compare_results(with_others, _latest[0], seconds)
        time.sleep(PAUSE if _latest[0].waiting else 0)
    return seconds if _latest[0].alike and not _latest[0].waiting else 0.0


@contextlib.contextmanager
def results_compared(site: Site, again: bool) -> Iterator[None]:
    """Compare the result of a capture in this block with those of other ranks; `again`: there are entries."""
    with_others = exchange()
    if with_others is None:
        yield
        return
    with events.record() as log:
        yield
    breaks = [f"{each.code} at {os.path.basename(each.filename or '')}:{each.line}" for each in log
              if type(each) is events.GraphBreak]
    result = f"{'captured again, ' if again else ''}{'breaks: ' + ', '.join(breaks) if breaks else 'no break'}"
    key, seconds = f"{site.place}/result/{_numbers[site.place]}", float(config.compiler_collectives_seconds)
    _numbers[site.place] += 1
    with_others.publish_result(key, result)
    capture = Capture(key, site.name, result, again, time.monotonic(),
                      [rank for rank in range(with_others.size) if rank != with_others.rank])
    _captures.append(capture)
    _latest[:] = [capture]
    del _captures[:-MOST]
    while True:
        found = compare_results(with_others, capture, seconds)
        if not site.settings.strict or found or not capture.waiting or time.monotonic() > capture.ended + seconds:
            break
        time.sleep(PAUSE)
    if site.settings.strict and found:
        raise RanksDisagree(found[0].text())


def compare_results(with_others: Exchange, capture: Capture, seconds: float) -> list[RanksDiffer]:
    """Emit what differs from the results that other ranks have published; a capture made again alone is late."""
    found = []
    for rank in list(capture.waiting):
        theirs = with_others.result_of(capture.key, rank)
        late = theirs is None and capture.again and time.monotonic() > capture.ended + seconds
        if theirs is not None or late:
            capture.waiting.remove(rank)
            if theirs != capture.result:
                capture.alike = False
                found.append(RanksDiffer(capture.site, with_others.rank, rank, capture.result, theirs or ""))
    if not capture.waiting:
        with contextlib.suppress(ValueError):
            _captures.remove(capture)
    for event in found:
        events.emit(event)
    return found


def _report_missing(site: Site, event: RankMissing) -> None:
    events.emit(event)
    if site.settings.strict:
        raise RankAgreementTimeout(event.text())
    errors.warn(event.text())
