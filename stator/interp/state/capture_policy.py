"""How to capture.   settings of the call site, regions of the program  ->  one object that rules read"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from stator.host.mechanism import Mechanism
from stator.host.suspended_patches import patched_slots
from stator.strategy import Strategy


@dataclass(slots=True, eq=False)
class CapturePolicy(Mechanism):
    """Choices of the settings and of earlier traces; the sets belong to the call site."""

    strict: bool = False  # whether what would do no harm here, but is wrong, raises
    capture_control_flow: bool = False  # branches on data become operations of the graph where they can
    effects_break: bool = False  # print and its like break instead of being replayed
    error_policy: bool | None = None  # of the innermost error_on_graph_break region; None: there is none
    compiling_shown: bool = False  # torch.compiler.is_compiling() returned True
    turned_off: set[Strategy] = field(default_factory=set)  # ways of capturing that break instead (see CallSite)
    why_off: Mapping[Strategy, str] = field(default_factory=dict)
    not_rebuilt: set[type] = field(default_factory=set)  # C types whose values no residual can make (see CallSite)

    def fingerprint(self) -> Any:
        return self.error_policy

    def clear(self) -> None:
        pass


@dataclass(slots=True, eq=False)
class ModeState(Mechanism):
    """The protocol of `__torch_function__`: modes, where it is off, and slots of Tensor that were replaced."""

    active: list[Any] = field(default_factory=list)  # the program's TorchFunctionModes that are on, innermost last
    at_start: int = 0
    functions_off: int = 0  # 1: the handlers of classes are not asked; 2: those of modes neither
    functions_off_at_start: int = 0
    functions_off_before: list[tuple[Any, int]] = field(default_factory=list)  # contexts that turn it off, entered
    indexes_stay_tensors: bool = False  # inside the functions of an attention, whose positions are tensors
    index_modes: list[Any] = field(default_factory=list)  # of torch's that ask for just that
    patched: Any = field(default_factory=patched_slots)  # special methods of Tensor that are not torch's own, by name
