"""Numbers of handles, which the process counts.   x.register_hook(f)  ->  RemovableHandle.next_id grows by one"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch.utils.hooks import RemovableHandle


@contextlib.contextmanager
def handle_numbers_kept() -> Iterator[None]:
    """Register hooks that are none of the program: its own handles get the numbers that they get in eager."""
    before = RemovableHandle.next_id
    try:
        yield
    finally:
        RemovableHandle.next_id = before
