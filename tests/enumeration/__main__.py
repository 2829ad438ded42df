"""Run the enumeration: `python -m tests.enumeration [--jobs N] [--every n] [--only REGEX] [--out FILE]`.

In: which subjects, backends and observations.  Out: FILE, a JSON line for each subject; why subjects have no sample and
samples no pattern; for each backend the pairs (subject, pattern) that were run and are wrong, the first calls that are not
compiled whole, with the reason; and the sum `N pairs, M wrong`. The exit status says whether any was wrong. A subject that crashes or
hangs costs itself alone. Subjects come in an order that mixes families, so that a run cut short is a sample of all.
"""

from __future__ import annotations

import os

os.environ["CUDA_VISIBLE_DEVICES"] = ""  # before torch asks: CUDA initialised here is of no use to forked processes

import argparse  # noqa: E402
import collections  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import re  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import zlib  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import torch  # noqa: E402

from tests.enumeration.judge import BACKENDS, Verdict, judge  # noqa: E402
from tests.enumeration.opinfo_samples import opinfos, record_all  # noqa: E402
from tests.enumeration.overloads import OVERLOAD, Subject, subjects  # noqa: E402
from tests.enumeration.samples import find_sample  # noqa: E402
from tests.fuzz import parallel  # noqa: E402

MANY = 100  # so many subjects are worth recording every operator that an OpInfo reaches
SECONDS = 120.0  # processor time of one subject


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.enumeration", description=__doc__)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="so many processes")
    parser.add_argument("--every", type=int, default=1, help="take every n-th subject")
    parser.add_argument("--start", type=int, default=0, help="with --every: the first subject")
    parser.add_argument("--only", default="", help="take the subjects whose name matches")
    parser.add_argument("--backends", default=",".join(BACKENDS))
    parser.add_argument("--observations", default="", help="these for every subject (default: by its form)")
    parser.add_argument("--out", default="enumeration.jsonl", help="where the verdicts are written")
    parser.add_argument("--minutes", type=float, default=0.0, help="stop after so many minutes")
    parser.add_argument("--samples", action="store_true", help="only look for samples")
    return parser.parse_args()


def chosen_subjects(only: str, start: int, every: int) -> list[Subject]:
    mixed = sorted(subjects(), key=lambda each: zlib.crc32(str(each).encode()))
    return [each for each in mixed if re.search(only, str(each))][start::every]


def table(title: str, counts: collections.Counter[str]) -> None:
    for reason, count in counts.most_common():
        print(f"{count:6} {title}: {reason}")


def reported(verdicts: list[dict[str, Any]], crashed: list[str], backends: tuple[str, ...], seconds: float) -> int:
    """Print the tables; the number of wrong pairs."""
    table("no sample", collections.Counter(each["reason"] for each in verdicts if each["reason"]))
    table("not arranged", collections.Counter(f"{pattern}: {why}" for each in verdicts for pattern, why in each["refused"].items()))
    table("not defined", collections.Counter(f"{pattern}: {why}" for each in verdicts for pattern, why in each["undefined"].items()))
    for backend in backends:
        table(f"{backend}, not compiled whole", collections.Counter(each["stopped"][backend] for each in verdicts if each["stopped"].get(backend)))
    table("differ", collections.Counter(line.partition(":")[0] for each in verdicts for line in each["found"]))
    for line in crashed:
        print(f"       {line}")
    ran = [each for each in verdicts if each["patterns"]]
    overloads = [each for each in verdicts if each["subject"].endswith(f"({OVERLOAD})")]
    pairs = sum(len(each["patterns"]) for each in ran)
    raising = sum(len(each["raising"]) for each in ran)
    refused = sum(len(each["refused"]) for each in ran)
    print(f"{len(verdicts)} subjects, {len(ran)} with a sample; {len(overloads)} overloads, "
          f"{sum(bool(each['patterns']) for each in overloads)} with a sample; {len(crashed)} crashed or timed out")
    wrong = set()
    for backend in backends:
        differ = {(each["subject"], line.split(" | ")[0]) for each in ran for line in each["found"] if f" | {backend} | " in line}
        wrong |= differ
        calls = sum(each["calls"].get(backend, 0) for each in ran)
        whole = sum(not each["stopped"].get(backend) for each in ran)
        print(f"{backend}: {pairs} pairs run ({raising} raise in eager), {len(differ)} wrong, {refused} not arranged; {calls} calls; "
              f"{whole} of {len(ran)} first calls compiled whole")
    print(f"{seconds:.0f} s, {pairs / max(seconds, 0.01):.1f} pairs a second, "
          f"{sum(each['seconds'] for each in ran) / max(pairs, 1):.2f} s of processor time a pair")
    print(f"{pairs} pairs, {len(wrong)} wrong")
    return len(wrong) + len(crashed)


def main() -> int:
    chosen = arguments()
    started = time.monotonic()
    torch.set_num_threads(1)
    os.environ["STATOR_STRICT"] = "1"
    found = chosen_subjects(chosen.only, chosen.start, chosen.every)
    out = Path(chosen.out)
    out.unlink(missing_ok=True)
    opinfos()  # the children inherit them
    if len(found) > MANY:
        record_all()
    assert not torch.cuda.is_initialized(), "forked processes cannot use CUDA"
    gc.collect()
    gc.freeze()  # collections in the children leave out all that is loaded
    backends = tuple(chosen.backends.split(","))
    observations = tuple(filter(None, chosen.observations.split(",")))

    def write(verdict: dict[str, Any]) -> None:
        with out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(verdict) + "\n")

    def one(index: int) -> list[str]:
        if chosen.samples:
            sample, reason = find_sample(found[index])
            write(Verdict(str(found[index]), reason, [] if sample is None else ["sample"]).as_dict())
            return []
        verdict = judge(found[index], backends, observations)
        write(verdict.as_dict())
        return [f"{verdict.subject}: {each}" for each in verdict.found]

    failures = parallel.run(range(len(found)), chosen.jobs, one, out.with_suffix(".failures.jsonl"), chosen.minutes, SECONDS)
    verdicts = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()] if out.exists() else []
    crashed = [f"{each.kind}: {found[each.seed]}" for each in failures if each.kind in ("crash", "timeout")]
    print(f"{len(verdicts)} of {len(found)} chosen subjects done")
    return 1 if reported(verdicts, crashed, backends, time.monotonic() - started) else 0


if __name__ == "__main__":
    sys.exit(main())
