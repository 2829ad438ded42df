"""Compile a graph on one rank.   graphs of equal content on all ranks  ->  one compilation, whose files travel

In: a graph that Inductor compiles, on each rank; every rank has traced it.  Out: the compiled graph on each.  The rank
that comes first claims the content of the graph in the store of the process group, compiles, and publishes what
Inductor has put into its caches; the others wait, fill their caches, and compile, which finds everything there.

A digest decides who waits for whom.  Whether a file fits is decided by Inductor's own keys: a rank whose graph,
versions or hardware differ compiles by itself.  So does one that has waited for `SECONDS`, or whose peer has failed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

import torch
import torch.distributed as dist
from torch import fx

from stator import events
from stator.settings.process_config import config

SECONDS = 600.0
PAUSE = 0.01
LARGEST = 1 << 30  # bytes of one graph
Compiled = TypeVar("Compiled")


class GraphShipped(events.Event):
    """A graph was compiled by another rank; its files came through the store."""

    rank: int
    owner: int
    size: int
    seconds: float


def digest_of(gm: fx.GraphModule, inputs: Sequence[object], settings: str) -> str:
    """The content of a graph, as text that ranks compare."""
    with torch._C.DisableTorchFunction():
        layouts = [(tuple(map(str, each.shape)), tuple(map(str, each.stride())), str(each.dtype), each.device.type,
                    each.requires_grad) if isinstance(each, torch.Tensor) and each.layout is torch.strided
                   else type(each).__name__ for each in inputs]
    text = f"{torch.__version__} {settings} {torch.is_grad_enabled()} {gm.graph} {layouts}"
    return hashlib.sha256(text.encode()).hexdigest()


def compile_on_one_rank(gm: fx.GraphModule, inputs: Sequence[object], settings: str,
                        compile_it: Callable[[], Compiled]) -> Compiled:
    """Call `compile_it`, on other ranks than the first behind its files."""
    if not (config.compile_on_one_rank and dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return compile_it()
    rank = dist.get_rank()
    store = dist.PrefixStore(f"stator/compiled/{digest_of(gm, inputs, settings)}/",
                             dist.distributed_c10d._get_default_store())
    owner = int(store.compare_set("owner", "", str(rank)))
    if owner != rank:
        take(store, rank, owner)
        return compile_it()
    from torch.compiler._cache import CacheArtifactManager  # loads Inductor's caches
    begun, found = time.time(), b""
    try:
        with CacheArtifactManager.with_fresh_cache():
            compiled = compile_it()
            bundle = CacheArtifactManager.serialize()
        found = packed([("", bundle[0] if bundle is not None else b""), *libraries_since(begun)])
    finally:  # where it fails, others find out for themselves
        store.set("files", found if len(found) < LARGEST else b"")
    return compiled


def take(store: dist.Store, rank: int, owner: int) -> None:
    """Wait for the files of the owner, and put them where Inductor looks."""
    begun = time.monotonic()
    while not store.check(["files"]):
        if time.monotonic() > begun + SECONDS:
            return
        time.sleep(PAUSE)
    received = store.get("files")
    for name, content in unpacked(received):
        if not name:
            torch.compiler.load_cache_artifacts(content)
        elif not (path := cache_folder() / name).exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            whole = path.with_suffix(f".{os.getpid()}")
            whole.write_bytes(content)
            whole.replace(path)
    if received:
        events.emit(GraphShipped(rank, owner, len(received), time.monotonic() - begun))


def cache_folder() -> Path:
    from torch._inductor.runtime.cache_dir_utils import cache_dir
    return Path(cache_dir())


def libraries_since(begun: float) -> list[tuple[str, bytes]]:
    """Kernels for the CPU, which no bundle of torch has."""
    folder = cache_folder()
    return [(str(path.relative_to(folder)), path.read_bytes()) for path in folder.glob("*/*.so")
            if path.stat().st_mtime >= begun - 1]


def packed(files: Sequence[tuple[str, bytes]]) -> bytes:
    return b"".join([part for name, content in files for part in (
        len(name.encode()).to_bytes(4, "big"), name.encode(), len(content).to_bytes(8, "big"), content)])


def unpacked(data: bytes) -> list[tuple[str, bytes]]:
    """Names are paths below the folder: one that leaves it is refused."""
    found, place = [], 0
    while place < len(data):
        end = place + 4 + int.from_bytes(data[place:place + 4], "big")
        name, size = data[place + 4:end].decode(), int.from_bytes(data[end:end + 8], "big")
        if name and (Path(name).is_absolute() or ".." in Path(name).parts):
            raise ValueError(f"a file of another rank is called {name!r}")
        found.append((name, data[end + 8:end + 8 + size]))
        place = end + 8 + size
    return found
