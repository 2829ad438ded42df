"""First calls, steps and peak memory of library models.   python -m benchmarks.gpu_steps [--only gpt2,vit]

In: cases (`benchmarks.gpu_step_cases`).  Out: for each case a line for each side: seconds of the first call and of
the first eight, the median step, the peak of memory, and how far its results are from those of eager.  Sides:

    eager           no compiler, fused optimizer
    torch-model     torch.compile(model), eager fused optimizer
    torch-step      torch.compile of the whole step
    stator-model    torch.compile(model) under stator.install()
    stator-step     torch.compile of the whole step under stator.install()
    stator-flat     stator-model, every graph compiled whole
    SIDE:MODE       a side in a mode of torch.compile, as stator-step:reduce-overhead
    stator-step:flat    no regions: each piece between autograd boundaries is compiled whole

Each side is a process of its own with empty caches.  The sides of a case compile at the same time, on cores of their
own, and so do `--together` cases; steps are timed afterwards, one side at a time, in turns.  `--profile` adds for each
side, for one step: the time in which the GPU is busy, the time in which the processor issues it, launches, copies, and
the kernels that take longest.  `--device cpu --tiny` tries the script without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SIDES = ("eager", "torch-model", "torch-step", "stator-model", "stator-step")
MORE_SIDES = ("stator-flat",)
PROFILE = "profile"
DIRECT = "direct calls"  # of a graph's pieces, without AOTAutograd's code around each
COMPARED_STEPS = 8
Row = dict[str, Any]


def arguments(given: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", help="cases whose name has one of these texts, comma-separated")
    parser.add_argument("--sides", default=",".join(SIDES))
    parser.add_argument("--mode", default="", help="a mode of torch.compile, as reduce-overhead")
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--together", type=int, default=1, help="cases that compile at the same time")
    parser.add_argument("--profile", action="store_true")
    parser.add_argument("--limit", type=float, default=600.0, help="seconds for the first calls of a side")
    parser.add_argument("--json", type=Path, default=ROOT / "out" / "gpu_steps.json")
    parser.add_argument("--inside", nargs=2, metavar=("CASE", "SIDE"), help=argparse.SUPPRESS)
    return parser.parse_args(given)


# ---------------------------------------------------------------------- one side, in its process

def serve(options: argparse.Namespace) -> None:
    """Compile and run, write a JSON line, then time one round of steps for each line that arrives."""
    name, side = options.inside
    import torch
    import torch._functorch.aot_autograd
    import torch._inductor.compile_fx

    from benchmarks.gpu_step_cases import CASES

    device = torch.device(options.device)
    torch.set_float32_matmul_precision("high")
    kept: list[Any] = []
    if side.startswith("stator"):
        import stator
        from stator import events

        stator.install()
        events.subscribe(lambda event: kept.append(type(event).__name__))
        _note_direct_calls(kept)
    side, _, mode = side.partition(":")
    mode = mode or options.mode
    settings: Row = {"mode": mode} if mode and mode != "flat" else {"backend": options.backend}
    if mode == "flat":
        settings["options"] = {"regions": "off"}
    torch.manual_seed(0)
    case = CASES[name](device, options.tiny)
    if side == "stator-flat":
        settings = {"options": {"regions": "off", **_options_of(options.mode)}, "backend": options.backend}
    run = case.step_of(None if side == "eager" else lambda fn: torch.compile(fn, **settings), whole="step" in side)

    def once() -> Any:
        result = [float(each) for each in run()]  # a recorded CUDA graph writes the next result to the same memory
        if device.type == "cuda":
            torch.cuda.synchronize()
        return result

    if device.type == "cuda":
        torch.ones(8, 8, device=device).matmul(torch.ones(8, 8, device=device)).sum().item()
    cpu, started = _cpu_seconds(), time.perf_counter()
    results = [once()]
    first, cpu = time.perf_counter() - started, _cpu_seconds() - cpu
    results += [once() for _ in range(COMPARED_STEPS - 1)]
    warm = time.perf_counter() - started
    repeats = _steps_of_a_round(once)
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
    print(json.dumps({"first": first, "cpu": cpu, "warm": warm, "results": results,
                      "captures": kept.count("CaptureStarted"), "breaks": kept.count("GraphBreak"),
                      "compilations": kept.count("BackendCompiled"), "cuts": kept.count("GraphCut"),
                      "kept whole": kept.count("GraphKeptWhole"), "direct": kept.count(DIRECT)}), flush=True)
    for line in sys.stdin:
        if line.strip() == PROFILE:
            print(json.dumps({"profile": profile_of(run, device)}), flush=True)
            continue
        started = time.perf_counter()
        for _ in range(repeats):
            run()
        if device.type == "cuda":
            torch.cuda.synchronize()
        seconds = (time.perf_counter() - started) / repeats
        peak = torch.cuda.max_memory_allocated() if device.type == "cuda" else 0
        print(json.dumps({"seconds": seconds, "peak": peak}), flush=True)


def _note_direct_calls(kept: list[Any]) -> None:
    from stator.backends.regions import compilation

    join = compilation.join_directly

    def noted(*args: Any) -> Any:
        joined = join(*args)
        kept.extend([DIRECT] if joined is not None else [])
        return joined

    compilation.join_directly = noted  # type: ignore[assignment]


def _options_of(mode: str) -> Row:
    from torch._inductor import list_mode_options

    return list_mode_options(mode) if mode else {}


def profile_of(run: Callable[[], Any], device: Any, steps: int = 4) -> Row:
    """Figures of one step: of the processor until it has issued the step, and of the GPU."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    issued = []
    for _ in range(9):
        wait()
        started = time.perf_counter()
        run()
        issued.append(time.perf_counter() - started)
    wait()
    activities = [ProfilerActivity.CUDA if device.type == "cuda" else ProfilerActivity.CPU]
    with profile(activities=activities) as seen:
        for _ in range(steps):
            run()
        wait()
    kernels: dict[str, list[float]] = {}
    spans = []
    for event in seen.events() or ():
        if event.device_type.name == ("CUDA" if device.type == "cuda" else "CPU"):
            kernels.setdefault(event.name, []).append(event.time_range.elapsed_us())
            spans.append((event.time_range.start, event.time_range.end))
    busy, reached = 0.0, 0.0
    for start, end in sorted(spans):
        busy += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    longest = sorted(kernels.items(), key=lambda item: -sum(item[1]))[:14]
    copies = sum(len(times) for kernel, times in kernels.items() if kernel.startswith(("Memcpy", "Memset")))
    return {"issue_ms": statistics.median(issued) * 1e3, "busy_ms": busy / steps / 1e3, "copies": copies / steps,
            "launches": sum(map(len, kernels.values())) / steps,
            "kernels": [(kernel[:90], len(times) / steps, sum(times) / steps / 1e3) for kernel, times in longest]}


