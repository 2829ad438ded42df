"""The GPU table: step times beside torch.compile of the same torch, in one run.

    python benchmarks/gpu.py [--only build,tests,llama,vit,...] [--json FILE] [--device cpu --tiny]

In order: build the extension modules in place, run tests/gpu, then one row per case.  A row compiles its model four
times (Stator and torch.compile, "inductor" and "reduce-overhead"), each with cold caches, and measures all of them and
eager in alternation.  Each piece runs alone with --only; figures are added to the JSON file row by row.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
os.environ.setdefault("HF_HUB_OFFLINE", "1")

SIDES = ("stator", "torch.compile")
MODES = ("inductor", "reduce-overhead")


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="pieces whose name has one of these texts, comma-separated")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true", help="small models: does it run at all?")
    parser.add_argument("--rounds", type=int, default=15, help="measurements of each target")
    parser.add_argument("--seconds", type=float, default=0.25, help="about how long one measurement takes")
    parser.add_argument("--first-calls", type=int, default=2, help="compilations of each target; the shortest counts")
    parser.add_argument("--modes", default="", help=f"{', '.join(MODES)} or a backend; on a CPU, aot_eager")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "gpu.json")
    chosen = parser.parse_args(arguments)
    chosen.modes = chosen.modes or (",".join(MODES) if chosen.device.startswith("cuda") else "aot_eager")
    if chosen.tiny:
        chosen.rounds, chosen.seconds = min(chosen.rounds, 3), min(chosen.seconds, 0.02)
    return chosen


def wanted(chosen: argparse.Namespace, name: str) -> bool:
    return any(text in name for text in chosen.only.split(","))


def build() -> dict[str, Any]:
    """`setup.py build_ext --inplace`, for the Python and the torch that run this."""
    done = subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=ROOT, check=False)
    return {"returncode": done.returncode}


def run_tests(device: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/gpu"]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "STATOR_TEST_DEVICE": device}
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True, env=environment)
    print(done.stdout[-4000:], done.stderr[-2000:], sep="\n", flush=True)
    last = done.stdout.strip().splitlines()
    return {"returncode": done.returncode, "summary": last[-1] if last else ""}


def machine(device: str) -> dict[str, Any]:
    import torch

    found = {"python": platform.python_version(), "torch": torch.__version__, "cores": os.cpu_count(),
             "device": device}
    if device.startswith("cuda"):
        found |= {"gpu": torch.cuda.get_device_name(), "cuda": torch.version.cuda}
    return found


def keep(path: Path, part: str, name: str, figures: Any) -> None:
    """Add one piece to the JSON file, beside what earlier runs have put there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    known = json.loads(path.read_text()) if path.exists() else {}
    known.setdefault(part, {})[name] = figures
    path.write_text(json.dumps(known, indent=2) + "\n")


HEADINGS = ("row", "mode", "eager", "stator", "torch.compile", "ratio", "first call", "ratio", "dispatch", "ratio",
            "graphs", "breaks", "same")


def table(rows: dict[str, Any]) -> str:
    lines = [list(HEADINGS)]
    for name, row in rows.items():
        if "error" in row:
            lines.append([name, "", row["error"][:90]] + [""] * 10)
            continue
        lines += [_mode_line(name, row, mode) for mode in row["modes"]]
    widths = [max(len(line[column]) for line in lines if len(line[2]) < 90) for column in range(len(HEADINGS))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([shown[0], "-" * len(shown[0]), *shown[1:]])


def _mode_line(name: str, row: dict[str, Any], mode: str) -> list[str]:
    cells = row["modes"][mode]
    ours, theirs = (cells[side] for side in SIDES)
    step = [_step_text(row, row["eager"]["step"])] + [_step_text(row, each.get("step")) for each in (ours, theirs)]
    first = " / ".join(_seconds(each.get("first_call")) for each in (ours, theirs))
    dispatch = " / ".join(_micro(row["dispatch"][side].get("seconds")) for side in SIDES)
    return [name, mode, *step, _ratio_of_rounds(theirs.get("steps", []), ours.get("steps", [])), first,
            _ratio(theirs.get("first_call"), ours.get("first_call")), dispatch,
            _ratio(*(row["dispatch"][side].get("seconds") for side in reversed(SIDES))),
            " / ".join(str(row["counts"][side].get("graphs", "-")) for side in SIDES),
            " / ".join(str(row["counts"][side].get("breaks", "-")) for side in SIDES),
            " / ".join("yes" if each.get("same") else each.get("error", "no")[:40] for each in (ours, theirs))]


def _step_text(row: dict[str, Any], seconds: float | None) -> str:
    if seconds is None:
        return "-"
    return f"{row['frames'] / seconds:.1f} fps" if row["frames"] else f"{seconds * 1e3:.3f} ms"


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f} s"


def _micro(value: float | None) -> str:
    return "-" if value is None else f"{value * 1e6:.1f} us"


def _ratio_of_rounds(theirs: list[float], ours: list[float]) -> str:
    """The median of what the rounds say: both sides of a round are measured within a second or two."""
    ratios = [their / own for their, own in zip(theirs, ours, strict=False)]
    return f"{statistics.median(ratios):.2f}x" if ratios else "-"


def _ratio(theirs: float | None, ours: float | None) -> str:
    return f"{theirs / ours:.2f}x" if theirs and ours else "-"


def main(arguments: list[str]) -> int:
    chosen = parse(arguments)
    failed = False
    if wanted(chosen, "build"):
        figures = build()
        failed |= figures["returncode"] != 0
        keep(chosen.json, "pieces", "build", figures)
        print(f"build: {'failed' if failed else 'done'}", flush=True)
    if wanted(chosen, "tests"):
        figures = run_tests(chosen.device)
        failed |= figures["returncode"] != 0
        keep(chosen.json, "pieces", "tests", figures)
    # Only now: the rows import the extension modules that were built above.
    from benchmarks import gpu_cases, gpu_measure

    keep(chosen.json, "pieces", "machine", machine(chosen.device))
    rows: dict[str, Any] = {}
    for name in gpu_cases.available():
        if not wanted(chosen, name):
            continue
        print(f"{name} ...", flush=True)
        rows[name] = gpu_measure.measure(name, chosen)
        keep(chosen.json, "rows", name, rows[name])
        print(table({name: rows[name]}), flush=True)
    if rows:
        print()
        print(table(rows))
    print(json.dumps(machine(chosen.device)))
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
