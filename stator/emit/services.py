"""Name the class that rebuilds values in annotations.

`rebuild/values.py` imports most of the room, so those modules cannot import `Rebuilder` at run time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stator.emit.rebuild.values import Rebuilder
else:
    Rebuilder = Any
