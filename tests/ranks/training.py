"""Train a small GPT on two ranks, eagerly and compiled.   python -m tests.ranks.training [--steps 50] [--backend aot_eager]

In: ways to put a model on several ranks (`WAYS`).  Out: for each way the largest difference between the losses of eager
and compiled steps on any rank, and the graphs and breaks of Stator and of torch.compile, counted in the same run.
"""

from __future__ import annotations

import argparse
import datetime
import json
import logging
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel

import stator
from stator import events

ROOT = Path(__file__).parent.parent.parent
WIDTH, HEADS, LAYERS, CONTEXT, WORDS = 32, 4, 2, 16, 50
Compiler = Callable[[nn.Module], nn.Module]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        heads = [part(y).unflatten(-1, (-1, WIDTH // HEADS)).transpose(1, 2) for part in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


class GPT(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))  # type: ignore[no-any-return]


# ---------------------------------------------------------------------- ways


def ddp(model: GPT, compile: Compiler) -> nn.Module:
    """compile(DDP(m)), with several buckets: a small first one, and others of 10 kB."""
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # type: ignore[attr-defined]
    return compile(DistributedDataParallel(model, bucket_cap_mb=0.01))


def inside_ddp(model: GPT, compile: Compiler) -> nn.Module:
    return DistributedDataParallel(compile(model))


def fsdp2(model: GPT, compile: Compiler) -> nn.Module:
    """Compile around sharded blocks."""
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    return compile(model)


def inside_fsdp2(model: GPT, compile: Compiler) -> nn.Module:
    """Compile the blocks, which are sharded."""
    for number, block in enumerate(model.blocks):
        model.blocks[number] = fully_shard(compile(block))
    return fully_shard(model)  # type: ignore[no-any-return]


def compile_blocks(model: GPT, compile: Compiler) -> nn.Module:
    """Compile forward of each sharded block in place."""
    for block in model.blocks:
        block.forward = compile(block.forward)  # type: ignore[arg-type]
        fully_shard(block)
    return fully_shard(model)  # type: ignore[no-any-return]


def tensor_parallel(model: GPT, compile: Compiler) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {**dict.fromkeys(("q", "k", "v", "up"), ColwiseParallel()), **dict.fromkeys(("out", "down"), RowwiseParallel())}
    for block in model.blocks:
        parallelize_module(block, mesh, plan)
    return compile(model)


WAYS = {way.__name__: way for way in (ddp, inside_ddp, fsdp2, inside_fsdp2, compile_blocks, tensor_parallel)}
SAME_DATA = {"tensor_parallel"}  # its ranks hold parts of one model


def losses_of(way: str, compile: Compiler, steps: int) -> list[float]:
    torch.manual_seed(0)
    model = WAYS[way](GPT(), compile)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = torch.Generator().manual_seed(1 if way in SAME_DATA else 1 + dist.get_rank())
    losses = []
    for _ in range(steps):
        ids = torch.randint(WORDS, (4, CONTEXT + 1), generator=batches)
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        optimiser.step()
        optimiser.zero_grad()
        losses.append(loss.item())
    return losses


def compiled_by_torch(way: str, backend: str, steps: int) -> dict[str, Any]:
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    losses = losses_of(way, lambda model: torch.compile(model, backend=backend), steps)  # type: ignore
    return {"losses": losses, "breaks": sum(counters["graph_break"].values()), "graphs": counters["stats"]["unique_graphs"],
            "why": [each[:150] for each in counters["graph_break"]]}


def compiled_by_stator(way: str, backend: str, steps: int) -> dict[str, Any]:
    stator.reset()
    with events.record() as log:
        losses = losses_of(way, lambda model: stator.compile(model, backend=backend), steps)
    breaks = [event for event in log if isinstance(event, events.GraphBreak)]
    graphs = [event for event in log if isinstance(event, events.CaptureFinished) and event.graph is not None]
    return {"losses": losses, "breaks": len(breaks), "graphs": len(graphs), "why": sorted({
        f"{each.code} {each.cause} at {os.path.basename(each.filename or '')}:{each.line}" for each in breaks})}


def on_a_rank(rank: int, folder: str, ways: list[str], backend: str, steps: int) -> None:
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    store = dist.FileStore(f"{folder}/store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=datetime.timedelta(seconds=120))
    for way in ways:
        found: dict[str, Any] = {"way": way, "eager": {"losses": losses_of(way, lambda model: model, steps)}}
        for side, run in (("stator", compiled_by_stator), ("torch", compiled_by_torch)):
            try:
                found[side] = run(way, backend, steps)
            except Exception as error:
                found[side] = {"losses": [], "breaks": 0, "graphs": 0, "why": [f"{type(error).__name__}: {error}"[:300]]}
        with open(f"{folder}/{rank}", "a") as results:
            print(json.dumps(found), file=results)
    dist.barrier()
    os._exit(0)


def difference(one: list[float], two: list[float]) -> float:
    return max((abs(a - b) for a, b in zip(one, two, strict=True)), default=0.0) if len(one) == len(two) else float("inf")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks.training")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--backend", default="aot_eager")
    parser.add_argument("--ways", default=",".join(WAYS))
    parser.add_argument("--why", action="store_true")
    parser.add_argument("--rank", type=int)
    parser.add_argument("--folder")
    given = parser.parse_args()
    if given.rank is not None:
        on_a_rank(given.rank, given.folder, given.ways.split(","), given.backend, given.steps)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "tests.ranks.training", *sys.argv[1:], "--folder", folder]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        children = [subprocess.Popen([*command, "--rank", str(rank)], cwd=ROOT, env=environment) for rank in range(2)]
        try:
            for child in children:
                child.wait(timeout=3000)
        finally:
            for child in children:
                child.kill()
        ranks = [[json.loads(line) for line in Path(folder, str(rank)).read_text().splitlines()] for rank in range(2)]
    print(f"| way | loss, stator - eager | loss, torch - eager | breaks, stator / torch | graphs, stator / torch |  "
          f"({given.steps} steps, {given.backend})\n|---|---|---|---|---|")
    for parts in zip(*ranks, strict=True):
        away = {side: max(difference(part[side]["losses"], part["eager"]["losses"]) for part in parts)
                for side in ("stator", "torch")}
        counts = [" / ".join(str(max(part[side][what] for part in parts)) for side in ("stator", "torch"))
                  for what in ("breaks", "graphs")]
        print(f"| {parts[0]['way']} | {away['stator']:.1e} | {away['torch']:.1e} | " + " | ".join(counts) + " |")
        if given.why:
            for side in ("stator", "torch"):
                print(*[f"    {side}: {each}" for each in parts[0][side]["why"]], sep="\n")


if __name__ == "__main__":
    main()
