"""Write back the stack of TorchFunctionModes.   _push_on_torch_function_stack(m)  ->  leave_modes(0, m)

In: modes of the program that are on at the end of a trace.  Out: one statement, where they are not those of its start.
"""

from __future__ import annotations

from stator.emit.rebuild.values import Rebuilder
from stator.graph.state.suspended_modes import leave_modes
from stator.interp.calls.function_mode_stack import is_changed
from stator.interp.mechanisms import ModeState


def write_mode_stack(build: Rebuilder, modes: ModeState, statements: list[str]) -> None:
    if is_changed(build.vm):
        left = [build.value(mode) for mode in modes.active[modes.kept:]]
        call = build.writer.constant(leave_modes, "leave_modes")
        statements.append(f"{call}({', '.join([str(modes.at_start - modes.kept), *left])})")
