"""List PyTorch's tests that do not pass under Stator.   records of `python -m tests.pytorch`  ->  docs/pytorch-tests.md

    python tools/pytorch_page.py STATOR.jsonl... -- TORCH.jsonl...
    python tools/pytorch_page.py --again STATOR.jsonl...     only tests that the page lists were run again

Of a test with several records the last one counts. `tests/pytorch/judgements.txt` has one judgement a line, the first
that fits counts: an expression that file, test and last lines are searched for, a kind, and a reason.
"""

from __future__ import annotations

import collections
import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PAGE, JUDGEMENTS = ROOT / "docs" / "pytorch-tests.md", ROOT / "tests" / "pytorch" / "judgements.txt"
PASSED = ("passed", "skipped")
KINDS = {
    "counts": "a number of graphs, operations, recompiles or compiled frames",
    "texts": "a message, a log, the text of a graph or of a guard",
    "internals": "an object, a setting or a hook that torch._dynamo alone has",
    "as eager": "an error, or another value than eager's, where Stator does as eager does",
    "release": "something of release 2.6 that torch 2.13 or this machine lacks",
    "behaviour": "a program that Stator does not capture whole, or does otherwise than eager",
}


class Record(NamedTuple):
    file: str
    test: str
    verdict: str
    detail: str

    @property
    def key(self) -> tuple[str, str]:
        return self.file, self.test


class Judgement(NamedTuple):
    pattern: re.Pattern[str]
    kind: str
    reason: str


def last_records(paths: Iterable[str]) -> dict[tuple[str, str], Record]:
    found: dict[tuple[str, str], Record] = {}
    for path in paths:
        for line in Path(path).read_text(encoding="utf-8").splitlines():
            fields = json.loads(line)
            record = Record(fields["file"], fields["test"], fields["verdict"], fields["detail"])
            found[record.key] = record
    return found


def judgements(text: str) -> list[Judgement]:
    rows = [line.split(" | ") for line in text.splitlines() if line.strip() and not line.startswith("#")]
    found = [Judgement(re.compile(pattern), kind, reason) for pattern, kind, reason in rows]
    unknown = [each.kind for each in found if each.kind not in KINDS]
    if unknown:
        raise ValueError(f"no such kinds: {unknown}")
    return found


def judge(record: Record, known: Iterable[Judgement]) -> Judgement | None:
    """The first judgement that fits the name of a test and its last lines."""
    detail = record.detail.split("To execute this test")[0].strip()
    text = f"{record.file} {record.test} {' '.join(detail.splitlines()[-4:])}"
    return next((each for each in known if each.pattern.search(text)), None)


def page(stator: dict[tuple[str, str], Record], torch: dict[tuple[str, str], Record], known: list[Judgement]) -> str:
    failed = [record for _, record in sorted(stator.items()) if record.verdict not in PASSED]
    counts: collections.Counter[str] = collections.Counter()
    there: collections.Counter[str] = collections.Counter()
    rows = []
    for record in failed:
        found = judge(record, known)
        kind, reason = (found.kind, found.reason) if found is not None else ("not judged", "")
        peer = torch[record.key].verdict if record.key in torch else "not run"
        counts[kind] += 1
        there[kind] += peer == "passed"
        name = record.test.partition(".")[2]
        rows.append(f"| `{record.file.removesuffix('.py')}` | `{name}` | {peer} | {kind} | {reason} |")
    verdicts = collections.Counter(record.verdict for record in stator.values())
    table = [f"| {kind} | {KINDS.get(kind, '')} | {counts[kind]} | {there[kind]} |" for kind in [*KINDS, "not judged"]
             if counts[kind]]
    return "\n".join([
        "# PyTorch's tests of torch._dynamo", "",
        "Release 2.6's `test/dynamo` with `python -m tests.pytorch --values` on torch 2.13 and Python 3.11: of "
        f"{len(stator):,} tests {verdicts['passed']:,} pass,", f"{verdicts['skipped']} are skipped by their own "
        f"conditions, and {len(failed)} do not pass; {sum(there.values())} of these pass on torch._dynamo 2.13.",
        "[Trust](trust.md) says how they are run.", "",
        "This page is written by `python tools/pytorch_page.py` from the records of both runs. Kinds and reasons are "
        "judged by hand,", "for groups of tests, in `tests/pytorch/judgements.txt`: by the source of a test, or by its "
        "last lines where these decide.", "",
        "| kind | what the test asserts | tests | pass on torch |", "|---|---|---|---|", *table,
        f"| all | | {len(failed)} | {sum(there.values())} |", "",
        "| file | test | on torch | kind | reason |", "|---|---|---|---|---|", *rows, ""])


class Row(NamedTuple):
    """One line of the page."""

    file: str
    name: str
    peer: str
    kind: str
    reason: str

    @classmethod
    def of(cls, line: str) -> Row:
        parts = line.strip("| ").split(" | ")
        return cls(*(part.strip("` ") if place < 2 else part for place, part in enumerate(parts)))

    def text(self) -> str:
        return f"| `{self.file}` | `{self.name}` | {self.peer} | {self.kind} | {self.reason} |"


def page_again(text: str, stator: dict[tuple[str, str], Record], known: list[Judgement]) -> str:
    """The page after some of its tests were run again: without those that pass now, others judged anew."""
    again = {(record.file.removesuffix(".py"), record.test.partition(".")[2]): record for record in stator.values()}
    head, rows = text.split("| kind |")[0], [Row.of(line) for line in text.splitlines() if line.startswith("| `")]
    kept = []
    for row in rows:
        record = again.get((row.file, row.name)) or Record(f"{row.file}.py", f"T.{row.name}", "not run", "")
        if record.verdict == "not run" and judge(record, known) is None:  # judged by its last lines
            kept.append(row)
        elif record.verdict not in PASSED:
            found = judge(record, known)
            kept.append(row._replace(kind="not judged" if found is None else found.kind,
                                     reason="" if found is None else found.reason))
    passed = re.search(r"of ([\d,]+) tests ([\d,]+) pass", head)
    assert passed is not None
    fewer, there = len(rows) - len(kept), sum(row.peer == "passed" for row in kept)
    count = int(passed[2].replace(",", "")) + fewer
    head = head.replace(passed[0], f"of {passed[1]} tests {count:,} pass")
    head = re.sub(r"and \d+ do not pass; \d+ of", f"and {len(kept)} do not pass; {there} of", head)
    counts = collections.Counter(row.kind for row in kept)
    peers = collections.Counter(row.kind for row in kept if row.peer == "passed")
    table = [f"| {kind} | {KINDS.get(kind, '')} | {counts[kind]} | {peers[kind]} |" for kind in [*KINDS, "not judged"]
             if counts[kind]]
    return head + "\n".join([
        "| kind | what the test asserts | tests | pass on torch |", "|---|---|---|---|", *table,
        f"| all | | {len(kept)} | {there} |", "",
        "| file | test | on torch | kind | reason |", "|---|---|---|---|---|", *[row.text() for row in kept], ""])


def main(arguments: list[str]) -> int:
    if arguments[0] == "--again":
        known = judgements(JUDGEMENTS.read_text(encoding="utf-8"))
        PAGE.write_text(page_again(PAGE.read_text(encoding="utf-8"), last_records(arguments[1:]), known),
                        encoding="utf-8")
        return 0
    at = arguments.index("--")
    known = judgements(JUDGEMENTS.read_text(encoding="utf-8"))
    PAGE.write_text(page(last_records(arguments[:at]), last_records(arguments[at + 1:]), known), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
