"""torch's functions that save compiled code, in two processes.   python -m tests.artifacts.torch_functions save|load FOLDER"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

import stator
from stator import events

CALLS: list[str] = []
SCALE = 3


def scaled(x: torch.Tensor, shift: float = 1.0) -> torch.Tensor:
    CALLS.append("scaled")
    return x.sin() * SCALE + shift


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).relu()


class Writer(torch.nn.Linear):
    def save(self, path: str) -> str:
        return f"the model's own: {path}"


def save(folder: Path) -> dict[str, Any]:
    torch.manual_seed(1)
    x, model = torch.ones(3), Layer()
    ahead = torch.compile(scaled, backend="aot_eager", fullgraph=True).aot_compile(((x,), {"shift": 2.0}))
    calls = list(CALLS)
    ahead.save_compiled_function(str(folder / "scaled"))
    compiled = torch.compile(model, backend="aot_eager")
    compiled(x)
    function = torch.compile(scaled, backend="eager")
    function(x)
    with torch.enable_grad():  # the backward pass is compiled ahead of time, too
        bound = torch.compile(model.forward, backend="aot_eager", fullgraph=True).aot_compile(((x,), {}))
    bundle, info = torch.compiler.save_cache_artifacts()
    (folder / "bundle").write_bytes(bundle)
    return {"calls of aot_compile": calls, "result": ahead(x, shift=2.0).tolist(), "kinds": sorted(info.artifacts),
            "in the bundle": len(info.stator_artifacts), "bound": bound.save_compiled_function(str(folder / "bound")),
            "method": compiled.save(str(folder / "layer")),
            "own method": torch.compile(Writer(2, 2)).save("here")}


def load(folder: Path) -> dict[str, Any]:
    torch.manual_seed(2)
    x, model = torch.ones(3), Layer()
    found: dict[str, Any] = {}
    with events.record() as log:
        with open(folder / "scaled", "rb") as file:
            ahead = torch.compiler.load_compiled_function(file)
        found["ahead"] = ahead(x, shift=2.0).tolist()
        try:
            ahead(torch.ones(4), shift=2.0)
        except Exception as error:
            found["refused"] = f"{type(error).__name__}: {error}"
        with open(folder / "bound", "rb") as file, torch.enable_grad():
            bound = torch.compiler.load_compiled_function(file)
            bound(model, x).sum().backward()
        found["gradient"], model.linear.weight.grad = model.linear.weight.grad.tolist(), None
        with torch.enable_grad():
            model(x).sum().backward()
        found["eager gradient"] = model.linear.weight.grad.tolist()
        method = stator.load(str(folder / "layer"), model, backend="aot_eager")
        found["method"] = torch.equal(method(x), model(x))
        stator.reset()  # else the next compile() of the model would share the entry of the first
        torch.compiler.load_cache_artifacts((folder / "bundle").read_bytes())
        found["bundled"] = torch.equal(torch.compile(model, backend="aot_eager")(x), model(x)), \
            torch.compile(scaled, backend="eager")(x).tolist()
    kinds = [type(event).__name__ for event in log]
    found["captures"], found["loaded"] = kinds.count("CaptureStarted"), kinds.count("EntryLoaded")
    global SCALE
    SCALE = 4
    with events.record() as log:
        found["after a change"] = torch.compile(scaled, backend="eager")(x).tolist()
    found["recaptured"] = [type(event).__name__ for event in log].count("CaptureStarted")
    return found


if __name__ == "__main__":
    stator.install()
    stator.config.artifact_key_file = str(Path(sys.argv[2]) / "key")
    with torch.no_grad():  # a backward pass would be compiled when it first runs
        print(json.dumps((save if sys.argv[1] == "save" else load)(Path(sys.argv[2]))))
