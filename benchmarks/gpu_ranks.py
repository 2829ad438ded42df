"""Restarts and ranks on a GPU machine, within a limit.   python3 benchmarks/gpu_ranks.py [--seconds 320] [--out FOLDER]

In: a checkout without a core, and a Python with torch.  Out: build.log, and for each of the jobs its output, in the
folder, as far as it came: `restart` (benchmarks.restart), `one`, `tensor` and `video` (parts of tests.ranks.device).
Jobs compile beside one another; what they measure runs in turns.  `--device cpu --small` tries the same without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TAIL = 2600  # characters of an output that are printed


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=320.0, help="until everything is ended, the build included")
    parser.add_argument("--out", type=Path, default=Path(os.environ.get("OUT") or ROOT / "out" / "gpu_ranks"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="small models: does it run at all?")
    parser.add_argument("--jobs", default="restart,one,tensor,video")
    parser.add_argument("--cases", default="llama16:eval,bert12:eval,bert12:train,llama16:train", help="of the restart")
    return parser.parse_args()


def commands(given: argparse.Namespace, turns: str, left: float) -> dict[str, list[str]]:
    """The command line of each job."""
    device = ["-m", "tests.ranks.device", "--device", given.device, "--turns", turns, *["--small"] * given.small]
    if given.device == "cpu":
        device += ["--backends", "aot_eager", "--rounds", "2"]
    restart = ["-m", "benchmarks.restart", *given.cases.split(","), "--device", given.device, "--rounds", "1",
               "--jobs", "8", "--turns", turns, "--seconds", str(left), "--json", str(given.out / "restart.json")]
    found = {"restart": restart, **{part: [*device, "--parts", part] for part in ("one", "tensor", "video")}}
    return {name: found[name] for name in given.jobs.split(",")}


def build(folder: Path, seconds: float) -> tuple[bool, str]:
    """Build the extension modules in place and import them; whether that works, and the end of its output."""
    text, status = "", 0
    steps = (["setup.py", "-q", "build_ext", "--inplace"],
             ["-c", "import sympy.printing, torch, stator; print(torch.__version__, stator.__file__)"])
    for step in steps:
        begun = time.monotonic()
        try:
            done = subprocess.run([sys.executable, *step], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                  text=True, timeout=seconds, check=False)
            text, status = f"{text}{done.stdout}", done.returncode
        except subprocess.TimeoutExpired as error:
            text, status = f"{text}{error.stdout!r}\nmore than {seconds:.0f} s\n", 1
        text += f"{' '.join(step[:2])}: {time.monotonic() - begun:.0f} s, status {status}\n"
        (folder / "build.log").write_text(text)
        if status:
            break
    return not status, text


def start(name: str, command: list[str], folder: Path, caches: str) -> subprocess.Popen[bytes]:
    """A job in a process group of its own, whose compilers find nothing that another one has compiled."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1",
                   "TORCHINDUCTOR_CACHE_DIR": os.path.join(caches, name),
                   "TRITON_CACHE_DIR": os.path.join(caches, name, "triton"),
                   "TORCHINDUCTOR_COMPILE_THREADS": "4",  # of each of a dozen processes
                   "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo", "TOKENIZERS_PARALLELISM": "false"}
    with (folder / f"{name}.log").open("wb") as output:
        return subprocess.Popen([sys.executable, *command], cwd=ROOT, env=environment, stdout=output,
                                stderr=subprocess.STDOUT, start_new_session=True)


def wait(jobs: dict[str, subprocess.Popen[bytes]], begun: float, end: float) -> dict[str, Any]:
    """Status and seconds of each job; those that outlast the limit are killed with all their children."""
    found: dict[str, Any] = {}
    while len(found) < len(jobs):
        for name, job in jobs.items():
            if name not in found and job.poll() is not None:
                found[name] = {"status": job.returncode, "seconds": round(time.monotonic() - begun)}
            elif name not in found and time.monotonic() > end:
                found[name] = {"status": "killed at the limit", "seconds": round(time.monotonic() - begun)}
        time.sleep(0.2)
    for job in jobs.values():
        try:
            os.killpg(job.pid, signal.SIGKILL)  # the pools of compilers, too
        except ProcessLookupError:
            pass
    return found


def main() -> int:
    given = parse()
    begun = time.monotonic()
    end = begun + given.seconds
    given.out.mkdir(parents=True, exist_ok=True)
    built, text = build(given.out, given.seconds)
    print(text[-TAIL:], flush=True)
    if not built:
        return 1
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as caches:
        left = end - time.monotonic() - 10
        jobs = {name: start(name, command, given.out, caches)
                for name, command in commands(given, os.path.join(caches, "turns"), left).items()}
        found = wait(jobs, begun, end)
    for name in jobs:
        shown = (given.out / f"{name}.log").read_text(errors="replace")
        print(f"== {name}: {found[name]}\n{shown[-TAIL:]}", flush=True)
    (given.out / "jobs.json").write_text(json.dumps(found, indent=1))
    return int(any(each["status"] for each in found.values()))


if __name__ == "__main__":
    sys.exit(main())
