"""Compare what two commits capture.   record the graphs, guards and residuals of many programs; compare two records

    python tools/same_captures.py record before.jsonl --checkout ../before --fuzz 0:2000 --zoo ../shared/zoo
    python tools/same_captures.py record after.jsonl --fuzz 0:2000 --zoo ../shared/zoo
    python tools/same_captures.py compare before.jsonl after.jsonl

In: the curriculum of tests/lang, seeds of the fuzzer, models of a zoo (a folder with `zoo.py` and `dev.txt`). Programs
are those of this checkout; `--checkout` names the one whose `stator` captures them.
Out: one JSON line for each program, with the text of every graph, guard and residual source that was captured; the
comparison exits with 1 on a differing program, on one that only one record has, and on one that failed in a record:
programs that fail alike are no evidence.

Each group of programs runs in a forked process of its own with a fixed hash seed, so that one program does not see
another. A group that takes longer than `--seconds` is stopped. Groups that the record has are not run again. Texts
leave out addresses, layouts of sets, which follow from addresses, ids of processes, and names of modules of Stator.
Facts about identity that sets of objects give are sorted.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import gc
import io
import itertools
import json
import os
import re
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = re.compile(r"0x[0-9a-f]{6,}|\b\d{12,}\b")
LAYOUT = re.compile(r"(set_layout\(.*?\)) (==|is) .*", re.DOTALL)
DISTINCT = re.compile(r"are_distinct\((.*)\)", re.DOTALL)
PROCESS = re.compile(r"\b(getp?pid\(\)) == \d+")
OWN_NAMES = re.compile(r"'stator(?:\.\w+)*', ")  # in a list of loaded modules
OWN_ENTRY = re.compile(r"\bmodules\['stator\b")
OWN_MODULE = re.compile(r"\bstator\.(?:\w+\.)+(?=\w)")
GROUP = 25  # fuzzed programs that share one process

Program = tuple[str, Callable[[], Any]]


def portable(text: str) -> str:
    """Remove addresses, their consequences, the homes of Stator's functions, and paths of the checkouts."""
    text = LAYOUT.sub(r"\1 == <layout>", ADDRESS.sub("<address>", text))
    text = OWN_NAMES.sub("", PROCESS.sub(r"\1 == <process>", text))
    for root in {str(ROOT), str(Path(sys.modules["stator"].__file__ or "").parent.parent)}:
        text = text.replace(root, "<root>")
    return OWN_MODULE.sub("stator.", text)


def in_order(guards: list[str]) -> list[str]:
    """Sort facts about identity among themselves: sets of objects, whose order follows from addresses, give theirs."""
    found: list[str] = []
    for is_distinction, run in itertools.groupby(guards, lambda text: " is not " in text):
        texts = list(run)
        found += sorted(texts) if is_distinction else texts
    return [DISTINCT.sub(lambda match: f"are_distinct({', '.join(sorted(match[1].split(', ')))})", text)
            for text in found]


def captured(run: Callable[[], Any]) -> dict[str, Any]:
    """Run a program; return the text of its captures."""
    from stator import events

    failure = ""
    with events.record() as log, contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run()
        except Exception as error:
            failure = f"{type(error).__name__}: {error}".splitlines()[0]
    captures = [{"name": event.name, "graph": "" if event.graph is None else portable(event.graph.code),
                 "guards": in_order([portable(text) for text in (guard.text() for guard in event.guard_list)
                                     if not OWN_ENTRY.search(text)]),
                 "residual": portable(event.residual_source)}
                for event in log if isinstance(event, events.CaptureFinished)]
    breaks = [f"{event.code} {portable(event.cause)}" for event in log if isinstance(event, events.GraphBreak)]
    return {"captures": captures, "breaks": breaks, "failure": portable(failure)}


# ---------------------------------------------------------------------- programs


class Group(NamedTuple):
    """Programs that share a process, which makes them."""

    name: str
    make: Callable[[], list[Program]]


def curriculum() -> Iterator[Group]:
    import curriculum as topics

    for path in sorted((ROOT / "tests" / "lang").glob("test_[0-9][0-9]_*.py")):
        def programs(path: Path = path) -> list[Program]:
            module = topics.load_topic(path)
            return [(f"{path.stem}:{name}", lambda name=name: topics.run_case(path, topics.cases_of(module)[name]))
                    for name in topics.cases_of(module)]
        yield Group(path.stem, programs)


def fuzzed(first: int, last: int) -> Iterator[Group]:
    for begin in range(first, last, GROUP):
        def programs(begin: int = begin) -> list[Program]:
            from tests.fuzz.compare import compare
            from tests.fuzz.grammar import generate
            return [(f"fuzz:{seed}", lambda seed=seed: compare(generate(seed)))
                    for seed in range(begin, min(last, begin + GROUP))]
        yield Group(f"fuzz:{begin}:{min(last, begin + GROUP)}", programs)


