"""Text and values of one moment, for effects that are replayed later.   print(x); x.add_(1)  ->  the x of that moment

In: values of the trace that something outside will look at after the graph has run (print, logging, f-strings).
Out: `DeferredText` and `Moment`, which the residual program turns into real text and real tensors.  A tensor that an
operation may have changed since is copied inside the graph, at that very place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import _tensor_str
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.host.value_kinds import is_a
from stator.interp.arrays.native_numpy import run_on_arrays
from stator.interp.frame import Raised
from stator.interp.rule_registry import LISTED, refuse, rule
from stator.interp.services import VM
from stator.interp.torch_function_protocol import refuse_patched
from stator.shapes.symbolic_values import UNREAD, DeferredText, Formatted, is_unbacked, python_type, unread
from stator.shapes.varying_values import HELD_TYPES
from stator.source import CallOf, Pinned

_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
_CONSTANTS = (str, int, float, complex, bool, bytes, type(None), type, torch.dtype, torch.device)


@dataclass(frozen=True, eq=False)
class Moment:
    """A tensor as it is now."""

    fake: Any
    node: Any  # what the graph calls it at that moment
    position: Any  # the last node of the graph at that moment
    changes: int  # in-place operations recorded so far
    suffix: str  # what its text ends with because of autograd
    parameter: bool


def moment_of(vm: VM, fake: FakeTensor) -> Moment:
    if vm.modes.active:
        raise Break("SB005", "the text of a tensor while a mode sees every operation")
    recorder = vm.recorder
    if id(fake) in recorder.classes:
        raise Break("SB003", "the text of a tensor subclass")
    node = recorder.node_of(fake)  # made now, so that a copy can be made here
    with torch._C.DisableTorchFunction():
        suffix = history_of(fake)
        tracker = vm.heap.by_standin.get(id(fake))
        if suffix.startswith("grad_fn") and tracker is not None and not fake._version:  # the fake's own node is made up
            suffix = history_of(tracker.original)
            vm.heap.guard(CallOf(Pinned(history_of), (tracker.source,)), Kind.FRESH_CALL, suffix)
    is_parameter = getattr(fake, "_is_param", False)
    return Moment(fake, node, recorder.graph._root.prev, recorder.log.changes, suffix, is_parameter)


def history_of(tensor: torch.Tensor) -> str:
    """The end of the text of a tensor, which depends on autograd."""
    if tensor.grad_fn is not None:
        return f"grad_fn=<{type(tensor.grad_fn).__name__}>"
    return "requires_grad=True" if tensor.requires_grad else ""


def is_unknown(value: object) -> bool:
    """Whether the text of a value is known only after the graph has run."""
    return type(value) is FakeTensor or is_unbacked(value)


def text_piece(vm: VM, value: Any, conversion: str = "", spec: object = "") -> DeferredText:
    """`format(value, spec)`, or str/repr/ascii of it, of a value that is not known yet."""
    cls = type(value)
    if cls is DeferredText and not conversion and spec == "":
        return value
    if cls is FakeTensor:
        for name in ("__format__", "__str__", "__repr__"):
            refuse_patched(vm, name)
    refuse_changing(value)
    if type(spec) is str:
        check_spec(value, conversion, spec)
    held = moment_of(vm, value) if cls is FakeTensor else value
    return DeferredText((Formatted(held, conversion, spec),))


def refuse_changing(value: object) -> None:
    """The text of an unread container would be made when it has changed already."""
    if type(value) in UNREAD and type(value) not in HELD_TYPES and python_type(value) not in (str, bytes, range):
        raise unread(value, "the text")


def check_spec(value: Any, conversion: str, spec: str) -> None:
    """A format that fails, fails now: whether it does depends on the type alone."""
    if not spec:
        return
    try:
        if conversion or type(value) is DeferredText:
            format("", spec)
        elif type(value) is not FakeTensor:
            format(python_type(value)(), spec)
        elif value.dim():
            raise TypeError("unsupported format string passed to FakeTensor.__format__")  # see Raised
        else:
            format(float() if value.is_floating_point() else 0, spec)
    except (TypeError, ValueError) as error:
        raise Raised(error) from None


def joined(parts: list[Any]) -> str | DeferredText:
    """Texts put together; a str where all are known."""
    if all(type(part) is str for part in parts):
        return "".join(parts)
    flat: list[Any] = []
    for part in parts:
        flat += part.parts if type(part) is DeferredText else (part,)
    return DeferredText(tuple(flat))


def text_of(vm: VM, value: object) -> Any:
    """`str(value)`; tensors in plain containers are shown as they are now."""
    if is_unknown(value):
        return value if type(value) is DeferredText else text_piece(vm, value, "s")
    cls = type(value)
    if cls in (list, tuple, dict) and _holds_unknown(vm, value, 0):
        return joined(_container_parts(vm, value))
    return vm.call_sync(str, (value,))


def _repr_of(vm: VM, value: object) -> Any:
    if is_unknown(value):
        return text_piece(vm, value, "r")
    if type(value) in (list, tuple, dict) and _holds_unknown(vm, value, 0):
        return joined(_container_parts(vm, value))
    return vm.call_sync(repr, (value,))


def _holds_unknown(vm: VM, value: Any, depth: int) -> bool:
    cls = type(value)
    if cls not in (list, tuple, dict):
        return is_unknown(value)
    if depth > 20:
        raise Break("SB003", "the text of a container that holds itself, or of one nested 20 deep")
    vm.heap.expose_deep(value)
    items = list(value.values()) if cls is dict else list(value)
    return any(_holds_unknown(vm, item, depth + 1) for item in items)


def _container_parts(vm: VM, value: Any) -> list[Any]:
    """The pieces that list.__repr__ and its like would put together."""
    opening, closing = _BRACKETS[type(value)]
    parts: list[Any] = [opening]
    items = list(value.items()) if type(value) is dict else list(value)
    for number, item in enumerate(items):
        if number:
            parts.append(", ")
        if type(value) is dict:
            parts += [_repr_of(vm, item[0]), ": ", _repr_of(vm, item[1])]
        else:
            parts.append(_repr_of(vm, item))
    if type(value) is tuple and len(items) == 1:
        parts.append(",")
    return [*parts, closing]


def frozen(vm: VM, value: Any, what: str) -> Any:
    """A value as it is now, whatever becomes of it: constants, tensors, and plain containers of them."""
    cls = type(value)
    if cls is FakeTensor:
        return moment_of(vm, value)
    if cls is DeferredText or is_unbacked(value) or is_a(value, _CONSTANTS):
        refuse_changing(value)
        return value
    if cls is torch.Size and all(type(extent) is int for extent in value):
        return value
    if cls in (list, tuple, dict):
        vm.heap.expose_deep(value)
        if cls is dict:
            return {frozen(vm, key, what): frozen(vm, item, what) for key, item in value.items()}
        return cls([frozen(vm, item, what) for item in value])
    raise Break("SB015", f"{what} with a {cls.__name__}, which may have changed by the time it is shown")


def text_of_array(vm: VM, function: Callable[..., Any], array: numpy.ndarray) -> str:
    """numpy's own text, under the print options of now."""
    vm.heap.guard(CallOf(Pinned(print_options)), Kind.FRESH_CALL, print_options())
    return run_on_arrays(vm, function, (array,))


def print_options() -> str:
    """A pure reader for guards: how numpy shows arrays."""
    return repr(sorted(numpy.get_printoptions().items(), key=str))


@rule(str, repr)
def _text(vm: VM, callee: Any, /, *args: Any, **kwargs: Any) -> Any:
    if len(args) == 1 and not kwargs and type(args[0]) is FakeTensor:
        return text_piece(vm, args[0], "s" if callee is str else "r")
    if len(args) == 1 and type(args[0]) is numpy.ndarray:
        return text_of_array(vm, callee, args[0])
    return LISTED


# C code asks for text at once (`"%s" % x`, `"{}".format(x)`).
refuse(torch.Tensor.__repr__, torch.Tensor.__format__, _tensor_str._str, code="SB003", detail="the text of a tensor")
