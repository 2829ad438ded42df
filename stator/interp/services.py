"""Name the class of the interpreter in annotations.

`vm.py` imports the whole room, so no other module of it can import `VM` at run time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stator.interp.vm import VM
else:
    VM = Any
