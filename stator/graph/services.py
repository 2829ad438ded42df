"""Name the class of the recorder in annotations.

`recorder.py` imports most of the room, so those modules cannot import `Recorder` at run time.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stator.graph.record.recorder import Recorder
else:
    Recorder = Any
