"""A function of the program's as an object that torch may call later.   pack, a closure of the trace  ->  its real twin

In: a callable that the program hands to torch.  Out: the user's own object, guarded by identity; or, where it was made
inside the captured code of nothing but constants and such objects, another one that is made alike.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind, is_constant
from stator.heap.box import Box
from stator.interp.vm import VM


def outside_callable(vm: VM, what: str, value: object, cells: list[Any] | None = None) -> Any:
    """The user's own function, or one that is made alike; it is called by torch, later, as it is.

    `cells` gets the variables of functions that were made inside, each with the value that it has now.
    """
    tracker = vm.heap.tracker_of(value)
    if tracker is not None:
        vm.heap.guard(tracker.source, Kind.ID, tracker.original)
        return tracker.original
    if type(value) is types.FunctionType and id(value) not in vm.fresh:
        vm.heap.guard(vm.heap.source_of(value), Kind.ID, value)
        return value
    if type(value) is types.MethodType:
        return types.MethodType(*[outside_callable(vm, what, part, cells) for part in (value.__func__, value.__self__)])
    if type(value) is functools.partial:
        held = (value.func, *value.args, *value.keywords.values())
        parts = [outside_callable(vm, what, part, cells) for part in held]
        count = len(value.args) + 1
        return functools.partial(parts[0], *parts[1:count], **dict(zip(value.keywords, parts[count:], strict=True)))
    if type(value) is types.FunctionType and not value.__defaults__ and not value.__kwdefaults__:
        remade = [remade_cell(vm, what, cell, cells) for cell in value.__closure__ or ()]
        return types.FunctionType(value.__code__, value.__globals__, value.__name__, None, tuple(remade))
    raise Break("SB016", f"{what}, made inside the captured code")


def remade_cell(vm: VM, what: str, cell: object, cells: list[Any] | None) -> types.CellType:
    """A variable of a function that was made inside: a constant, or again a function."""
    value = contents(cell)
    if value is cell:
        raise Break("SB016", f"{what}, of a variable that is not set")
    if cells is not None:
        cells.append((cell, value))
    if is_constant(value) or type(value) is types.ModuleType:
        return types.CellType(value)
    return types.CellType(outside_callable(vm, what, value, cells))


def contents(cell: Any) -> Any:
    """What is in a variable; the cell itself where it is not set."""
    try:
        value = cell.cell_contents
    except ValueError:
        return cell
    return value.force() if type(value) is Box else value
