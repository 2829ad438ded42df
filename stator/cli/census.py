"""Count what is captured.   python -m stator census [--json] [--save FILE] [--against FILE] SCRIPT [args] | MODEL

In: a script, or a model as `module:factory` or `file.py:factory`; the factory gives (model, args[, kwargs]).
Out: graphs, breaks by cause, recompiles, and the share of operators and of time that graphs have.
Exit codes: 0; 2 for a command that is not understood; 3 where the script or model fails.

A model is called until it compiles nothing more, then once under torch's profiler, which tells operators inside graphs
from others. In a script only the operators and the time of graphs are counted.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.autograd.profiler_util import FunctionEvent

import stator
from stator.capture import stages
from stator.cli.recorded_run import Model, Watched, is_model, load_model, watch_script, watched

GRAPH = "stator.graph"
FAILED = 3
WARM_CALLS = 6


@dataclass
class GraphTime:
    """Operators and time of the graphs that run; as a backend, it runs them as they are."""

    operators: int = 0
    seconds: float = 0.0

    def __call__(self, module: torch.fx.GraphModule, inputs: object) -> Callable[..., Any]:
        return self.timed(module.forward, _operators(module))

    def timed(self, graph: Callable[..., Any], count: int) -> Callable[..., Any]:
        def run(*args: object) -> object:
            began = time.perf_counter()
            with torch.profiler.record_function(GRAPH):
                result = graph(*args)
            self.operators += count
            self.seconds += time.perf_counter() - began
            return result

        return run

    @contextlib.contextmanager
    def of_all(self) -> Iterator[None]:
        """Measure every graph that is compiled in the block, whichever its backend is."""
        compile_once = stages.compile_once

        def compile_timed(module: torch.fx.GraphModule, *rest: Any) -> Callable[..., object]:
            count = _operators(module)
            return self.timed(compile_once(module, *rest), count)

        stages.compile_once = compile_timed  # type: ignore[assignment]
        try:
            yield
        finally:
            stages.compile_once = compile_once


def _operators(module: torch.fx.GraphModule) -> int:
    return sum(node.op.startswith("call_") for node in module.graph.nodes)


def census_of(data: dict[str, Any]) -> dict[str, Any]:
    """The counts of a run, in an order that does not depend on times."""
    captures = data["captures"]
    return {"version": data["version"], "title": data["title"], "error": data["error"],
            "graphs": sum(bool(each["graph_nodes"]) for each in captures),
            "operations": sum(each["operations"] for each in captures),
            "guards": sum(each["guard_count"] for each in captures),
            "capture_seconds": sum(each["seconds"] for each in captures),
            "breaks": sorted([{name: each[name] for name in ("code", "title", "cause", "remedy", "file", "line",
                                                             "count", "passages", "added_us")}
                              | {"function": each["stack"][-1]["name"] if each["stack"] else ""}
                              for each in data["breaks"]], key=lambda each: (each["code"], each["cause"])),
            "recompiles": [{"name": each["name"], "cause": each["entries"][0]["cause"], "file": each["file"],
                            "line": each["line"], "seconds": each["seconds"]} for each in data["recompiles"]],
            "eager": [{"name": each["name"], "why": each["why"].partition("\n")[0], "count": each["count"],
                       "timed": each["timed"], "seconds": each["seconds"]} for each in data["eager"]]}


def run_model(model: Model, backend: GraphTime) -> tuple[Watched, dict[str, float]]:
    """Call a model until nothing is compiled, then measure one call."""
    with watched() as found:
        compiled = stator.compile(model.fn, backend=backend)
        for _ in range(WARM_CALLS):
            seen = len(found.recorded.rows)
            model.call(compiled)
            if len(found.recorded.rows) == seen:
                break
        return found, shares(lambda: model.call(compiled))
    return found, {}


def shares(call: Callable[[], object]) -> dict[str, float]:
    """Operators of one call and their time, inside graphs and in all."""
    with torch.autograd.profiler.profile(use_kineto=False) as profile:
        call()
    inside = all_of = 0
    time_inside = time_of_all = 0.0
    for event in profile.function_events or ():
        parents = ancestors(event)
        if not event.name.startswith("aten::") or any(name.startswith("aten::") for name in parents):
            continue
        captured = GRAPH in parents
        all_of, inside = all_of + 1, inside + captured
        time_of_all, time_inside = time_of_all + event.cpu_time_total, time_inside + captured * event.cpu_time_total
    return {"operators": all_of, "captured_operators": inside, "operator_share": inside / all_of if all_of else 1.0,
            "time_share": time_inside / time_of_all if time_of_all else 1.0}


def ancestors(event: FunctionEvent) -> list[str]:
    found = []
    while event.cpu_parent is not None:
        event = event.cpu_parent
        found.append(event.name)
    return found


def take(words: Sequence[str]) -> dict[str, Any]:
    """The census of a script or of a model."""
    backend = GraphTime()
    if is_model(words[0]) and not Path(words[0]).exists():
        done, shared = run_model(load_model(words[0]), backend)
        found = census_of(done.data(words[0])) | shared
    else:
        with backend.of_all():
            done = watch_script(list(words), "eager")
        found = census_of(done.data(" ".join(words)))
        run = max(done.recorded.seconds - found["capture_seconds"], 1e-9)
        found |= {"captured_operators": backend.operators, "graph_seconds": backend.seconds,
                  "time_share": min(backend.seconds / run, 1.0)}
    if isinstance(done.error, SystemExit) and done.error.code in (None, 0):
        found["error"] = ""
    return found


def text_of(found: dict[str, Any]) -> str:
    """The census for people."""
    lines = [f"{found['graphs']} graphs, {found['operations']} operations, {found['guards']} guards, captured in "
             f"{found['capture_seconds']:.2f} s; {len(found['breaks'])} breaking lines, "
             f"{len(found['recompiles'])} recompiles, {sum(each['count'] for each in found['eager'])} eager calls"]
    if "operator_share" in found:
        lines.append(f"captured: {found['captured_operators']} of {found['operators']} operators "
                     f"({found['operator_share']:.0%}), {found['time_share']:.0%} of their time")
    elif "graph_seconds" in found:
        lines.append(f"captured: {found['captured_operators']} operators ran in graphs, {found['graph_seconds']:.2f} "
                     f"s, {found['time_share']:.0%} of the time beside captures")
    for each in found["breaks"]:
        price = f", {each['passages']} passages at {each['added_us']:.1f} us" if each["passages"] else ""
        lines.append(f"break {each['code']} {each['cause']}, at {each['file']}:{each['line']} in {each['function']}"
                     f"{price}\n  remedy: {each['remedy']}")
    again: dict[tuple[object, ...], list[float]] = {}
    for each in found["recompiles"]:
        key = each["name"], each["cause"], each["file"], each["line"]
        again.setdefault(key, []).append(each["seconds"])
    lines += [f"recompile {name}: {cause}, at {file}:{line}, {sum(took) * 1e3:.1f} ms"
              f"{f' in {len(took)} times' if len(took) > 1 else ''}"
              for (name, cause, file, line), took in again.items()]
    lines += [f"eager {each['name']}: {each['why']}, {each['count']} calls"
              + (f", {each['seconds'] / each['timed'] * 1e6:.1f} us each" if each["timed"] else "")
              for each in found["eager"]]
    return "\n".join([*lines, *([f"failed: {found['error']}"] if found["error"] else [])])


def compared(old: dict[str, Any], new: dict[str, Any]) -> str:
    """Counts before and after."""
    rows = [(name, len(old[name]), len(new[name])) for name in ("breaks", "recompiles", "eager")]
    rows = [*((name, old[name], new[name]) for name in ("graphs", "operations", "guards")), *rows]
    lines = [f"{name}: {before} -> {after}" for name, before, after in rows if before != after]
    return "\n".join(lines) or "no count differs"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m stator census", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--save", help="store the census in a file")
    parser.add_argument("--against", help="a stored census to compare with")
    parser.add_argument("subject", help="script.py or module:factory")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help="arguments of the script")
    chosen = parser.parse_args(arguments)
    try:
        found = take([chosen.subject, *chosen.rest])
    except Exception as error:  # of the factory, or of loading it
        print(f"stator census: {type(error).__name__}: {error}", file=sys.stderr)
        sys.exit(FAILED)
    print(json.dumps(found, indent=1) if chosen.json else text_of(found))
    if chosen.against:
        print(compared(json.loads(Path(chosen.against).read_text(encoding="utf-8")), found), file=sys.stderr)
    if chosen.save:
        Path(chosen.save).write_text(json.dumps(found, indent=1), encoding="utf-8")
    sys.exit(FAILED if found["error"] else 0)
