"""Run the enumeration: `python -m tests.enumeration [--jobs N] [--every n] [--only REGEX] [--out FILE]`.

In: which subjects, backends and observations.  Out: FILE, a JSON line for each subject; the table of reasons why subjects
have no sample; the differences by pattern and observation; and the sum `N pairs, M wrong`. The exit status says whether any
was wrong. A subject that crashes or hangs costs itself alone.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import torch

from tests.enumeration.judge import BACKENDS, judge
from tests.enumeration.observations import OBSERVATIONS
from tests.enumeration.opinfo_samples import opinfos, record_all
from tests.enumeration.overloads import Subject, subjects
from tests.enumeration.samples import find_sample
from tests.fuzz import parallel

MANY = 100  # so many subjects are worth recording every operator that an OpInfo reaches
SECONDS = 240.0  # processor time of one subject


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.enumeration", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many processes")
    parser.add_argument("--every", type=int, default=1, help="take every n-th subject")
    parser.add_argument("--start", type=int, default=0, help="with --every: the first subject")
    parser.add_argument("--only", default="", help="take the subjects whose name matches")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--observations", default=",".join(OBSERVATIONS))
    parser.add_argument("--out", default="enumeration.jsonl", help="where the verdicts are written")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so many minutes")
    parser.add_argument("--samples", action="store_true", help="only look for samples")
    return parser.parse_args()


def chosen_subjects(only: str, start: int, every: int) -> list[Subject]:
    return [each for each in subjects() if re.search(only, str(each))][start::every]


def reported(verdicts: list[dict[str, Any]], crashed: list[str]) -> int:
    """Print the tables; the number of wrong pairs."""
    reasons = collections.Counter(each["reason"] for each in verdicts if each["reason"])
    for reason, count in reasons.most_common():
        print(f"{count:5} {reason}")
    wrong = {(each["subject"], line.partition(" | ")[0]) for each in verdicts for line in each["found"]}
    kinds = collections.Counter(line.partition(":")[0] for each in verdicts for line in each["found"])
    for kind, count in kinds.most_common():
        print(f"{count:5} differ: {kind}")
    for each in crashed:
        print(f"      {each}")
    pairs = sum(len(each["patterns"]) for each in verdicts)
    calls = sum(each["calls"] for each in verdicts)
    ran = sum(bool(each["patterns"]) for each in verdicts)
    print(f"{len(verdicts)} subjects, {ran} with a sample, {calls} calls, {len(crashed)} crashed or timed out")
    print(f"{pairs} pairs, {len(wrong)} wrong")
    return len(wrong) + len(crashed)


def main() -> int:
    chosen = arguments()
    torch.set_num_threads(1)
    os.environ["STATOR_STRICT"] = "1"
    found = chosen_subjects(chosen.only, chosen.start, chosen.every)
    out = Path(chosen.out)
    out.unlink(missing_ok=True)
    opinfos()  # the children inherit them
    if len(found) > MANY:
        record_all()
    backends, observations = tuple(chosen.backends.split(",")), tuple(chosen.observations.split(","))

    def write(verdict: dict[str, Any]) -> None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(verdict) + "\n")

    def one(index: int) -> list[str]:
        if chosen.samples:
            sample, reason = find_sample(found[index])
            write({"subject": str(found[index]), "reason": reason, "patterns": [] if sample is None else ["sample"], "calls": 0, "found": []})
            return []
        verdict = judge(found[index], backends, observations)
        write(verdict.as_dict())
        return [f"{verdict.subject}: {each}" for each in verdict.found]

    failures = parallel.run(range(len(found)), chosen.jobs, one, out.with_suffix(".failures.jsonl"), chosen.minutes, SECONDS)
    verdicts = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    crashed = [f"{each.kind}: {found[each.seed]}" for each in failures if each.kind in ("crash", "timeout")]
    return 1 if reported(verdicts, crashed) else 0


if __name__ == "__main__":
    sys.exit(main())
