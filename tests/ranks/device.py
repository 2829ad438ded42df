"""Measure ranks on an accelerator.   python -m tests.ranks.device [--device cuda] [--small] [--parts one,tensor,video]

A part that fails is a line with its error, and the next one runs.  Compilers find nothing that the other side has compiled.

In: one device.  Out, beside torch.compile:

- one      programs with collectives and wrappers in a world of one rank (NCCL, or gloo on the CPU): equal to eager or not
- tensor   a tensor-parallel block of 8 ranks on a fake group: milliseconds of a call, forward and backward
- video    a video transformer whose attention is divided by all_to_all (sequence parallelism): frames per second
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import statistics
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy.printing  # noqa: F401  # torch reads it as an attribute of sympy
import torch
import torch._inductor.utils
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

import stator
from benchmarks.turns import turn
from stator import events

Call = Callable[[], object]
RANKS = 8  # of the fake group


def begin(backend: str, size: int = 1) -> None:
    if backend == "fake":
        dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=size)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def finish(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def seconds(calls: dict[str, Call], device: str, rounds: int, turns: str) -> dict[str, float]:
    """Median seconds of a call, in rounds that alternate."""
    with turn(turns):
        return _seconds(calls, device, rounds)


def _seconds(calls: dict[str, Call], device: str, rounds: int) -> dict[str, float]:
    found: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            finish(device)
            begun = time.perf_counter()
            for _ in range(3):
                call()
            finish(device)
            found[name].append((time.perf_counter() - begun) / 3)
    return {name: statistics.median(each) for name, each in found.items()}


def by_torch(fn: Any, backend: str) -> tuple[Any, Callable[[], int]]:
    import torch._dynamo
    from torch._dynamo.utils import counters
    torch._dynamo.reset()
    counters.clear()
    return torch.compile(fn, backend=backend), lambda: sum(counters["graph_break"].values())


def by_stator(fn: Any, backend: str) -> tuple[Any, Callable[[], int]]:
    found: list[events.Event] = []
    events.subscribe(lambda event: found.append(event) if isinstance(event, events.GraphBreak) else None)
    stator.reset()
    return stator.compile(fn, backend=backend), lambda: len(found)


SIDES = {"stator": by_stator, "torch": by_torch}


@dataclass
class Side:
    """A model, compiled by one side, or not."""

    call: Call
    first: float  # seconds
    breaks: Callable[[], int]
    result: object


def sides(make: Callable[[], nn.Module], call: Callable[[Any], object], backend: str, device: str) -> dict[str, Side]:
    """The first call of each side, with caches that nobody has filled; a side that fails is printed and left out."""
    fresh = getattr(torch._inductor.utils, "fresh_cache", None) or torch._inductor.utils.fresh_inductor_cache
    found: dict[str, Side] = {}
    for name, compile in {"eager": lambda fn, backend: (fn, lambda: 0), **SIDES}.items():
        try:
            torch.manual_seed(0)
            compiled, breaks = compile(make(), backend)  # type: ignore[operator]
            finish(device)
            with fresh():
                begun = time.perf_counter()
                result = call(compiled)
                finish(device)
                seconds = time.perf_counter() - begun
            found[name] = Side(functools.partial(call, compiled), seconds, breaks, result)
        except Exception as error:
            print(f"{name}, {backend}: {type(error).__name__}: {str(error)[:300]}\n{traceback.format_exc()[-1500:]}",
                  flush=True)
    return found


# ---------------------------------------------------------------------- a world of one rank


def reductions(x: torch.Tensor) -> list[torch.Tensor]:
    out = torch.empty_like(x)
    work = dist.all_reduce(x, async_op=True)
    y = x.new_ones(3) * 2
    work.wait()  # type: ignore[union-attr]
    dist.all_gather_into_tensor(out, x * 2)
    part = torch.empty_like(out)
    dist.reduce_scatter_tensor(part, out.sin())
    dist.broadcast(part, 0)
    exchanged = torch.empty_like(part)
    dist.all_to_all_single(exchanged, part)
    return [exchanged + 1, x, y * dist.get_world_size()]


def mlp(device: str) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 64)).to(device)


def normalised(device: str) -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.Linear(64, 64)).to(device)
    return nn.SyncBatchNorm.convert_sync_batchnorm(model) if device == "cuda" else model


def wrapped(make: Callable[[str], nn.Module], wrap: Callable[[nn.Module], nn.Module]) -> Callable[[str], Any]:
    """Losses and gradients of a wrapped module."""
    def build(device: str) -> Any:
        model = wrap(make(device))

        def call(compiled: Any, x: torch.Tensor) -> list[torch.Tensor]:
            loss = compiled(x).float().square().mean()
            loss.backward()
            grads = [getattr(p.grad, "_local_tensor", p.grad).clone() for p in model.parameters()]
            model.zero_grad()
            return [loss.detach(), *grads]
        return model, call
    return build


def plain(fn: Any) -> Callable[[str], Any]:
    return lambda device: (fn, lambda compiled, x: compiled(x.clone()))


def in_buckets(model: nn.Module) -> nn.Module:
    dist._DEFAULT_FIRST_BUCKET_BYTES = 4096  # type: ignore[attr-defined]
    return DistributedDataParallel(model, bucket_cap_mb=0.01)


PROGRAMS: dict[str, Callable[[str], Any]] = {
    "reductions": plain(reductions),
    "ddp": wrapped(mlp, lambda m: DistributedDataParallel(m)),
    "ddp_buckets": wrapped(mlp, in_buckets),
    "fsdp2": wrapped(mlp, lambda m: fully_shard(m)),
    "sync_batch_norm": wrapped(normalised, lambda m: DistributedDataParallel(m)),
}


def run_one(device: str, backends: list[str]) -> None:
    begin("nccl" if device == "cuda" else "gloo")
    torch.manual_seed(1)
    xs = [torch.randn(64, 64, device=device) for _ in range(2)]
    print("| program | backend | stator | torch.compile |\n|---|---|---|---|")
    for name, build in PROGRAMS.items():
        model, call = build(device)
        wanted = [call(model, x) for x in xs]
        for backend in backends:
            row = []
            for compile in SIDES.values():
                model, call = build(device)
                compiled, breaks = compile(model, backend)
                try:
                    found = [call(compiled, x) for x in xs]
                    same = all(torch.allclose(a, b, atol=1e-3, rtol=1e-3) for one, two in zip(wanted, found, strict=True)
                               for a, b in zip(one, two, strict=True))
                    row.append(f"{'equal' if same else 'DIFFERENT'}, {breaks()} breaks")
                except Exception as error:
                    row.append(f"{type(error).__name__}: {str(error)[:80]}".replace("\n", " "))
            print(f"| {name} | {backend} | {' | '.join(row)} |", flush=True)
    dist.destroy_process_group()


# ---------------------------------------------------------------------- tensor parallelism on a fake group


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        heads = [part(y).unflatten(-1, (-1, self.size)).transpose(1, 2) for part in (self.q, self.k, self.v)]
        x = x + self.out(F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.after(x))))


def run_tensor(device: str, backends: list[str], rounds: int, small: bool, turns: str) -> None:
    width, heads, layers, length = (64, 8, 2, 16) if small else (2048, 16, 8, 1024)
    begin("fake", RANKS)
    mesh = init_device_mesh(device, (RANKS,))
    plan = {**dict.fromkeys(("q", "k", "v", "up"), ColwiseParallel()), **dict.fromkeys(("out", "down"), RowwiseParallel())}
    x = torch.randn(2, length, width, device=device, dtype=torch.float32 if small else torch.bfloat16)

    def make() -> nn.Module:
        model = nn.Sequential(*[Block(width, heads) for _ in range(layers)]).to(device, x.dtype)
        for block in model:
            parallelize_module(block, mesh, plan)
        return model

    for backend in backends:
        found = sides(make, lambda compiled: compiled(x).float().square().mean().backward(), backend, device)
        times = seconds({name: each.call for name, each in found.items()}, device, rounds, turns)
        print(f"tensor parallel, {RANKS} ranks of a fake group, {layers} blocks, {backend}, forward and backward: "
              + "; ".join(f"{name} {times[name] * 1e3:.2f} ms (first call {each.first:.1f} s, {each.breaks()} breaks)"
                          for name, each in found.items()), flush=True)
    dist.destroy_process_group()


# ---------------------------------------------------------------------- a video transformer


class VideoBlock(nn.Module):
    """Attention over all frames, divided over ranks by heads: all_to_all before it and behind it."""

    def __init__(self, width: int, heads: int, overlapped: bool) -> None:
        super().__init__()
        self.heads, self.overlapped = heads, overlapped
        self.norms = nn.ModuleList(nn.LayerNorm(width, elementwise_affine=False) for _ in range(2))
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.modulation = nn.Linear(width, 6 * width)

    def exchange(self, parts: list[torch.Tensor]) -> list[torch.Tensor]:
        """Each rank gets its heads of the whole sequence."""
        size = dist.get_world_size()
        outputs, works = [], []
        for part in parts:
            given = part.unflatten(0, (size, -1)).contiguous()
            outputs.append(torch.empty_like(given))
            works.append(dist.all_to_all_single(outputs[-1], given, async_op=self.overlapped))
        if self.overlapped:
            for work in works:
                work.wait()
        return [output.flatten(0, 1) for output in outputs]

    def forward(self, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
        shift, scale, gate, shift_up, scale_up, gate_up = self.modulation(F.silu(condition)).chunk(6, -1)
        y = self.norms[0](x) * (1 + scale) + shift
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(0, 1) for part in self.qkv(y).chunk(3, -1))
        q, k, v = self.exchange([q, k, v])
        mixed = F.scaled_dot_product_attention(q[None], k[None], v[None])[0]
        [mixed] = self.exchange([mixed])
        x = x + gate * self.out(mixed.transpose(0, 1).flatten(1))
        y = self.norms[1](x) * (1 + scale_up) + shift_up
        return x + gate_up * self.down(F.gelu(self.up(y), approximate="tanh"))


class VideoTransformer(nn.Module):
    def __init__(self, width: int, heads: int, layers: int, overlapped: bool) -> None:
        super().__init__()
        self.inside = nn.Linear(64, width)
        self.time = nn.Sequential(nn.Linear(256, width), nn.SiLU(), nn.Linear(width, width))
        self.blocks = nn.ModuleList(VideoBlock(width, heads, overlapped) for _ in range(layers))
        self.outside = nn.Linear(width, 64)

    def forward(self, patches: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        waves = torch.exp(torch.arange(128, device=step.device) * -0.07) * step
        condition = self.time(torch.cat([waves.sin(), waves.cos()]).to(patches.dtype))
        x = self.inside(patches)
        for block in self.blocks:
            x = block(x, condition)
        return self.outside(x)  # type: ignore[no-any-return]


def run_video(device: str, backends: list[str], rounds: int, small: bool, turns: str) -> None:
    width, heads, layers, frames, patches = (64, 4, 2, 4, 16) if small else (1536, 12, 12, 8, 400)
    begin("nccl" if device == "cuda" else "gloo")
    dtype = torch.float32 if small else torch.bfloat16
    x, step = torch.randn(frames * patches, 64, device=device, dtype=dtype), torch.tensor(500.0, device=device)

    def call(compiled: Any) -> torch.Tensor:
        with torch.no_grad():
            return compiled(x, step)  # type: ignore[no-any-return]

    for backend in backends:
        for overlapped in (False, True):
            found = sides(lambda: VideoTransformer(width, heads, layers, overlapped).to(device, dtype), call, backend,  # noqa: B023
                          device)
            times = seconds({name: each.call for name, each in found.items()}, device, rounds, turns)
            results = {name: each.result for name, each in found.items()}
            away = {name: float((results[name] - results["eager"]).abs().max()) for name in found}  # type: ignore
            print(f"video transformer, {layers} blocks, {frames} frames, {'async' if overlapped else 'plain'} all_to_all, "
                  f"{backend}: " + "; ".join(
                      f"{name} {frames / times[name]:.1f} frames/s (first call {each.first:.1f} s, {each.breaks()} breaks,"
                      f" {away[name]:.0e} off)" for name, each in found.items()), flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.ranks.device")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--parts", default="one,tensor,video")
    parser.add_argument("--backends", default="inductor")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--turns", default="", help="a file: others that name it do not measure at the same time")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    backends = given.backends.split(",")
    print(json.dumps({"torch": torch.__version__, "device": given.device, "backends": backends}), flush=True)
    if given.device == "cuda":
        torch.cuda.set_device(0)
    parts: dict[str, Callable[[], None]] = {
        "one": lambda: run_one(given.device, list(dict.fromkeys(["eager", *backends]))),
        "tensor": lambda: run_tensor(given.device, backends, given.rounds, given.small, given.turns),
        "video": lambda: run_video(given.device, backends, given.rounds, given.small, given.turns)}
    failed = False
    for part in given.parts.split(","):
        try:
            parts[part]()
        except Exception:
            failed = True
            print(f"{part}: {traceback.format_exc()[-3000:]}", flush=True)
            if dist.is_initialized():
                dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(int(failed))


if __name__ == "__main__":
    main()
