"""Restarts of the models of a zoo.   save in one process, load in a fresh one, compare with eager

    python -m tests.artifacts.zoo save FOLDER --zoo ../shared/zoo [--backend eager] [--train] [--names A,B]
    python -m tests.artifacts.zoo load FOLDER --zoo ../shared/zoo [--backend eager] [--train] [--names A,B]

In: a folder with `zoo.py` and `dev.txt`.  Out: a JSON line for each model.  Each model has a process of its own, forked
after the libraries are loaded; `load` is another interpreter, with other hashes and other weights.  With --train, a call
is the forward and the backward pass of a model in train mode.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import time
from pathlib import Path
from typing import Any

import numpy
import torch

import stator
from stator import events
from tests.comparison import CLOSE, EXACT, Snapshotter, differences, tensors_in
from tests.zoo_rows import rows


def called(model: Any, inputs: dict[str, Any], train: bool) -> Any:
    """The results of a call, and gradients of all parameters in training."""
    torch.manual_seed(7)
    numpy.random.seed(7)  # masks of audio models
    random.seed(7)
    with torch.set_grad_enabled(train):
        results = model(**copy.deepcopy(inputs))
    learning = [each for each in tensors_in(results) if each.requires_grad] if train else []
    if learning:
        sum(each.float().sum() for each in learning).backward()  # type: ignore[union-attr]
    grads = {name: each.grad for name, each in model.named_parameters()} if train else {}
    model.zero_grad()
    return results, grads


def save(case: Any, path: str, backend: str, train: bool) -> dict[str, Any]:
    compiled = stator.compile(case.model, backend=backend)
    called(compiled, case.inputs, train)
    with events.record() as log:
        count = stator.save(compiled, path)
    return {"entries": count, "left out": [event.why for event in log if isinstance(event, events.NotCached)],
            "bytes": os.path.getsize(path) if os.path.exists(path) else 0}


def load(case: Any, path: str, backend: str, train: bool) -> dict[str, Any]:
    checks = EXACT if backend == "eager" else CLOSE
    expected = Snapshotter(__name__).take(called(copy.deepcopy(case.model), case.inputs, train), "call")
    with events.record() as log:
        compiled = stator.load(path, case.model, backend=backend)
        started = time.process_time()
        found = called(compiled, case.inputs, train)
        seconds = time.process_time() - started
    kinds = [type(event).__name__ for event in log]
    differing = differences(expected, Snapshotter(__name__).take(found, "call"), "call", checks.tolerance)
    differing = [each for each in differing if "._dynamo_" not in each]  # marks that models set in eager mode alone
    return {"differences": differing[:3], "captures": kinds.count("CaptureStarted"),
            "compilations": kinds.count("BackendCompiled"), "loaded": kinds.count("EntryLoaded"),
            "why": stator.why_not_cached(compiled), "seconds": round(seconds, 3)}


def row_of(zoo: Any, name: str, options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(1 if options.what == "save" else 2)
    case = zoo.build(name)
    case.model.train(options.train)
    work = save if options.what == "save" else load
    return work(case, str(options.folder / name.replace(":", "_")), options.backend, options.train)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("save", "load"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("--zoo", type=Path, required=True)
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--train", action="store_true")
    parser.add_argument("--names", default="")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    stator.config.artifact_key_file = str(options.folder / "key")
    good = count = 0
    for row in rows(options.zoo, options.names, lambda zoo, name: row_of(zoo, name, options)):
        count += 1
        good += (row.get("entries", 0) > 0 and not row["left out"] if options.what == "save" else
                 row.get("loaded", 0) > 0 and not (row["differences"] or row["captures"] or row["compilations"]))
        print(json.dumps(row), flush=True)
    print(f"{good} of {count} models {'stored whole' if options.what == 'save' else 'loaded, equal, nothing captured'}")


if __name__ == "__main__":
    main()
