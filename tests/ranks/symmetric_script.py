"""A script of equal ranks.   python -m stator symmetry --ranks 512 tests/ranks/symmetric_script.py"""

from __future__ import annotations

import torch
import torch.distributed as dist


@torch.compile
def step(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    y = x * dist.get_world_size()
    dist.broadcast(y, 0)
    return y.sum() + dist.get_rank()


dist.init_process_group("gloo")
for _ in range(2):
    step(torch.ones(4))
