"""Profile a first call: `python -m benchmarks.first_call [--device cuda] [--training] [--backend aot_eager]`.

In: a Llama-like model of equal layers (`--layers`, `--width`).  Out: for each side the seconds of its first call by
stage, CPU seconds, the time of later calls and the peak of memory; ratios against torch.compile.

Each side runs cold in a process of its own, with all caches of compilers off.  Imports before the call are not counted,
those inside it are, from bytecode on disk on both sides (an installed package has it).  Sides:

    stator          pieces that repeat compiled once (the default)
    stator-flat     the graph compiled whole, options={"regions": "off"}
    torch           torch.compile
    torch-regions   torch.compile, each block marked with torch.compiler.nested_compile_region

Stages are those that torch's own timers name.  "capture" lies before the first compilation (in Stator with the search
for periods), "kernels" is the wait for compilers of generated code, "rest" the first run and what no timer names.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INSIDE = "--inside"
SIDES = ("torch", "stator", "stator-flat", "torch-regions")
# Stage -> timers of torch that add up to it.  Kernels: what the compiler of C++ or Triton code is waited for.
STAGES = {
    "joint graph": ("aot_collect_metadata", "aot_trace_joint_graph", "aot_forward_graph_fake_tensor_prop"),
    "graph passes": ("_recursive_pre_grad_passes", "_recursive_joint_graph_passes", "_recursive_post_grad_passes"),
    "partition": ("min_cut_rematerialization_partition",),
    "lowering": ("GraphLowering.run",),
    "codegen": ("GraphLowering.codegen",),
    "kernels": ("PyCodeCache.load_by_key_path",),
}


def main() -> None:
    options = arguments()
    if options.inside:
        print(json.dumps(measure(options)))
        return
    compileall.compile_dir(ROOT / "stator", quiet=2)
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in options.sides}
    for _ in range(options.rounds):
        for side in options.sides:
            result = in_own_process(side)
            if result is not None:
                found[side].append(result)
    report(options, {side: results for side, results in found.items() if results})


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--mode", default=None)
    parser.add_argument("--training", action="store_true")
    parser.add_argument("--layers", type=int, default=None, help="12 on the CPU, 32 on a GPU")
    parser.add_argument("--width", type=int, default=None, help="64 on the CPU, 1024 on a GPU")
    parser.add_argument("--steps", type=int, default=20, help="later calls that are timed")
    parser.add_argument("--rounds", type=int, default=1, help="processes for each side")
    parser.add_argument("--sides", nargs="+", default=list(SIDES[:3]), choices=SIDES)
    parser.add_argument(INSIDE, default="", help=argparse.SUPPRESS)
    options = parser.parse_args()
    on_gpu = options.device == "cuda"
    options.layers = options.layers or (32 if on_gpu else 12)
    options.width = options.width or (1024 if on_gpu else 64)
    return options


def in_own_process(side: str) -> dict[str, Any] | None:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1", "TORCHINDUCTOR_CACHE_DIR": folder,
                       "TRITON_CACHE_DIR": f"{folder}/triton", "PYTHONPATH": str(ROOT)}
        if "cuda" not in sys.argv:  # kernels are compiled in processes that the compiler starts itself, and counted
            environment["TORCHINDUCTOR_COMPILE_THREADS"] = "1"
        done = subprocess.run([sys.executable, "-m", "benchmarks.first_call", *sys.argv[1:], INSIDE, side], cwd=ROOT,
                              env=environment, capture_output=True, text=True)
    if done.returncode:
        print(f"{side}: failed\n{done.stderr[-3000:]}", file=sys.stderr)
        return None
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


def measure(options: argparse.Namespace) -> dict[str, Any]:
    import torch
    import torch._dynamo
    import torch._functorch.aot_autograd
    import torch._inductor.compile_fx

    import stator

    step, model, pieces = build(options, torch, stator)
    on_gpu = options.device == "cuda"

    def run() -> None:
        step()
        if on_gpu:
            torch.cuda.synchronize()

    cpu, started = cpu_seconds(), time.perf_counter()
    run()
    first, cpu = time.perf_counter() - started, cpu_seconds() - cpu
    timers = {name: sum(seconds) for name, seconds in torch._dynamo.utils.compilation_time_metrics.items()}
    stages = {stage: sum(timers.get(name, 0.0) for name in names) for stage, names in STAGES.items()}
    of_torch = options.inside.startswith("torch")
    stages["capture"] = timers.get("bytecode_tracing", 0.0) if of_torch else pieces["capture"]()
    for _ in range(5):
        run()
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    later = []
    for _ in range(options.steps):
        started = time.perf_counter()
        run()
        later.append(time.perf_counter() - started)
    peak = torch.cuda.max_memory_allocated() if on_gpu else 0
    return {"first": first, "cpu": cpu, "stages": stages, "later": statistics.median(later), "peak": peak,
            "pieces": pieces["cut"]()}


def build(options: argparse.Namespace, torch: Any, stator: Any) -> tuple[Callable[[], Any], Any, dict[str, Any]]:
    from benchmarks.gpu_models import Llama, LlamaSizes
    from stator import events

    width = options.width
    length = 512 if options.device == "cuda" else 32
    sizes = LlamaSizes(dim=width, layers=options.layers, heads=max(width // 64, 4), kv_heads=max(width // 128, 2),
                       hidden=width * 11 // 4, vocab=32000 if options.device == "cuda" else 256, length=length)
    torch.manual_seed(0)
    dtype = torch.bfloat16 if options.device == "cuda" else torch.float32
    model = Llama(sizes).to(options.device, dtype)
    tokens = torch.randint(0, sizes.vocab, (4, length), device=options.device)
    positions = torch.arange(length, device=options.device)
    log: list[Any] = []
    if options.inside.startswith("stator"):
        regions = "off" if options.inside == "stator-flat" else "auto"
        events.subscribe(lambda event: log.append((time.perf_counter(), event)))
        compiled = stator.compile(model, backend=options.backend, mode=options.mode) if options.mode else \
            stator.compile(model, backend=options.backend, options={"regions": regions})
    else:
        if options.inside == "torch-regions":
            for block in model.blocks:
                block.forward = torch.compiler.nested_compile_region(block.forward)
        compiled = torch.compile(model, backend=options.backend, mode=options.mode)

    def train() -> None:
        model.zero_grad(set_to_none=True)
        compiled(tokens, positions).float().square().mean().backward()

    def infer() -> None:
        with torch.no_grad():
            compiled(tokens, positions)

    def capture_seconds() -> float:
        """From the start of the capture to that of the first compilation."""
        begun = next(at for at, event in log if type(event).__name__ == "CaptureStarted")
        return next(at - event.seconds for at, event in log if type(event).__name__ == "BackendCompiled") - begun

    def cut() -> Any:
        return [event.pieces for _, event in log if type(event).__name__ == "GraphCut"]

    return train if options.training else infer, model, {"capture": capture_seconds, "cut": cut}


def cpu_seconds() -> float:
    """Of this process and of those it has waited for."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def report(options: argparse.Namespace, found: dict[str, list[dict[str, Any]]]) -> None:
    kind = "training" if options.training else "inference"
    print(f"{options.layers} layers of width {options.width}, {kind}, {options.backend}, {options.device}; medians of "
          f"{options.rounds}")
    names = ["capture", *STAGES]
    print(f"{'':14} {'first s':>8} {'CPU s':>8} {'ratio':>6} {'CPU':>6} {'later ms':>9} {'ratio':>6} {'peak MiB':>9}  "
          + " ".join([f"{name:>12}" for name in names]) + "     rest")
    base = found.get("torch")
    for side, results in found.items():
        mine = {key: statistics.median([result[key] for result in results])
                for key in ("first", "cpu", "later", "peak")}
        theirs = mine if base is None else \
            {key: statistics.median([result[key] for result in base]) for key in ("first", "cpu", "later")}
        stages = {name: statistics.median([result["stages"][name] for result in results]) for name in names}
        rest = mine["first"] - sum(stages.values())
        print(f"{side:14} {mine['first']:8.2f} {mine['cpu']:8.2f} {mine['first'] / theirs['first']:6.2f} "
              f"{mine['cpu'] / theirs['cpu']:6.2f} {mine['later'] * 1e3:9.2f} {mine['later'] / theirs['later']:6.2f} "
              f"{mine['peak'] / 2**20:9.0f}  " + " ".join([f"{stages[name]:12.2f}" for name in names])
              + f" {rest:8.2f}")
        if results[0]["pieces"]:
            print(f"{'':14} pieces (nodes, uses): {results[0]['pieces']}")


if __name__ == "__main__":
    main()
