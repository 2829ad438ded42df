"""Name the classes of the interpreter in annotations.

`vm.py` imports the whole room, so no other module of it can import `VM` at run time; `machine.py` imports part of it.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stator.interp.machine import Machine
    from stator.interp.vm import VM
else:
    Machine = VM = Any
