"""A restart that loads no tracer.   python -m tests.artifacts.light_restart save|load FOLDER

In: a module saved to a file, and a function captured with a store.  Out: a JSON line; for `load`, what the hits did:
events, results that differ from eager, and modules of the tracer and of compilers that are loaded behind them.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import stator
from stator import events

SCALE = 3
HEAVY = ("stator.capture.miss", "stator.interp.", "stator.emit.", "stator.library.", "torch._dynamo", "torch._inductor",
         "sympy")


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": torch.relu(self.linear(x)) * SCALE}


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + len(__name__)


def main(what: str, name: str) -> None:
    folder, x = Path(name), torch.ones(2, 4)
    stator.config.artifact_key_file = str(folder / "key")
    stator.config.artifact_dir = str(folder / "store")
    net, path = Net(), str(folder / "net")
    if what == "save":
        compiled = stator.compile(net, backend="eager")
        compiled(x)
        stator.compile(doubled, backend="eager")(x)
        row: dict[str, Any] = {"saved": stator.save(compiled, path)}
    else:
        with events.record() as log:
            first = stator.load(path, net, backend="eager")
            found = first(x)["y"], stator.compile(doubled, backend="eager")(x)
        loaded = [each for each in sys.modules if each.startswith(HEAVY)]
        row = {"events": [type(event).__name__ for event in log], "loaded": loaded,
               "equal": torch.equal(found[0], net(x)["y"]) and torch.equal(found[1], doubled(x))}
        stator.reset()
        row["behind reset"] = len(stator.api.entry_of(first).entries())
        # A call that misses loads the tracer, which goes on with the entries that are there.
        again = stator.load(path, net, backend="eager")
        row["then"] = [torch.equal(again(each)["y"], net(each)["y"]) for each in (x, torch.ones(3, 4), x)]
        row["entries"] = len(stator.api.site_of(again).compiled.entries())
    print(json.dumps(row))


if __name__ == "__main__":
    main(*sys.argv[1:])
