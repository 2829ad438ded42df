"""Run a script or a model with Stator, and write down what happened.

In: a script and its arguments, or `module:factory`, whose call gives a model and its arguments.
Out: the dict of `report.run_data`: captures, breaks with prices, recompiles, guards, sites with their calls.
"""

from __future__ import annotations

import contextlib
import importlib
import runpy
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from stator import _core, events
from stator.capture import miss
from stator.cli.eager_times import EagerTimes, eager_times
from stator.cli.run import install_with_torch
from stator.emit.resume.advance import Advance, Points
from stator.host.garbage_collection import living
from stator.report.names import short
from stator.report.probe import Visit, added_microseconds, costs_by_kind
from stator.report.run_data import Price, Recording, recording, run_data

MOST_SITES = 1000
SAMPLED = 0.01  # seconds between two counts of calls


@dataclass
class RunProbe:
    """Counts and times the passages through breaks, and keeps no value of the program."""

    passages: dict[int, list[Any]] = field(default_factory=dict)  # of an advance: itself, count, native, added

    def watch(self, advance: Advance, values: tuple[Any, ...], run: Callable[..., Any]) -> Callable[..., Any]:
        row = self.passages.setdefault(id(advance), [advance, 0, 0.0, None])

        def timed(operands: list[Any], invoke: object) -> object:
            began = time.perf_counter()
            outcome = run(operands, invoke)
            row[2] += time.perf_counter() - began
            row[1] += 1
            if row[3] is None and row[1] > 1:  # by now the continuation has an entry
                row[3] = added_microseconds(Visit(advance, values, outcome))
            return outcome

        return timed

    def guard_costs(self, guards: Iterable[Any], measure: Callable[..., float]) -> tuple[tuple[str, float], ...]:
        return costs_by_kind(guards, measure)

    def prices(self) -> list[Price]:
        return [Price(advance.event, count, native / count * 1e6, added or 0.0)
                for advance, count, native, added in self.passages.values() if count]


@dataclass
class Watched:
    """Record of a run: its events, its breaks, its compiled functions, and the error that ended it."""

    recorded: Recording
    probe: RunProbe
    eager: EagerTimes
    sites: dict[int, Any] = field(default_factory=dict)
    error: BaseException | None = None

    def keep_sites(self, event: events.Event) -> None:
        """Functions that a script drops have been called, too."""
        if isinstance(event, events.CaptureFinished) and len(self.sites) < MOST_SITES:
            self.sites.update((id(compiled), compiled) for compiled in living(miss._entries))
            self.count_calls(SAMPLED)

    def count_calls(self, pause: float = 0.0) -> None:
        """Note the calls so far, where the last count is older than a pause."""
        now, counted = time.perf_counter() - self.recorded.started, self.recorded.calls
        if not counted or now - counted[-1][0] >= pause:
            counted.append((now, sum(sum(each.hits()) for each in self.sites.values()
                                     if each._stator_site.point is None)))

    def data(self, title: str) -> dict[str, Any]:
        rows = sorted(map(site_row, self.sites.values()),
                      key=lambda row: (not row["starts"], -row["calls"], row["name"]))
        return run_data(self.recorded, title, self.probe.prices(), [row for row in rows if row["entries"]],
                        "" if self.error is None else f"{type(self.error).__name__}: {self.error}", self.eager.rows)


def site_row(compiled: _core.CompiledFunction) -> dict[str, Any]:
    """One compiled function, or what follows one of its breaks."""
    site = compiled._stator_site
    entries = [tag for _, _, tag in compiled.entries() if tag is not None]
    return {"name": short(site.name), "entries": len(entries), "calls": sum(compiled.hits()),
            "guards": sum(len(tag.guards) for tag in entries), "starts": site.point is None}


@contextlib.contextmanager
def watched() -> Iterator[Watched]:
    """Record events and prices while the block runs; an exception in it is kept."""
    with recording() as recorded, eager_times() as eager:
        found = Watched(recorded, RunProbe(), eager)
        Points.probe_of_all = found.probe
        stop = events.subscribe(found.keep_sites)
        try:
            yield found
        except (Exception, SystemExit, KeyboardInterrupt) as error:
            found.error = error
        finally:
            stop()
            found.count_calls()
            Points.probe_of_all = None


def run_script(arguments: list[str], module: str | None = None) -> None:
    """Run a script, or a module, as Python itself would."""
    if module is not None:
        sys.argv = [module, *arguments]
        sys.path.insert(0, "")
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.argv = list(arguments)
        sys.path.insert(0, str(Path(arguments[0]).resolve().parent))
        runpy.run_path(arguments[0], run_name="__main__")


def watch_script(arguments: list[str], backend: str | Callable[..., object] | None = None) -> Watched:
    """A script with torch.compile going through Stator."""
    install_with_torch(backend)
    with watched() as found:
        run_script(arguments)
    return found


@dataclass(frozen=True)
class Model:
    """A callable and the arguments to call it with."""

    name: str
    fn: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    def call(self, fn: Callable[..., object] | None = None) -> object:
        return (self.fn if fn is None else fn)(*self.args, **self.kwargs)


def is_model(word: str) -> bool:
    """`package.module:factory` or `file.py:factory`."""
    place, mark, name = word.rpartition(":")
    return bool(mark) and bool(place) and name.isidentifier()


def load_model(word: str) -> Model:
    """Call the factory: it gives (model, args) or (model, args, kwargs)."""
    place, _, name = word.rpartition(":")
    if place.endswith(".py"):
        sys.path.insert(0, str(Path(place).resolve().parent))
        made = runpy.run_path(place, run_name=Path(place).stem)[name]()
    else:
        sys.path.insert(0, "")
        made = getattr(importlib.import_module(place), name)()
    fn, args, kwargs = made if len(made) == 3 else (*made, {})
    return Model(word, fn, tuple(args), dict(kwargs))
