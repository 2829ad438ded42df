"""Save entries in one process, load them in the next.

    python -m tests.artifacts.restart save FOLDER BACKEND [NAMES]   capture, call, save; a JSON line for each program
    python -m tests.artifacts.restart load FOLDER BACKEND [NAMES]   load, call, compare with eager

The second process gives modules other weights. With STATOR_TEST_FAULT, the loaded side is corrupted on purpose.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from torch import nn

import stator
from stator import events
from tests.artifacts.programs import COMPILED, PROGRAMS, weights_of
from tests.comparison import CLOSE, EXACT, compare_worlds, outcomes
from tests.comparison.eager_and_compiled import world_of


def subject_of(name: str, seed: int) -> Any:
    subject = PROGRAMS[name][0]
    return weights_of(subject, seed) if isinstance(subject, nn.Module) else subject


def save(folder: Path, name: str, backend: str) -> dict[str, Any]:
    made: list[Any] = []

    def compiler(fn: Any) -> Any:
        made.append(stator.compile(fn, backend=backend))
        return made[0]

    checks = EXACT if backend == "eager" else CLOSE
    world = world_of(subject_of(name, 1), PROGRAMS[name][1], None)
    list(outcomes(world, compiler, checks))
    with events.record() as log:
        count = stator.save(made[0], str(folder / f"{name}.{backend}"))
    return {"entries": count, "left out": [event.why for event in log if isinstance(event, events.NotCached)]}


def load(folder: Path, name: str, backend: str) -> dict[str, Any]:
    made: list[Any] = []

    def compiler(fn: Any) -> Any:
        made.append(stator.load(str(folder / f"{name}.{backend}"), fn, backend=backend))
        return made[0]

    checks = EXACT if backend == "eager" else CLOSE
    subject = subject_of(name, 2)
    report = compare_worlds(lambda: world_of(subject, PROGRAMS[name][1], None), compiler, checks=checks)
    kinds = [type(event).__name__ for event in report.log]
    return {"differences": report.differences, "captures": kinds.count("CaptureStarted"),
            "compilations": kinds.count("BackendCompiled"), "loaded": kinds.count("EntryLoaded"),
            "why": stator.why_not_cached(made[0])}


def main(what: str, folder: str, backend: str, *names: str) -> None:
    os.makedirs(folder, exist_ok=True)
    stator.config.artifact_key_file = str(Path(folder) / "key")
    for name in names or (PROGRAMS if backend == "eager" else COMPILED):
        row = (save if what == "save" else load)(Path(folder), name, backend)
        print(json.dumps({"name": name, "backend": backend, **row}))


if __name__ == "__main__":
    what, folder, *backends = sys.argv[1:]
    for each in backends:
        main(what, folder, *each.split(":"))
