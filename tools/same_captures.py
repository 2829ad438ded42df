"""Compare what two commits capture.   record the graphs, guards and residuals of many programs; compare two records

    python tools/same_captures.py record before.jsonl --fuzz 0:2000 --zoo ../shared/zoo
    python tools/same_captures.py record after.jsonl --fuzz 0:2000 --zoo ../shared/zoo     (in the other checkout)
    python tools/same_captures.py compare before.jsonl after.jsonl

In: the curriculum of tests/lang, seeds of the fuzzer, models of a zoo (a folder with `zoo.py` and `dev.txt`).
Out: one JSON line for each program, with the text of every graph, guard and residual source that was captured; the
comparison exits with 1 on the first differing program.  A refactor must leave every line as it was.

Each group of programs runs in a forked process of its own with a fixed hash seed, so that one program does not see
another. Addresses are replaced: they differ from process to process.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d{12,}\b")
LAYOUT = re.compile(r"(set_layout\(.*\)) == .*")  # where members of a set lie depends on their addresses
GROUP = 25  # fuzzed programs that share one process

Program = tuple[str, Callable[[], Any]]


def portable(text: str) -> str:
    """Text without addresses, what follows from them, and the checkout's own path."""
    return LAYOUT.sub(r"\1 == <layout>", ADDRESS.sub("<address>", text)).replace(str(ROOT), "<root>")


def captured(run: Callable[[], Any]) -> dict[str, Any]:
    """Run a program; what was captured meanwhile, as text."""
    from stator import events

    failure = ""
    with events.record() as log, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".splitlines()[0]
    captures = [{"name": event.name, "graph": "" if event.graph is None else portable(event.graph.code),
                 "guards": [portable(guard.text()) for guard in event.guard_list],
                 "residual": portable(event.residual_source)}
                for event in log if isinstance(event, events.CaptureFinished)]
    breaks = [f"{event.code} {portable(event.cause)}" for event in log if isinstance(event, events.GraphBreak)]
    return {"captures": captures, "breaks": breaks, "failure": portable(failure)}


# ---------------------------------------------------------------------- programs


def curriculum() -> Iterator[list[Program]]:
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]
    import curriculum as topics

    for path in sorted((ROOT / "tests" / "lang").glob("test_[0-9][0-9]_*.py")):
        def programs(path: Path = path) -> list[Program]:
            module = topics.load_topic(path)
            return [(f"{path.stem}:{name}", lambda name=name: topics.run_case(path, topics.cases_of(module)[name]))
                    for name in topics.cases_of(module)]
        yield Lazy(programs)


def fuzzed(first: int, last: int) -> Iterator[list[Program]]:
    sys.path.insert(0, str(ROOT))
    for begin in range(first, last, GROUP):
        def programs(begin: int = begin) -> list[Program]:
            from tests.fuzz.compare import compare
            from tests.fuzz.grammar import generate
            return [(f"fuzz:{seed}", lambda seed=seed: compare(generate(seed)))
                    for seed in range(begin, min(last, begin + GROUP))]
        yield Lazy(programs)


def models(folder: Path) -> Iterator[list[Program]]:
    for name in (folder / "dev.txt").read_text().split():
        def programs(name: str = name) -> list[Program]:
            sys.path.insert(0, str(folder))
            import torch
            import zoo

            import stator
            torch.manual_seed(0)
            case = zoo.build(name)
            model = case.model.eval()
            return [(f"model:{name}", lambda: stator.compile(model, backend="eager")(**case.inputs))]
        yield Lazy(programs)


class Lazy(list):  # type: ignore[type-arg]
    """Programs that are made in the process that runs them."""

    def __init__(self, make: Callable[[], list[Program]]) -> None:
        super().__init__()
        self.make = make


# ---------------------------------------------------------------------- recording


def record(groups: list[Lazy], out: Path, jobs: int) -> None:
    started = time.monotonic()
    parts = [out.with_suffix(f".{number}") for number in range(len(groups))]
    running: dict[int, int] = {}
    waiting = list(range(len(groups)))
    while waiting or running:
        while waiting and len(running) < jobs:
            number = waiting.pop(0)
            child = os.fork()
            if not child:
                run_group(groups[number], parts[number])
            running[child] = number
        finished, status = os.wait()
        number = running.pop(finished)
        if status:
            print(f"group {number} ended with status {status}", file=sys.stderr)
        done = len(groups) - len(waiting) - len(running)
        print(f"\r{done} of {len(groups)} groups, {time.monotonic() - started:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)
    with out.open("w") as file:
        for part in parts:
            if part.exists():
                file.write(part.read_text())
                part.unlink()


def run_group(group: Lazy, part: Path) -> None:
    """Run the programs of one group, and leave the process."""
    try:
        with part.open("w") as file:
            for name, run in group.make():
                file.write(json.dumps({"program": name, **captured(run)}) + "\n")
                file.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def compare(before: Path, after: Path) -> int:
    records = [{line["program"]: line for line in map(json.loads, path.read_text().splitlines())}
               for path in (before, after)]
    old, new = records
    differing = [name for name in old if name in new and old[name] != new[name]]
    missing = sorted(set(old) ^ set(new))
    captures = sum(len(line["captures"]) for line in old.values())
    print(f"{len(old)} programs, {captures} captures: {len(differing)} differ, {len(missing)} in one record only")
    for name in differing[:10]:
        print(f"  {name}: {first_difference(old[name], new[name])}")
    for name in missing[:10]:
        print(f"  {name}: only in one record")
    return 1 if differing or missing else 0


def first_difference(old: dict[str, Any], new: dict[str, Any]) -> str:
    for key in ("failure", "breaks"):
        if old[key] != new[key]:
            return f"{key}: {old[key]!r} -> {new[key]!r}"
    if len(old["captures"]) != len(new["captures"]):
        return f"{len(old['captures'])} -> {len(new['captures'])} captures"
    for number, (was, now) in enumerate(zip(old["captures"], new["captures"], strict=True)):
        for key in was:
            if was[key] != now[key]:
                pairs = zip(*(text if type(text) is list else text.splitlines() for text in (was[key], now[key])),
                            strict=False)
                lines = next(((a, b) for a, b in pairs if a != b), ("", "another length"))
                return f"capture {number}, {key}: {lines[0]!r} -> {lines[1]!r}"
    return "nothing"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--no-curriculum", action="store_true")
    recording.add_argument("--fuzz", default="", help="seeds, first:last")
    recording.add_argument("--zoo", type=Path, help="a folder with zoo.py and dev.txt")
    recording.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        return compare(options.before, options.after)
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    groups: list[Any] = [] if options.no_curriculum else list(curriculum())
    if options.fuzz:
        groups += fuzzed(*map(int, options.fuzz.split(":")))
    if options.zoo:
        groups += models(options.zoo.resolve())
    sys.path.insert(0, str(ROOT))
    import torch

    import stator  # noqa: F401  (loaded once, before the processes are forked)
    torch.set_num_threads(1)
    record(groups, options.out, options.jobs)
    return 0


if __name__ == "__main__":
    sys.exit(main())
