"""Keep AOTAutograd from marking tensors whose sizes are symbolic.   vars(compiled(x)) is {}, as in eager

Its runtime sets an attribute on results, and on inputs that it saves for backward, so that the next graph of
torch._dynamo has these sizes dynamic. The program sees the attribute; in torch 2.11 it is the one that
`maybe_mark_dynamic` sets, and the next capture would heed and guard it.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

from torch._functorch._aot_autograd.schemas import ViewAndMutationMeta


class _NoMarks(dict[int, set[int]]):
    """Stay empty."""

    def __setitem__(self, place: int, sizes: set[int]) -> None:
        return


@contextlib.contextmanager
def without_size_marks() -> Iterator[None]:
    """Around the compilation of a graph: its runtime marks no tensor."""
    known = ViewAndMutationMeta.__post_init__

    @functools.wraps(known)
    def without_marks(self: Any) -> None:
        known(self)
        self.dynamic_outputs = False
        self.dynamic_saved_tensors_idxs = _NoMarks()

    setattr(ViewAndMutationMeta, "__post_init__", without_marks)
    try:
        yield
    finally:
        setattr(ViewAndMutationMeta, "__post_init__", known)