def models(folder: Path) -> Iterator[Group]:
    sys.path.insert(0, str(folder))
    import compat
    import torch

    import stator
    compat.apply()
    import zoo
    with contextlib.suppress(ImportError):  # loaded once, before the processes are forked
        import transformers.modeling_utils  # noqa: F401

    for name in (folder / "dev.txt").read_text().split():
        def capture(name: str = name) -> None:
            torch.manual_seed(0)
            case = zoo.build(name)
            torch.manual_seed(0)
            with torch.no_grad():
                stator.compile(case.model.eval(), backend="eager")(**case.inputs)
        yield Group(f"model:{name}", lambda name=name, capture=capture: [(f"model:{name}", capture)])


# ---------------------------------------------------------------------- recording


def record(groups: list[Group], out: Path, jobs: int, seconds: int) -> None:
    started = time.monotonic()
    done = {json.loads(line)["group"] for line in out.read_text().splitlines()} if out.exists() else set()
    waiting = [group for group in groups if group.name not in done]
    running: dict[int, Group] = {}
    count, finished = len(waiting), 0
    while waiting or running:
        while waiting and len(running) < jobs:
            group = waiting.pop(0)
            child = os.fork()
            if not child:
                run_group(group, part_of(out, group), seconds)
            running[child] = group
        child, status = os.wait()
        group = running.pop(child)
        if status:
            print(f"\n{group.name} ended with status {status}", file=sys.stderr)
        part = part_of(out, group)
        with out.open("a") as file:
            file.write(part.read_text() if part.exists() else "")
        part.unlink(missing_ok=True)
        finished += 1
        print(f"\r{finished} of {count} groups, {time.monotonic() - started:.0f} s", end="", file=sys.stderr)
    print(file=sys.stderr)


def part_of(out: Path, group: Group) -> Path:
    return out.with_suffix("." + re.sub(r"\W", "_", group.name))


def run_group(group: Group, part: Path, seconds: int) -> None:
    """Run the programs of one group, and leave the process."""
    signal.alarm(seconds)  # ends the process: nobody handles it
    try:
        with part.open("w") as file:
            for name, run in group.make():
                file.write(json.dumps({"program": name, "group": group.name, **captured(run)}) + "\n")
                file.flush()
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    os._exit(0)


def compare(before: Path, after: Path) -> int:
    records = [{line["program"]: line for line in map(json.loads, path.read_text().splitlines())}
               for path in (before, after)]
    old, new = records
    kinds = collections.Counter(re.sub("test_.*", "curriculum", name).partition(":")[0] for name in old)
    differing = [name for name in old if name in new and old[name] != new[name]]
    missing = sorted(set(old) ^ set(new))
    captures = sum(len(line["captures"]) for line in old.values())
    failed = [[name for name, line in lines.items() if line["failure"]] for lines in records]
    print(f"{len(old)} programs ({', '.join(f'{count} {kind}' for kind, count in kinds.items())}), "
          f"{captures} captures: {len(differing)} differ, {len(missing)} in one record only, "
          f"{len(failed[0])} failed before, {len(failed[1])} after")
    for name in differing[:10]:
        print(f"  {name}: {first_difference(old[name], new[name])}")
    for name in missing[:10]:
        print(f"  {name}: only in one record")
    for lines, names, side in zip(records, failed, ("before", "after"), strict=True):
        for name in names[:5]:
            print(f"  {name}: failed {side}: {lines[name]['failure']}")
    return 1 if differing or missing or any(failed) else 0


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
    recording.add_argument("--checkout", type=Path, default=ROOT, help="the tree whose stator captures")
    recording.add_argument("--no-curriculum", action="store_true")
    recording.add_argument("--fuzz", default="", help="seeds, first:last")
    recording.add_argument("--zoo", type=Path, help="a folder with zoo.py and dev.txt")
    recording.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    recording.add_argument("--seconds", type=int, default=600, help="time of one group")
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    options = parser.parse_args()
    if options.command == "compare":
        return compare(options.before, options.after)
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "PYTHONHASHSEED": "0"})
    sys.path.insert(0, str(options.checkout.resolve()))
    import torch

    import stator
    assert Path(stator.__file__ or "").is_relative_to(options.checkout.resolve())
    # The tracer and sympy are loaded whole before the processes are forked: no program cuts their import short.
    stator.compile(lambda x: x.sin(), backend="aot_eager", dynamic=True)(torch.ones(3))
    stator.reset()
    gc.freeze()
    sys.path[:1] = [str(ROOT), str(ROOT / "tests")]
    torch.set_num_threads(1)
    if not options.no_curriculum:
        record(list(curriculum()), options.out, options.jobs, options.seconds)
    if options.fuzz:
        record(list(fuzzed(*map(int, options.fuzz.split(":")))), options.out, options.jobs, options.seconds)
    if options.zoo:  # last: a process with its libraries collects garbage ten times slower
        record(list(models(options.zoo.resolve())), options.out, options.jobs, options.seconds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
