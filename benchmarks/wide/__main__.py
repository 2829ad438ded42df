"""Capture many models of the installed libraries, and compare each with eager and with torch._dynamo.

    python -m benchmarks.wide --count 40 --out wide.jsonl                  the next 40 models, in eval
    python -m benchmarks.wide --count 20 --mode train --side both          both sides in turn, with the time of each
    python -m benchmarks.wide --names hf:BertModel,timm:resnet18
    python -m benchmarks.wide --summary wide.jsonl

Each model runs in a process of its own, with a time limit. A record says how it went: "whole" (one graph, no break),
"breaks", "no graph", "differs", "error" (an exception that eager does not raise), "crash", "timeout", or "not built".
Models that are in the output file already are not run again.
"""

from __future__ import annotations

import argparse
import collections
import copy
import gc
import json
import logging
import os
import signal
import statistics
import time
import warnings
from pathlib import Path
from typing import Any

import torch
import torch._dynamo

import stator
from benchmarks.wide.building import NotBuilt, build
from benchmarks.wide.catalogue import LIBRARIES, names
from tests.models.results import tensors_of
from tests.models.torchvision_ops import declare_missing

Record = dict[str, Any]
SIDES = ("stator", "torch._dynamo")


def step(call: Any, model: torch.nn.Module, inputs: Any, train: bool) -> list[torch.Tensor]:
    """Outputs of one call and, in train mode, the gradients of all parameters; the same random numbers each time."""
    torch.manual_seed(1234)
    with torch.set_grad_enabled(train):
        outputs = tensors_of(call(**copy.deepcopy(inputs)))
    if train:
        losses = [t.float().pow(2).mean() for t in outputs if t.requires_grad]
        if losses:
            torch.stack(losses).sum().backward()
        outputs = outputs + [p.grad for p in model.parameters() if p.grad is not None]
    return [t.detach().clone() for t in outputs]


def differ(found: list[torch.Tensor], expected: list[torch.Tensor]) -> str:
    """Differences as text; empty where there are none."""
    if len(found) != len(expected):
        return f"{len(found)} tensors instead of {len(expected)}"
    for i, (one, other) in enumerate(zip(found, expected, strict=True)):
        try:
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        except AssertionError as difference:
            return f"tensor {i}: {str(difference)[:200]}"
    return ""


def measure(name: str, side: str, train: bool) -> Record:
    """One model on one side; eager comes first."""
    try:
        model, inputs = build(name)
    except NotBuilt as why:
        return {"status": "not built", "why": str(why)[:200]}
    model.train(train)
    fresh = [copy.deepcopy(model) for _ in range(3)]
    try:
        expected = step(fresh[0], fresh[0], inputs, train)
        if differ(step(fresh[1], fresh[1], inputs, train), expected):
            return {"status": "not built", "why": "eager itself gives different results"}
    except Exception as error:
        return {"status": "not built", "why": f"eager: {type(error).__name__}: {error}"[:200]}
    graphs: list[int] = []
    runs: list[float] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: Any) -> Any:
        graphs.append(sum(node.op.startswith("call_") for node in graph.graph.nodes))
        forward = graph.forward

        def timed(*args: Any) -> Any:
            began = time.process_time()
            found = forward(*args)
            runs.append(time.process_time() - began)
            return found

        return timed

    subject = fresh[2]
    compiled: Any = stator.compile(subject, backend=backend) if side == "stator" \
        else torch.compile(subject, backend=backend)
    gc.collect()  # or a full collection falls into the first call of one side, and not of the other
    start = time.process_time()
    try:
        found = step(compiled, subject, inputs, train)
    except Exception as error:
        return {"status": "error", "why": f"{type(error).__name__}: {error}"[:300]}
    seconds = time.process_time() - start
    record: Record = {"seconds": round(seconds, 3), "run": round(sum(runs), 3), "graphs": len(graphs)}
    difference = differ(found, expected)
    if difference:
        return {**record, "status": "differs", "why": difference}
    return {**record, **breaks_of(side, model, inputs, train, graphs)}


def warm_up() -> None:
    """Load what a first compilation loads, before the processes part."""
    with torch.no_grad():
        for compiled in (stator.compile(_other, backend="eager"), torch.compile(_other, backend="eager")):
            compiled(torch.ones(3, 3))
    stator.reset()
    torch._dynamo.reset()


def _other(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x) + 1


def breaks_of(side: str, model: Any, inputs: Any, train: bool, graphs: list[int]) -> Record:
    """Why it is not whole, if it is not: the implementation's own reasons."""
    with torch.set_grad_enabled(train):
        if side == "stator":
            reasons = stator.explain(model)(**copy.deepcopy(inputs)).break_reasons
            found = [(r.code, r.reason.partition("\n")[0][:140],
                      f"{Path(r.user_stack[-1].filename).name}:{r.user_stack[-1].lineno}" if r.user_stack else "")
                     for r in reasons]
        else:
            counted = torch._dynamo.utils.counters["graph_break"]
            found = [("", str(reason).strip().partition("\n")[0][:140], "") for reason in counted]
    if not graphs:
        return {"status": "no graph", "breaks": found}
    return {"status": "breaks" if found or len(graphs) > 1 else "whole", "breaks": found}


