"""First result of a second process.   python -m benchmarks.restart [llama16 bert12:eval] [eval train] [--device cuda]

In: a model, Inductor, and caches that a first process has filled.  Out: for each model a JSON line (all of them in the
file of --json): seconds from imports done and model built to the first result (with its backward pass where it trains),
wall clock and CPU, of Stator and of torch.compile, each in new processes of one run; what Stator traced and compiled,
from its events; and, from a process of its own under a profiler, calls of functions of tracer and compilers, and which
of their modules were imported at all.  The process ends with 1 if Stator traced or compiled something at a restart, if
a result differs from eager, or if a ratio is above --at-most.  Caches are filled by --jobs processes at once, each of
which is profiled next; what is measured runs alone, and is printed as it comes.  Cases that do not fit into --seconds
are left out.

`plain-llama16` and `plain-vit12` need no library beyond torch; they are the defaults where transformers is missing.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.turns import turn

ROOT = Path(__file__).resolve().parent.parent
MODELS = ("llama16", "bert12", "plain-llama16", "plain-vit12")
WAYS = ("eval", "train")
SIDES = ("stator", "torch")
COMPILERS = ("/stator/interp/", "/stator/library/", "/stator/heap/", "/stator/graph/record/", "/stator/backends/compil",
             "/torch/_dynamo/", "/torch/_functorch/_aot_autograd/", "/torch/_inductor/", "/triton/", "/sympy/")
RUNTIME = ("/stator/heap/raw_access.py", "/stator/heap/pure_readers.py", "/torch/_inductor/runtime/",
           "/triton/runtime/", "/triton/backends/nvidia/driver.py", "/triton/_utils.py", "/triton/knobs.py")
MODULES = ("stator.interp.machine", "stator.capture.miss", "torch._dynamo.symbolic_convert",
           "torch._functorch._aot_autograd.graph_compile", "torch._inductor.compile_fx", "torch._inductor.scheduler",
           "torch._inductor.codegen.cpp", "torch._inductor.codegen.triton", "triton.compiler.compiler", "sympy")


def built(name: str) -> tuple[Any, tuple[Any, ...]]:
    import torch

    if name in ("llama16", "bert12"):
        from benchmarks import models

        return models.llama(16) if name == "llama16" else models.bert()
    from benchmarks.gpu_models import Llama, LlamaSizes, ViT

    torch.manual_seed(0)
    if name == "plain-vit12":
        return ViT(64, 12, 4, 32, 8), (torch.randn(2, 3, 32, 32),)
    sizes = LlamaSizes(dim=64, layers=16, heads=4, kv_heads=2, hidden=128, vocab=384, length=32)
    return Llama(sizes), (torch.randint(0, sizes.vocab, (2, 16)), torch.arange(16))


def measure(side: str, name: str, way: str, device: str, folder: str, profiled: str = "") -> None:
    """One process: build, call, print a JSON line."""
    import torch

    torch.set_num_threads(1)
    model, given = built(name)
    model = model.to(device).train(way == "train")
    args = tuple([each.to(device) for each in given])
    log: list[Any] = []
    path = os.path.join(folder, f"{name}.{way}")
    if side == "stator":
        import stator
        from stator import events

        stator.config.artifact_key_file = os.path.join(folder, "key")
    warm_up(torch.device(device))
    called: Counter[str] = Counter()
    before = set(sys.modules)
    if profiled:
        sys.setprofile(counting(called))
    began, cpu = time.perf_counter(), time.process_time()
    if side == "stator":
        with events.record() as log:
            compiled = stator.load(path, model) if os.path.exists(path) else stator.compile(model)
            result = run(compiled, args, way)
    else:
        compiled = torch.compile(model)
        result = run(compiled, args, way)
    finish(torch.device(device))
    seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
    sys.setprofile(None)
    after = set(sys.modules)
    kinds = [type(event).__name__ for event in log]
    row: dict[str, Any] = {"side": side, "seconds": round(seconds, 3), "cpu": round(cpu, 3)}
    if side == "stator":
        row |= {"captures": kinds.count("CaptureStarted"), "compilations": kinds.count("BackendCompiled"),
                "loaded": kinds.count("EntryLoaded")}
        if not os.path.exists(path):
            row["saved"] = stator.save(compiled, path)
        row["why"] = stator.why_not_cached(compiled)
        if not any(type(each) is torch.nn.Dropout and each.p for each in model.modules()) or way == "eval":
            expected = run(model, args, way)
            row["difference"] = float((result.detach() - expected.detach()).abs().max())
    if profiled:
        row = {"calls of tracer and compilers": sum(called.values()), "most": called.most_common(5),
               "their modules": [name for name in MODULES if name in after - before],
               "imported before": [name for name in MODULES if name in before]}
    print(json.dumps(row))


def counting(called: Counter[str]) -> Callable[..., None]:
    """A profiler that counts functions of tracer and compilers by file and name, except while a module is imported."""
    imports = 0

    def profile(frame: Any, event: str, _: object) -> None:
        nonlocal imports
        code = frame.f_code
        if event in ("call", "return") and code.co_name == "<module>":
            imports += 1 if event == "call" else -1
        elif event == "call" and not imports and any(each in code.co_filename for each in COMPILERS) \
                and not any(each in code.co_filename for each in RUNTIME):
            place = code.co_filename.split("site-packages/")[-1].removeprefix(str(ROOT))
            called[f"{place}: {code.co_qualname}"] += 1
    return profile


def run(compiled: Any, args: tuple[Any, ...], way: str) -> Any:
    import torch

    with torch.set_grad_enabled(way == "train"):
        result = compiled(*args)
        result = result if isinstance(result, torch.Tensor) else result[0]
        if way == "train":
            result.sum().backward()
    return result


def warm_up(device: Any) -> None:
    """Start what every process on a device pays for, whoever compiles: its context, its library of products."""
    import torch

    (torch.ones(8, 8, device=device) @ torch.ones(8, 8, device=device)).sum().item()
    finish(device)


def finish(device: Any) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def child(seconds: float, folder: str, *command: str) -> dict[str, Any]:
    """The line of one process; Inductor's caches belong to one side of one case."""
    side, name, way, device, *profiled = command
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1",
                   "TORCHINDUCTOR_CACHE_DIR": os.path.join(folder, "inductor", f"{side}-{name}-{way}")}
    environment.pop("TRITON_CACHE_DIR", None)  # it belongs to Inductor's folder
    arguments = ["child", side, name, way, device, folder, *profiled]
    try:
        done = subprocess.run([sys.executable, "-m", "benchmarks.restart", *arguments], cwd=ROOT, env=environment,
                              capture_output=True, text=True, check=False, timeout=seconds)
    except subprocess.TimeoutExpired as error:
        return {"side": side, "error": f"more than {seconds:g} s", "output": str(error.stderr)[-600:]}
    if done.returncode:
        print(done.stderr[-3000:], file=sys.stderr, flush=True)
        return {"side": side, "error": done.returncode, "output": done.stderr[-600:]}
    return dict(json.loads(done.stdout.splitlines()[-1]))


