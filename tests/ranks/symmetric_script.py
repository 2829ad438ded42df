"""A script of equal ranks.   python -m stator symmetry --ranks 512 tests/ranks/symmetric_script.py"""

from __future__ import annotations

import torch
import torch.distributed as dist


@torch.compile
def step(x: torch.Tensor) -> torch.Tensor:
    dist.all_reduce(x)
    parts = torch.empty(dist.get_world_size() * len(x))
    dist.all_gather_into_tensor(parts, x)
    return parts.sum() + dist.get_rank()


dist.init_process_group("gloo")
for _ in range(2):
    step(torch.ones(4))
