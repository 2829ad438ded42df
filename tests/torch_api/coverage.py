"""Every module and operator of torch's databases, captured and compared: `python -m tests.torch_api.coverage`.

In: a part of the names (`--only conv`), a slice (`--piece 2/8`), a backend.  Out: a table in out/torch_api.json and a summary; the exit
status says whether anything was wrong or failed inside Stator.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from torch_api.judge import BAD, UNFIT, Verdict, judge  # noqa: E402
from torch_api.samples import NoSample, Sample, module_samples, operator_samples  # noqa: E402


def every_sample(part: str) -> Iterator[Sample]:
    if part in ("all", "modules"):
        yield from module_samples(training=True)
        yield from module_samples(training=False)
    if part in ("all", "operators"):
        yield from operator_samples()


def verdict_of(sample: Sample, backend: str) -> Verdict:
    """A sample that torch itself cannot build here (no CUDA, no such library) is unfit."""
    try:
        sample.make()
    except NoSample:
        return Verdict(UNFIT, "", "no such sample")
    except Exception as error:
        return Verdict(UNFIT, "", f"{type(error).__name__}: {error}".splitlines()[0][:120])
    return judge(sample.make, backend, sample.arbitrary)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part", choices=("all", "modules", "operators"), default="all")
    parser.add_argument("--only", default="", help="only names that contain this")
    parser.add_argument("--piece", default="1/1", help="k/n: every n-th sample, starting with the k-th")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--out", default=str(ROOT / "out" / "torch_api.json"))
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    position, pieces = (int(number) for number in options.piece.split("/"))
    chosen = [s for s in every_sample(options.part) if options.only in s.name][position - 1::pieces]
    rows = []
    for sample in chosen:
        started = time.perf_counter()
        verdict = verdict_of(sample, options.backend)
        rows.append({"name": sample.name, "kind": verdict.kind, "code": verdict.code, "detail": verdict.detail,
                     "seconds": round(time.perf_counter() - started, 3)})
        if verdict.bad or options.verbose:
            print(f"{verdict.kind:9} {verdict.code:6} {sample.name}: {verdict.detail}", flush=True)
    summarize(rows)
    path = Path(options.out)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=0))
    return int(any(row["kind"] in BAD for row in rows))


def summarize(rows: list[dict[str, object]]) -> None:
    kinds = collections.Counter(row["kind"] for row in rows)
    print(f"{len(rows)} programs: " + ", ".join(f"{count} {kind}" for kind, count in kinds.most_common()))
    causes = collections.Counter((row["code"], row["detail"]) for row in rows if row["kind"] == "broken")
    for (code, detail), count in causes.most_common(40):
        print(f"  {count:4} {code} {detail}")


if __name__ == "__main__":
    sys.exit(main())