def in_child(name: str, side: str, train: bool, limit: float) -> Record:
    """`measure` in a forked process."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reader)
        try:
            record = measure(name, side, train)
        except BaseException as error:  # whatever it is, it costs one record
            record = {"status": "error", "why": f"{type(error).__name__}: {error}"[:300]}
        os.write(writer, json.dumps(record).encode())
        os._exit(0)
    os.close(writer)
    signal.signal(signal.SIGALRM, lambda *_: os.kill(child, signal.SIGKILL))
    signal.setitimer(signal.ITIMER_REAL, limit)
    started = time.monotonic()
    with os.fdopen(reader, "rb") as pipe:
        text = pipe.read()
    signal.setitimer(signal.ITIMER_REAL, 0)
    _, status = os.waitpid(child, 0)
    if text:
        return json.loads(text)
    return {"status": "timeout" if time.monotonic() - started >= limit else "crash", "why": f"wait status {status}"}


def summarise(records: list[Record]) -> str:
    """Counts for each side and mode, then the causes, the most frequent first."""
    lines = []
    for key in sorted({(r["side"], r["mode"]) for r in records}):
        mine = [r for r in records if (r["side"], r["mode"]) == key]
        counts = collections.Counter(r["status"] for r in mine)
        broken = sum(len(r.get("breaks", ())) for r in mine)
        lines.append(f"{key[0]:14} {key[1]:5} {len(mine):4} models: "
                     + ", ".join(f"{count} {status}" for status, count in counts.most_common())
                     + f"; {broken} breaks")
        causes: dict[str, list[str]] = collections.defaultdict(list)
        for record in mine:
            if record["status"] not in ("breaks", "no graph", "whole", "not built"):
                causes[f"{record['status']}: {record.get('why', '')[:120]}"].append(record["name"])
            for code, cause, place in record.get("breaks", ()):
                causes[f"{code} {cause}"].append(f"{record['name']} ({place})")
        for cause, where in sorted(causes.items(), key=lambda item: -len(item[1])):
            lines.append(f"    {len(where):3}  {cause}  {', '.join(where[:2])}")
    return "\n".join(lines + ratios(records))


def ratios(records: list[Record]) -> list[str]:
    """CPU time of torch._dynamo over Stator's, where both have run: the slowest rows, and the median."""
    lines: list[str] = []
    for kind, of in (("first call", lambda r: r["seconds"]), ("capture (first call less its graphs)",
                                                              lambda r: r["seconds"] - r.get("run", 0.0))):
        seconds: dict[tuple[str, str], dict[str, float]] = collections.defaultdict(dict)
        for record in records:
            if "seconds" in record:
                seconds[record["name"], record["mode"]][record["side"]] = max(of(record), 1e-3)
        both = {key: times for key, times in seconds.items() if len(times) > 1}
        if both:
            found = sorted((times["torch._dynamo"] / times["stator"], *key) for key, times in both.items())
            total = sum(each["torch._dynamo"] for each in both.values()) / sum(each["stator"] for each in both.values())
            lines += [f"{kind}, torch._dynamo / stator: median {statistics.median(r for r, _, _ in found):.1f}x, total "
                      f"{total:.1f}x of {len(found)}, the least:",
                      *[f"    {ratio:5.1f}x  {name} ({mode})" for ratio, name, mode in found[:10]]]
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--libraries", default=",".join(LIBRARIES))
    parser.add_argument("--names", default="", help="these models, and no others")
    parser.add_argument("--count", type=int, default=40, help="how many more models to run")
    parser.add_argument("--side", default="stator", choices=(*SIDES, "both"))
    parser.add_argument("--mode", default="eval", choices=("eval", "train"))
    parser.add_argument("--limit", type=float, default=60.0, help="seconds for one model")
    parser.add_argument("--out", type=Path, default=None)
    parser.add_argument("--built-in", type=Path, default=None, help="only models that this file could build")
    parser.add_argument("--summary", type=Path, default=None, help="print what a file holds, and stop")
    options = parser.parse_args()
    if options.summary is not None:
        print(summarise(read(options.summary)))
        return
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    torch.set_num_threads(1)
    declare_missing()
    wanted = options.names.split(",") if options.names else names(options.libraries.split(","))
    if options.built_in is not None:
        wanted = [r["name"] for r in read(options.built_in) if r["status"] != "not built" and r["side"] == "stator"]
    known = read(options.out) if options.out is not None and options.out.exists() else []
    sides = SIDES if options.side == "both" else (options.side,)
    done = {(r["name"], r["side"]) for r in known if r["mode"] == options.mode}
    records = known
    warm_up()
    for name in [name for name in wanted if (name, sides[-1]) not in done][:options.count]:
        for side in sides:
            record = {"name": name, "side": side, "mode": options.mode,
                      **in_child(name, side, options.mode == "train", options.limit)}
            records.append(record)
            print(f"{name:40} {side:13} {record['status']:9} {record.get('seconds', ''):>6} "
                  f"{record.get('why', '')[:70]}", flush=True)
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(record) + "\n")
            if record["status"] == "not built":
                break
    print(summarise(records))


def read(path: Path) -> list[Record]:
    return [json.loads(line) for line in path.read_text().splitlines()]


if __name__ == "__main__":
    main()