def _steps_of_a_round(once: Callable[[], Any]) -> int:
    started = time.perf_counter()
    for _ in range(3):
        once()
    return max(3, min(100, int(0.3 / ((time.perf_counter() - started) / 3))))


def _cpu_seconds() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


# ---------------------------------------------------------------------- all sides of a case

def measure(options: argparse.Namespace, cases: dict[str, list[str]]) -> dict[str, dict[str, Row]]:
    """For each case its sides: all of them compile at the same time, then each is timed alone."""
    with tempfile.TemporaryDirectory() as folder:
        places = {(name, side): Path(folder) / name / side.replace(":", "-")
                  for name, sides in cases.items() for side in sides}
        running = {key: _start(options, *key, place) for key, place in places.items()}
        clocks = [threading.Timer(options.limit, process.kill) for process in running.values()]
        for clock in clocks:
            clock.start()
        rows = {key: _read(process, places[key]) for key, process in running.items()}
        for clock in clocks:
            clock.cancel()
        for name, sides in cases.items():
            alive = [side for side in sides if "error" not in rows[name, side]]
            for number in [*range(options.rounds), *([-1] if options.profile else [])]:
                turn = number % max(len(alive), 1)
                for side in alive[turn:] + alive[:turn]:
                    key = name, side
                    row = _ask(running[key], places[key], PROFILE if number < 0 else "")
                    if "seconds" in row:
                        rows[key].setdefault("steps", []).append(row.pop("seconds"))
                    rows[key].update(row)
            for side in sides:
                running[name, side].communicate()
    return {name: {side: rows[name, side] for side in sides} for name, sides in cases.items()}


