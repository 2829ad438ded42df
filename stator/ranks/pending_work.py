"""The handle of a collective that a graph has begun.   dist.all_reduce(x, async_op=True)  ->  PendingWork

In: tensors that collectives are computing, and the tensors that get their results.  Out: an ordinary Python object with
the methods of torch.distributed.Work.  The interpreter runs its methods as it runs those of any class, and a graph
break hands it on.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import torch
from torch import Tensor


def await_tensor(tensor: Tensor) -> Tensor:
    """Wait for the collective that computes a tensor; nothing happens where none does."""
    awaited: Tensor = torch.ops._c10d_functional.wait_tensor.default(tensor)
    return awaited


def await_in_place(tensor: Tensor) -> None:
    """Wait for the collective that writes to a tensor, before anybody reads it."""
    await_tensor(tensor)


def is_under_way(tensor: Tensor) -> bool:
    """Whether a tensor stands for the result of a functional collective that nobody has awaited."""
    module = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and type(tensor) is module.AsyncCollectiveTensor


class PendingWork:
    """`waited`: tensors to be awaited in place; `results`: a computed tensor and the tensors that get its parts."""

    def __init__(self, waited: Sequence[Tensor], results: Sequence[tuple[Tensor, Sequence[Tensor]]],
                 outputs: Sequence[Tensor]) -> None:
        self.waited, self.results, self.outputs = list(waited), list(results), list(outputs)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return torch.distributed.Work  # for isinstance()

    def wait(self, timeout: object = None) -> bool:
        while self.waited:
            await_in_place(self.waited.pop(0))
        while self.results:
            result, written = self.results.pop(0)
            result = await_tensor(result)
            for each, part in zip(written, result.chunk(len(written)) if len(written) > 1 else [result], strict=True):
                each.copy_(part)
        return True

    def synchronize(self) -> None:
        self.wait()

    def is_completed(self) -> bool:
        return self.wait()

    def is_success(self) -> bool:
        return self.wait()

    def exception(self) -> None:
        self.wait()

    def result(self) -> list[Tensor]:
        self.wait()
        return self.outputs

    def get_future(self) -> torch.futures.Future[list[Tensor]]:
        future: torch.futures.Future[list[Tensor]] = torch.futures.Future()
        future.set_result(self.result())
        return future