Child = Callable[..., dict[str, Any]]


def filled(child: Child, side: str, name: str, way: str, device: str) -> dict[str, Any]:
    """Fill the caches of one side; Stator's are used once more, under a profiler."""
    row = child(side, name, way, device)
    return row if side != "stator" or "error" in row else {**row, "profile": child(side, name, way, device, "profiled")}


def compared(child: Child, name: str, way: str, device: str, rounds: int, first: dict[str, Any], turns: str
             ) -> dict[str, Any]:
    """One model, whose caches both sides have filled: they start again in turns."""
    found: dict[str, Any] = {"model": name, "way": way, "device": device, "first": first}
    rows: dict[str, list[dict[str, Any]]] = {side: [] for side in SIDES}
    if any("error" in row for row in first.values()):
        return found
    for _ in range(rounds):
        for side in SIDES:
            with turn(turns):
                rows[side].append(child(side, name, way, device))
    if not any("error" in row for row in [*rows["stator"], *rows["torch"]]):
        ours, theirs = (min(rows[side], key=lambda row: row["cpu"]) for side in SIDES)
        fastest = [min(row["seconds"] for row in rows[side]) for side in SIDES]
        found |= {"stator": ours, "torch": theirs, "ratio": round(fastest[0] / fastest[1], 3),
                  "ratio of CPU": round(ours["cpu"] / theirs["cpu"], 3), "profile": first["stator"].pop("profile")}
    return found