def _ask(process: subprocess.Popen[str], folder: Path, line: str) -> Row:
    assert process.stdin
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return {"error": (folder / "errors").read_text()[-3000:]}
    return _read(process, folder)



def _start(options: argparse.Namespace, name: str, side: str, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(parents=True)
    path = os.pathsep.join([str(ROOT), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TRITON_CACHE_DIR": str(folder / "triton"),
                   "TORCHINDUCTOR_CACHE_DIR": str(folder / "inductor"), "PYTHONPATH": path, "HF_HUB_OFFLINE": "1",
                   "STATOR_CACHE": "off"}
    command = [sys.executable, "-m", "benchmarks.gpu_steps", "--device", options.device, "--mode", options.mode,
               "--backend", options.backend, *(["--tiny"] if options.tiny else []), "--inside", name, side]
    if options.profile:
        environment["TORCHINDUCTOR_UNIQUE_KERNEL_NAMES"] = "1"
    with (folder / "errors").open("w") as errors:
        return subprocess.Popen(command, cwd=ROOT, env=environment, text=True, stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=errors)


def _read(process: subprocess.Popen[str], folder: Path) -> Row:
    assert process.stdout
    for line in process.stdout:
        if line.startswith("{"):
            return dict(json.loads(line))
    process.wait()
    return {"error": f"exit {process.returncode}: {(folder / 'errors').read_text()[-3000:]}"}


def apart(row: Row, eager: Row) -> float:
    """The largest relative difference of the results of the first steps."""
    pairs = [(a, b) for mine, his in zip(row["results"], eager["results"], strict=True)
             for a, b in zip(mine, his, strict=True)]
    return max(abs(a - b) / max(abs(b), 1e-9) for a, b in pairs)


def report(name: str, found: dict[str, Row]) -> None:
    print(f"\n{name}")
    base = found.get("torch-model", {})
    for side, row in found.items():
        if "error" in row:
            print(f"  {side:28} {row['error'][-3000:]}", flush=True)
            continue
        step = statistics.median(row["steps"])
        ratios = [b / a for a, b in zip(row["steps"], base.get("steps", []), strict=False)]
        ratio = statistics.median(ratios) if ratios else float("nan")
        distance = apart(row, found["eager"]) if "results" in found.get("eager", {}) else float("nan")
        print(f"  {side:28} first {row['first']:6.1f} s ({row['cpu']:6.1f} CPU), {COMPARED_STEPS} calls "
              f"{row['warm']:6.1f} s  step {step * 1e3:8.3f} ms  torch-model/this {ratio:5.2f}"
              f"  peak {row['peak'] / 2**20:7.0f} MiB  apart {distance:.1e}  captures {row['captures']}"
              f" breaks {row['breaks']} compilations {row['compilations']} cuts {row['cuts']}"
              f" whole {row['kept whole']} direct {row['direct']}", flush=True)
        if "profile" in row:
            report_profile(row["profile"])


def report_profile(seen: Row) -> None:
    print(f"      issue {seen['issue_ms']:.2f} ms  busy {seen['busy_ms']:.2f} ms  launches {seen['launches']:.0f}"
          f"  copies {seen['copies']:.0f}")
    for kernel, count, milliseconds in seen["kernels"]:
        print(f"        {milliseconds:8.3f} ms {count:5.0f} x {kernel}", flush=True)


def main(given: list[str]) -> int:
    options = arguments(given)
    if options.inside:
        serve(options)
        return 0
    from benchmarks.gpu_step_cases import available

    known = json.loads(options.json.read_text()) if options.json.exists() else {}
    chosen = {name: [side for side in options.sides.split(",") if training or "-step" not in side]
              for name, training in available().items() if any(text in name for text in options.only.split(","))}
    names = list(chosen)
    for start in range(0, len(names), options.together):
        together = {name: chosen[name] for name in names[start:start + options.together]}
        for name, found in measure(options, together).items():
            report(name, found)
            known[f"{name} {options.mode or options.backend}"] = found
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(known) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
