"""A program with a break, a recompile and an effect, under `stator.install()`; prints facts of the run as JSON.

    TORCH_LOGS=guards TORCH_TRACE=folder python -m tests.unit.installation.recorded_program
"""

from __future__ import annotations

import json

import torch
import torch._dynamo
from torch._dynamo.callback import on_compile_end, on_compile_start
from torch._dynamo.utils import counters
from torch._guards import CompileContext

import stator

seen: dict[str, list[str]] = {"ids": [], "start": [], "end": []}
counts: list[int] = []


def noting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]):
    seen["ids"].append(str(CompileContext.current_compile_id()))
    return graph.forward


def program(x, n):
    y = x * n
    counts.append(n)
    if y.sum() > 0:
        y = y + 1
    return y.relu()


def main() -> None:
    stator.install()
    on_compile_start(lambda args: seen["start"].append(args.compile_id))
    on_compile_end(lambda args: seen["end"].append(args.compile_id))
    compiled = torch.compile(program, backend=noting)
    for size, n in ((3, 2), (4, 2), (4, 3)):
        compiled(torch.ones(size), n)
    print(json.dumps({**seen, "counters": {name: dict(group) for name, group in counters.items()},
                      "metrics": [str(row.compile_id) for row in torch._dynamo.utils.get_compilation_metrics()]}))


if __name__ == "__main__":
    main()
