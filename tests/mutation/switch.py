"""Which fault of the core is on.

In: the number of a fault (core_faults.py).  Out: `stator._core` of this process has it, if it was built with faults
(faulty_core.py); the core that is shipped has none, and no such number.
"""

from __future__ import annotations

import ctypes

from stator import _core


def has_faults() -> bool:
    return hasattr(ctypes.CDLL(_core.__file__), "stator_fault")


def turn_on(number: int) -> None:
    """From now on the core of this process has the fault with this number; 0: none."""
    ctypes.c_int.in_dll(ctypes.CDLL(_core.__file__), "stator_fault").value = number
