"""Rules for who asks which frames are running.   sys._getframe(1)  ->  a break in a caller that really calls

A compiled function has no frames of the program's.  A frame that asks for itself runs to its end natively.  One that
asks for its caller needs that one natively, too: two frames deep the whole call runs as it is; deeper, the outermost
frame calls natively, from a frame that looks like its own, and what it calls is captured by itself.
"""

from __future__ import annotations

import sys
from typing import Any

from stator.breaks import Break
from stator.interp.rule_registry import rule
from stator.interp.suspend import chain
from stator.interp.vm import VM

WHY = "sys._getframe: frames of the program do not exist in the compiled function"


@rule(sys._getframe)
def _getframe(vm: VM, depth: Any = None, /) -> None:
    below = len(chain(vm, vm.frame)) - 1
    if not below and depth is None:
        raise Break("SB008", WHY)
    if below <= 1:
        raise Break("SB008", WHY, whole_call=True)
    raise Break("SB008", WHY, asks_caller=True, outermost=True)
