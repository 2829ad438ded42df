"""All long checks of artifacts at once, on a machine with many cores.   python -m tests.artifacts.soak FOLDER

In: a folder for logs, seconds, a number of processes, and the folder of the zoo where there is one.  Out: for each job its
last line as it ends, then all lines that name a problem.  Jobs: changes of a package in slices, small programs,
processes on one store with kill -9, and restarts of the zoo in train mode under "aot_eager".
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

PROBLEM = re.compile(r"^(stale|failed|missed|not stored)|Traceback|Error|\"right\": false|stays behind|captures of \d|"
                     r"\"captures\": [1-9]|\"error\"|\"differences\": \[\"")


def jobs(options: argparse.Namespace, folder: str) -> dict[str, list[list[str]]]:
    """Commands by name; those of one job run one after the other."""
    module, found = [sys.executable, "-m"], dict[str, list[list[str]]]()
    found["store aot_eager"] = [[*module, "tests.unit.artifacts.shared_store", "--processes", "8", "--killed", "4"]]
    found["store inductor"] = [[*module, "tests.unit.artifacts.shared_store", "--processes", "8", "--killed", "2",
                                "--backend", "inductor", "--seed", "1"]]
    if options.zoo:
        names = [line.split()[0] for line in (Path(options.zoo) / "dev.txt").read_text().splitlines() if line.strip()]
        for part in range(options.parts):
            some, place = ",".join(names[part::options.parts]), f"{folder}/zoo{part}"
            found[f"zoo {part}"] = [[*module, "tests.artifacts.zoo", what, place, "--zoo", options.zoo, "--backend",
                                     "aot_eager", "--train", "--names", some] for what in ("save", "load")]
    for part in range(options.slices):
        backend = "aot_eager" if part % 4 == 3 else "eager"
        found[f"changes {part}"] = [[*module, "tests.artifacts.package_mutations", str(options.changes),
                                     str(options.seed + 10 * part), "both", backend]]
    found["small programs"] = [[*module, "tests.artifacts.small_programs"]]
    return found


def run(name: str, commands: list[list[str]], log: Path, end: float) -> str:
    with log.open("w") as file:
        for command in commands:
            try:
                subprocess.run(command, stdout=file, stderr=subprocess.STDOUT, check=False,
                               timeout=max(end - time.monotonic(), 1))
            except subprocess.TimeoutExpired:
                file.write("\nstopped: out of time\n")
    lines = log.read_text().splitlines() or [""]
    print(f"{name}: {lines[-1][:400]}", flush=True)
    return name


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--zoo", default="")
    parser.add_argument("--parts", type=int, default=5, help="of the zoo")
    parser.add_argument("--slices", type=int, default=12, help="of changes of a package")
    parser.add_argument("--changes", type=int, default=100, help="in a slice")
    parser.add_argument("--seed", type=int, default=1000)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(options.jobs) as pool:
        logs = {name: options.folder / f"{name.replace(' ', '-')}.log" for name in jobs(options, folder)}
        for each in [pool.submit(run, name, commands, logs[name], end)
                     for name, commands in jobs(options, folder).items()]:
            each.result()
    problems = [f"{name}: {line[:600]}" for name, log in logs.items() for line in log.read_text().splitlines()
                if PROBLEM.search(line)]
    print("\n".join(problems) or "no problem", flush=True)
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
