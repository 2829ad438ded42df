"""Cut graphs where buckets of a reducer end.   DDP with two buckets  ->  the first node of each bucket, marked

In: a captured graph, the parameters behind its inputs, and the DDP module whose forward runs.  Out: a mark on each node
at which a compiler's next piece begins (backends/pieces.py).  A compiled graph has one backward pass, which hands all
gradients over at its end: cut there, each bucket is reduced while the passes of those before it still run.

The order is that of gradients: from the last node to the first.  A parameter belongs to its first use, whose gradient
comes last.  Marks change no value, so nothing is guarded; calls outside DDP are cut alike.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch import fx

if TYPE_CHECKING:
    from torch.nn.parallel import DistributedDataParallel

BUCKET = "bucket"  # the key of the mark in the meta of a node: the number of the bucket that begins there
_running: weakref.WeakKeyDictionary[fx.Graph, weakref.ref[DistributedDataParallel]] = weakref.WeakKeyDictionary()


def note_forward(graph: fx.Graph, module: DistributedDataParallel) -> None:
    """The forward pass of a DDP module is traced into a graph."""
    _running[graph] = weakref.ref(module)


def running_module(graph: fx.Graph) -> DistributedDataParallel | None:
    """The DDP module around a graph: traced with it, or entered natively before."""
    if not dist.is_available():
        return None
    noted = _running.get(graph)
    return noted() if noted is not None else torch.nn.parallel.DistributedDataParallel._active_ddp_module


def mark_buckets(graph: fx.Graph, inputs: Sequence[torch.Tensor]) -> None:
    """`inputs`: tensors behind the placeholders, in order."""
    module = running_module(graph)
    places = graph.find_nodes(op="placeholder")
    if module is None or module._use_python_reducer or module._delay_all_reduce_all_params \
            or len(places) != len(inputs) or any(node.target is torch.autograd.grad for node in graph.nodes):
        return
    reduced = {id(each) for each in module._module_parameters if each.requires_grad}
    sizes: dict[fx.Node, int] = {}  # by the first node that reads a parameter
    order = {node: number for number, node in enumerate(graph.nodes)}
    for place, tensor in zip(places, inputs, strict=True):
        if id(tensor) in reduced and place.users:
            first = min(place.users, key=order.__getitem__)
            sizes[first] = sizes.get(first, 0) + tensor.numel() * tensor.element_size()
    later: int = module.bucket_bytes_cap
    limit: int = dist._DEFAULT_FIRST_BUCKET_BYTES if module.bucket_bytes_cap_default else later  # type: ignore
    filled = number = 0
    users = sorted(sizes, key=order.__getitem__, reverse=True)
    for node in users[:-1]:  # the rest is the last bucket
        filled += sizes[node]
        if filled >= limit:
            number, filled, limit = number + 1, 0, later
            node.meta[BUCKET] = number