def problems_of(found: dict[str, Any], at_most: float) -> list[str]:
    """Claims about a restart that do not hold."""
    name = f"{found['model']} {found['way']}"
    if "profile" not in found or "error" in found["profile"]:
        return [f"{name}: a process failed"]
    ours, calls = found["stator"], found["profile"]["calls of tracer and compilers"]
    counts = {"captures": ours["captures"], "compilations": ours["compilations"], "calls of compilers": calls}
    problems = [f"{name}: {count} {what}" for what, count in counts.items() if count]
    if ours.get("difference", 0.0) > 1e-3:
        problems.append(f"{name}: the result differs by {ours['difference']}")
    return problems + [f"{name}: {what} {found[what]}" for what in ("ratio", "ratio of CPU") if found[what] > at_most]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("which", nargs="*", help=f"of {', '.join([*MODELS, *WAYS])}, or MODEL:WAY")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--jobs", type=int, default=1, help="processes at once that fill caches")
    parser.add_argument("--timeout", type=float, default=900, help="seconds of one process")
    parser.add_argument("--seconds", type=float, default=1e9, help="for all cases; measurements begin before that")
    parser.add_argument("--turns", default="", help="a file: others that name it do not measure at the same time")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--at-most", type=float, default=0.25, help="of torch.compile's time")
    options = parser.parse_intermixed_args()
    lines: list[dict[str, Any]] = []
    problems: list[str] = []
    end = time.monotonic() + options.seconds
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, ThreadPoolExecutor(options.jobs) as pool:
        run = functools.partial(child, min(options.timeout, options.seconds), folder)
        cases = chosen(options.which)
        filling = [{side: pool.submit(filled, run, side, *case, options.device) for side in SIDES} for case in cases]
        firsts = [{side: each.result() for side, each in sides.items()} for sides in filling]
        print(json.dumps({"first processes": dict(zip(map(" ".join, cases), firsts, strict=True))}), flush=True)
        for case, first in zip(cases, firsts, strict=True):
            if time.monotonic() > end:
                problems.append(f"{' '.join(case)}: not measured in time")
                continue
            lines.append(compared(run, *case, options.device, options.rounds, first, options.turns))
            print(json.dumps(lines[-1]), flush=True)
            problems += problems_of(lines[-1], options.at_most)
            if options.json is not None:
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.write_text(json.dumps(lines, indent=1))
    print("\n".join(problems) or f"{len(lines)} restarts: nothing traced or compiled, at most {options.at_most:g}")
    return bool(problems)


def chosen(which: list[str]) -> list[tuple[str, str]]:
    """Models and ways: pairs as they are given, else all that the words name."""
    pairs = [(name, way) for name, _, way in (each.partition(":") for each in which if ":" in each)]
    known = MODELS[:2] if importlib.util.find_spec("transformers") is not None else MODELS[2:]
    names = [each for each in MODELS if each in which] or known
    ways = [each for each in WAYS if each in which] or WAYS
    return pairs or [(name, way) for name in names for way in ways]


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        measure(*sys.argv[2:])
    else:
        sys.exit(main())
