"""Record the torch calls that C code makes.   sum(tensors)  ->  a node for each addition"""

from __future__ import annotations

from typing import Any

from torch.overrides import TorchFunctionMode

from stator import _hook
from stator.breaks import Break
from stator.graph.services import Recorder


class RecordingMode(TorchFunctionMode):
    """Records the torch calls that C code makes (`sum(tensors)`, an operator inside a C loop)."""

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_function__(self, func: Any, types: object, args: Any = (), *rest: Any) -> Any:
        recorder = self.recorder
        if recorder.region.asking:
            return recorder.services.ask(func, types, args, rest)
        calls, kwargs = recorder.scope.calls, rest[0] if rest else None
        token = _hook.pause()
        try:
            self.recorder.services.expose(args)
            if kwargs:
                self.recorder.services.expose(kwargs)
            if recorder.classes and recorder.services.concerned(args, kwargs):
                return recorder.services.ask(func, types, args, rest)
            recorder.services.refuse_patched(func, args)
            result = recorder.call(func, args, kwargs or {})
            if recorder.region.function_modes and recorder.scope.calls != calls:
                raise Break("SB005", "C code that uses tensors while a mode sees every operation")
            return result
        except Break as stop:
            recorder.services.note_stop(stop)  # C code might swallow it
            raise
        finally:
            _hook.resume(token)
