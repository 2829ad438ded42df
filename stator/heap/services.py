"""Name the class of the heap in annotations.

`heap.py` imports the whole room, so no other module of it can import `Heap` at run time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stator.heap.heap import Heap
else:
    Heap = Any
