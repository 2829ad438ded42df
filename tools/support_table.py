"""Print one table of the Pythons and torches that Stator was tested on.

    python tools/support_table.py record LOG... --tests "tests/lang tests/unit"   run by the Python of that cell
    python tools/support_table.py page                                            write docs/support.md

In: what `pytest -q -rfEs` printed in real runs.  Out: docs/support.json, one entry for each Python, torch and list of
tests, and docs/support.md, made of nothing else. `make support PYTHON=... TORCH=...` does both.
"""

from __future__ import annotations

import argparse
import json
import platform
import re
import subprocess
from pathlib import Path
from typing import TypedDict

ROOT = Path(__file__).resolve().parent.parent
RECORDS = ROOT / "docs" / "support.json"
PAGE = ROOT / "docs" / "support.md"
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
TORCHES = ("2.11", "2.12", "2.13", "2.14", "2.15")

HEAD = """# Versions: Python and torch

`python tools/support_table.py page` writes this page from [support.json](support.json), which holds outcomes of real
runs. A cell is recorded by

    make support PYTHON=/path/to/python3.13 TORCH=2.15.0

in an environment of its own (`.venv-3.13-torch-2.15.0`). `make test PYTHON=... TORCH=...` runs the whole suite there.

- CPython 3.11 to 3.14. Another one is refused in one sentence; so is a free-threaded build.
- torch 2.11 or later. A torch newer than the table warns once at build and import, and is tried.
- A core is built for one release of torch: `import stator` refuses another release in one sentence
  ([decision 0018](decisions/0018-wheels.md)).
"""


class Run(TypedDict):
    """The outcome of one list of tests."""

    python: str
    torch: str
    tests: str
    commit: str
    passed: int
    failed: int
    skipped: int
    failures: list[str]
    skips: list[str]
    note: str


def outcome(log: str) -> tuple[dict[str, int], list[str], list[str]]:
    """Counts, failures and reasons of skips, from what pytest printed."""
    ends = re.findall(r"^(?:=+ )?((?:\d+ \w+,? ?)+) in [\d.]+s.*$", log, re.MULTILINE)
    if not ends:
        raise SystemExit("This log does not end with pytest's summary.")
    counts = {word.rstrip("s"): int(number) for number, word in re.findall(r"(\d+) (\w+)", ends[-1])}
    failures = re.findall(r"^(?:FAILED|ERROR) ([^\s]+(?: \S+\])?)", log, re.MULTILINE)
    if len(failures) != counts.get("failed", 0) + counts.get("error", 0):
        raise SystemExit("This log does not name its failures: run pytest with -rfEs.")
    skips = re.findall(r"^SKIPPED \[\d+\] [^\s]+: (.*)$", log, re.MULTILINE)
    return counts, failures, sorted(set(skips))


def record(logs: list[str], tests: str, note: str) -> Run:
    import torch

    total = {"passed": 0, "failed": 0, "skipped": 0, "error": 0}
    failures: list[str] = []
    skips: list[str] = []
    for log in logs:
        counts, failed, reasons = outcome(Path(log).read_text(encoding="utf-8", errors="replace"))
        total = {name: number + counts.get(name, 0) for name, number in total.items()}
        failures += failed
        skips += reasons
    newest = ["git", "log", "-1", "--format=%h", "--", "stator", "csrc"]
    commit = subprocess.run(newest, cwd=ROOT, capture_output=True, text=True)
    return {"python": platform.python_version(), "torch": str(torch.__version__), "tests": tests,
            "commit": commit.stdout.strip(), "passed": total["passed"], "failed": total["failed"] + total["error"],
            "skipped": total["skipped"], "failures": sorted(set(failures)), "skips": sorted(set(skips)), "note": note}


def stored() -> list[Run]:
    runs: list[Run] = json.loads(RECORDS.read_text()) if RECORDS.exists() else []
    return runs


def store(run: Run) -> None:
    """Put the run in place of an earlier one of the same cell and tests."""
    key = run["python"], run["torch"], run["tests"]
    runs = [each for each in stored() if (each["python"], each["torch"], each["tests"]) != key]
    runs = sorted([*runs, run], key=lambda each: (each["python"], each["torch"], each["tests"]))
    RECORDS.write_text(json.dumps(runs, indent=1) + "\n")


def cell(runs: list[Run]) -> str:
    if not runs:
        return "not run"
    passed, failed, skipped = (sum(run[name] for run in runs) for name in ("passed", "failed", "skipped"))
    return f"{passed:,} / {failed:,} / {skipped:,}"


def page(runs: list[Run]) -> str:
    """The whole page, from the records."""
    def of(python: str, torch: str) -> list[Run]:
        return [run for run in runs if run["python"].startswith(python + ".") and run["torch"].startswith(torch + ".")]

    lines = [HEAD, "## Table", "", "Tests passed / failed / skipped. The lists of tests are below.", "",
             "| Python | " + " | ".join(f"torch {torch}" for torch in TORCHES) + " |",
             "|---" * (len(TORCHES) + 1) + "|"]
    lines += [f"| {python} | " + " | ".join(cell(of(python, torch)) for torch in TORCHES) + " |" for python in PYTHONS]
    lines += ["", "## Runs"]
    for run in runs:
        lines += ["", f"### Python {run['python']}, torch {run['torch']}: `{run['tests']}`", "",
                  f"{run['passed']:,} passed, {run['failed']:,} failed, {run['skipped']:,} skipped ({run['commit']})."]
        if run["note"]:
            lines += ["", run["note"]]
        if run["failures"]:
            lines += ["", "Gaps:", "", *(f"- `{name}`" for name in run["failures"])]
        if run["skips"]:
            lines += ["", "Skipped:", "", *(f"- {reason}" for reason in run["skips"])]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record", help="store the outcome of a run")
    recording.add_argument("logs", nargs="+")
    recording.add_argument("--tests", required=True)
    recording.add_argument("--note", default="")
    commands.add_parser("page", help="write docs/support.md")
    arguments = parser.parse_args()
    if arguments.command == "record":
        store(record(arguments.logs, arguments.tests, arguments.note))
    else:
        PAGE.write_text(page(stored()))


if __name__ == "__main__":
    main()
