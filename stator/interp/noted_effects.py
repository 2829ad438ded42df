"""Effects that the residual replays.   print(x), warnings.warn(m)  ->  a record with the text, the values and the place

In: output of the program, and warnings of C code that the trace runs.  Out: effects in order; a break where user code
would see that they come late.  `Moment` and `DeferredText` are values and text of one moment: a tensor that is changed
later is copied inside the graph.  `numpy.seterr` decides which floating-point errors warn, and is guarded.
"""

from __future__ import annotations

import types
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import torch
from torch import _tensor_str
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break, Strategy
from stator.graph.state.quiet_logging import Heard, warnings_can_raise
from stator.heap.outside_changes import anything_changed, is_changed
from stator.heap.tracker import Box
from stator.host.value_kinds import is_a, mro_of
from stator.interp.arrays.native_numpy import run_on_arrays
from stator.interp.frame import Raised, outward
from stator.interp.graph_errors import may_change_reads
from stator.interp.mechanisms import has_changes
from stator.interp.rule_registry import LISTED, refuse, rule
from stator.interp.services import VM
from stator.interp.torch_function_protocol import refuse_patched
from stator.shapes import symbolic_values
from stator.source import Pinned

_SHOW_WARNING, _SHOW_MESSAGE = getattr(warnings, "_showwarning_orig"), getattr(warnings, "_showwarnmsg_impl")
WARNING_TYPES = frozenset({numpy.ndarray, *numpy.sctypeDict.values()})
_SETTINGS = {"divide by zero": "divide", "overflow": "over", "underflow": "under", "invalid value": "invalid"}
_BRACKETS: dict[type, tuple[str, str]] = {list: ("[", "]"), tuple: ("(", ")"), dict: ("{", "}")}
_CONSTANTS = (str, int, float, complex, bool, bytes, type(None), type, torch.dtype, torch.device)


@dataclass(frozen=True)
class Printed:
    """Text written to a standard stream."""

    stream: str  # "stdout" or "stderr"
    text: Any  # a str, or a DeferredText
    pieces: tuple[Any, ...] = ()  # as print() writes them, where the stream's write() is Python code that can tell
    flush: bool = False


@dataclass(frozen=True)
class Warned:
    """A warning, with the place of the program it points at."""

    message: Any
    category: Any
    filename: str
    line: int
    outward: int  # how many calls outside the compiled function the place is; 0: it is the one above


@dataclass(frozen=True)
class Converted(Warned):
    """Warning of a conversion; torch decides at each call whether it is due. `message` makes such a conversion."""


@dataclass(frozen=True)
class PlainCall:
    """A call that the residual makes, of a library function with plain arguments: warnings.simplefilter, gc.collect."""

    function: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True)
class Logged:
    """A message to a logger, its arguments as they are now, from a place of the program."""

    logger: Any
    level: int
    message: Any
    args: tuple[Any, ...]
    filename: str
    line: int
    function: str
    outward: int = 0  # as above
    extra: Any = None
    exc_info: bool | None = None  # None or False, which a handler can tell apart


def pointed_at(vm: VM, level: int, module: torch.nn.Module) -> tuple[Any, int]:
    """The frame that a stacklevel means, and how many calls outside the trace it is."""
    stack = [frame for frame in vm.stack() if frame.filename != module.__file__]
    level = max(level, 1)
    return (stack[-level], 0) if level <= len(stack) else (stack[0], level - len(stack))


def note(vm: VM, effect: object, watched: object, module: torch.nn.Module | None = None) -> None:
    """Keep an effect for replay; break where user code that runs then (`watched`) sees changes, or changes reads."""
    changed = has_changes(vm) or anything_changed(vm.heap)
    if not changed:  # also of what decides where it goes (a stream, a level), which may change later
        vm.effects.early = len(vm.effects.noted) + 1
    if watched:
        if changed and watched is not True:
            cause = "output through the user's own code, which can see what was changed before"
            raise told_natively("SB015", cause, module)
        if vm.residual.draws:
            raise told_natively("SB015", "output through the user's own code, after a random number was drawn", module)
        vm.effects.watched = True
        if vm.locks.used:
            raise Break("SB018", "output through the user's own code, in a call that takes a lock")
        if watched is not True and may_change_reads(vm, watched):
            raise told_natively("SB015", "output through the user's own code, which may change what was read", module)
    vm.append_output(effect)


def may_change(vm: VM, *deciding: object) -> bool:
    """Whether the call changes what decides how and where output is shown, which the residual writes later."""
    vm.effects.deciding.update({id(each): each for each in deciding})
    return Strategy.LATE_OUTPUT in vm.turned_off or any(is_changed(vm.heap, each) for each in deciding)


def written_in_python(stream: object) -> bool:
    for base in mro_of(type(stream)):
        if "write" in base.__dict__:
            return type(base.__dict__["write"]) is types.FunctionType
    return True


@dataclass(frozen=True)
class PolicySet:
    """The segment leaves this thread under another error_on_graph_break policy than it found."""

    value: bool | None
    setter: Any


def may_break(vm: VM, what: str, module: torch.nn.Module | None = None) -> None:
    """options={"print": "break"}: nothing is replayed later."""
    if vm.policy.effects_break:
        raise told_natively("SB015", f"{what}, and the option 'print' says 'break'", module)


def told_natively(code: str, cause: str, module: torch.nn.Module) -> Break:
    """A break at a function that looks for its caller, outside its own module."""
    return Break(code, cause) if module is None else Break(code, cause, asks_caller=True, leave=module.__file__)


def note_warning(vm: VM, message: object, category: object, level: int = 1, source: object = None,
                 kind: type[Warned] = Warned) -> None:
    """Keep a warning of the program for replay, from the frame that a stacklevel means."""
    if warnings_can_raise():
        raise told_natively("SB013", "a warning while a filter turns warnings into errors", warnings)
    vm.heap.guard_call(warnings_can_raise, False)
    frame, outward = pointed_at(vm, level, warnings)
    if vm.warnings.recordings:
        if source is not None:
            raise Break("SB006", "a warning with a source, while warnings are recorded")
        if vm.warnings.recordings[-1].warned(vm, message, category, frame, outward):
            return note(vm, Warned(message, category, frame.filename, frame.line, outward), False, warnings)
    note_shown(vm, kind(message, category, frame.filename, frame.line, outward))


def note_shown(vm: VM, effect: object) -> None:
    """Keep a warning that is shown as the process shows warnings."""
    if list_of_warnings(vm) is not None:
        raise told_natively("SB015", "a warning that goes to a list which the program can read", warnings)
    scope = vm.heap.scopes.get(id(vars(warnings)))
    if scope is not None and (scope.shadow is not None or "showwarning" in scope.overlay):
        raise told_natively("SB015", "a warning after warnings.showwarning was assigned", warnings)
    readers = warning_readers()
    vm.heap.guard_call(are_warnings_read_by, True, *[Pinned(getattr(each, "__code__", each)) for each in readers])
    note(vm, effect, readers, warnings)


def warning_readers() -> tuple[object, ...]:
    """User code that takes warnings."""
    shown_by = getattr(warnings, "_showwarnmsg_impl")
    return tuple(each for each, own in ((warnings.showwarning, _SHOW_WARNING), (shown_by, _SHOW_MESSAGE))
                 if each is not own and type(each) is not types.BuiltinFunctionType)


def are_warnings_read_by(*codes: object) -> bool:
    """A pure reader for guards."""
    return [id(getattr(each, "__code__", each)) for each in warning_readers()] == list(map(id, codes))


def list_of_warnings(vm: VM) -> list[Any] | None:
    """The list to which warnings go by now, where the program can read it."""
    shown_by = getattr(warnings, "_showwarnmsg_impl")
    log = shown_by.__self__ if type(shown_by) is types.BuiltinFunctionType else None
    return log if type(log) is list and _is_held(vm, log) else None


def _is_held(vm: VM, log: object) -> bool:
    """Whether a list to which warnings are appended was met, or is in a variable of the program."""
    return id(log) in vm.heap.by_original or any(
        type(item) is Box and item.raw is log for frame in outward(vm.frame) for item in (*frame.locals, *frame.stack))


def call_heard(vm: VM, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    vm.hears_numpy = True
    try:
        with Heard() as heard, numpy.errstate(all="warn"):
            result = vm.native(fn, args, kwargs)
    except Raised as raised:  # a filter makes an error of the warning, which the setting may ignore or replace
        if is_a(raised.exc, Warning):
            if setting_for(str(raised.exc), numpy.geterr()) != "warn":
                raise refused(raised.exc) from None
            guard_settings(vm)
        raise
    finally:
        vm.hears_numpy = False
    if heard:
        note_heard(vm, heard)
    return result


def note_heard(vm: VM, heard: list[Any]) -> None:
    """Keep the warnings for replay that numpy's settings let through."""
    settings = numpy.geterr()
    guard_settings(vm)
    for each in heard:
        text = str(each.message)
        setting = setting_for(text, settings)
        if setting == "warn":
            note_warning(vm, text, each.category)
        elif setting != "ignore":
            raise refused(text)


def setting_for(text: str, settings: Any) -> str:
    """Setting of numpy that decides about the warning with this text."""
    return next((settings[name] for start, name in _SETTINGS.items() if text.startswith(start)), "warn")


def refused(text: object) -> Break:
    return Break("SB013", f"numpy.seterr: {text}, which is not only warned of", asks_caller=True)


def guard_settings(vm: VM) -> None:
    vm.heap.guard_call(error_settings, error_settings())


def error_settings() -> tuple[str, ...]:
    """A pure reader for guards: what numpy does about floating-point errors."""
    return tuple(map(str, numpy.geterr().values()))


def note_conversion(vm: VM, value: Any) -> None:
    """float(t) of a tensor that autograd records: torch warns of it, once or always."""
    if torch.is_grad_enabled() and value.requires_grad:
        note_warning(vm, convert_leaf, UserWarning, kind=Converted)


_LEAF, _LIST = torch.zeros((), requires_grad=True), [numpy.zeros(1)]


def convert_leaf() -> None:
    with torch.enable_grad():
        float(_LEAF)


def list_arrays() -> None:
    torch.tensor(_LIST)


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
    if may_change(vm, _tensor_str.PRINT_OPTS):
        raise Break("SB003", "the text of a tensor, where the call changes how output is shown")
    recorder = vm.recorder
    if id(fake) in recorder.classes:
        raise Break("SB003", "the text of a tensor subclass")
    node = recorder.node_of(fake)  # made now, so that a copy can be made here
    with torch._C.DisableTorchFunction():
        suffix = history_of(fake)
        tracker = vm.heap.by_standin.get(id(fake))
        if suffix.startswith("grad_fn") and tracker is not None and not fake._version:  # the fake's own node is made up
            suffix = history_of(tracker.original)
            vm.heap.guard_call(history_of, suffix, tracker.source)
    is_parameter = getattr(fake, "_is_param", False)
    return Moment(fake, node, recorder.graph._root.prev, recorder.log.changes, suffix, is_parameter)


def history_of(tensor: torch.Tensor) -> str:
    """The end of the text of a tensor, which depends on autograd."""
    if tensor.grad_fn is not None:
        return f"grad_fn=<{type(tensor.grad_fn).__name__}>"
    return "requires_grad=True" if tensor.requires_grad else ""


def is_unknown(value: object) -> bool:
    """Whether the text of a value is known only after the graph has run."""
    return type(value) is FakeTensor or symbolic_values.is_unbacked(value)


def text_piece(vm: VM, value: Any, conversion: str = "", spec: object = "") -> symbolic_values.DeferredText:
    """`format(value, spec)`, or str/repr/ascii of it, of a value that is not known yet."""
    cls = type(value)
    if cls is symbolic_values.DeferredText and not conversion and spec == "":
        return value
    if cls is FakeTensor:
        for name in ("__format__", "__str__", "__repr__"):
            refuse_patched(vm, name)
    refuse_changing(value)
    if type(spec) is str:
        check_spec(value, conversion, spec)
    held = moment_of(vm, value) if cls is FakeTensor else value
    return symbolic_values.DeferredText((symbolic_values.Formatted(held, conversion, spec),))


def refuse_changing(value: object) -> None:
    """The text of an unread container would be made when it has changed already."""
    if type(value) in symbolic_values.UNREAD and type(value) not in symbolic_values.GRAPH_SCALARS \
            and symbolic_values.python_type(value) not in (str, bytes, range):
        raise symbolic_values.unread(value, "the text")


def check_spec(value: Any, conversion: str, spec: str) -> None:
    """A format that fails, fails now: whether it does depends on the type alone."""
    if not spec:
        return
    try:
        if conversion or type(value) is symbolic_values.DeferredText:
            format("", spec)
        elif type(value) is not FakeTensor:
            format(symbolic_values.python_type(value)(), spec)
        elif value.dim():
            raise TypeError("unsupported format string passed to FakeTensor.__format__")  # see Raised
        else:
            format(float() if value.is_floating_point() else 0, spec)
    except (TypeError, ValueError) as error:
        raise Raised(error) from None


def joined(parts: list[Any]) -> str | symbolic_values.DeferredText:
    """Texts put together; a str where all are known."""
    if all(type(part) is str for part in parts):
        return "".join(parts)
    flat: list[Any] = []
    for part in parts:
        flat += part.parts if type(part) is symbolic_values.DeferredText else (part,)
    return symbolic_values.DeferredText(tuple(flat))


def text_of(vm: VM, value: object, function: Callable[..., Any] = str) -> Any:
    """`str(value)` or `repr(value)`; tensors in plain containers are shown as they are now."""
    if is_unknown(value):
        plain = type(value) is symbolic_values.DeferredText and function is str
        return value if plain else text_piece(vm, value, "s" if function is str else "r")
    if type(value) in _BRACKETS and _holds_unknown(vm, value, 0):
        return joined(_container_parts(vm, value))
    return vm.call_sync(function, (value,))


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
    parts: list[Any] = []
    pairs = list(value.items()) if type(value) is dict else [(item, None) for item in value]
    for item, held in pairs:
        parts += [", ", text_of(vm, item, repr)]
        parts += [": ", text_of(vm, held, repr)] if type(value) is dict else ()
    return [opening, *parts[1:], *("," if type(value) is tuple and len(value) == 1 else ""), closing]


def frozen(vm: VM, value: Any, what: str) -> Any:
    """A value as it is now, whatever becomes of it: constants, tensors, and plain containers of them."""
    cls = type(value)
    if cls is FakeTensor:
        return moment_of(vm, value)
    if cls is symbolic_values.DeferredText or symbolic_values.is_unbacked(value) or is_a(value, _CONSTANTS):
        refuse_changing(value)
        return value
    if cls is torch.Size and all(type(extent) is int for extent in value):
        return value
    if cls in (list, tuple, dict):
        vm.heap.expose_deep(value)
        if cls is dict:
            return {frozen(vm, key, what): frozen(vm, item, what) for key, item in value.items()}
        return cls([frozen(vm, item, what) for item in value])
    kind = symbolic_values.python_type(value).__name__
    raise Break("SB015", f"{what} with a {kind}, which may have changed by the time it is shown")


def print_options() -> str:
    """A pure reader for guards: how numpy shows arrays."""
    return repr(sorted(numpy.get_printoptions().items(), key=str))


@rule(str, repr)
def _text(vm: VM, callee: Any, /, *args: Any, **kwargs: object) -> Any:
    if len(args) == 1 and not kwargs and type(args[0]) is FakeTensor:
        return text_piece(vm, args[0], "s" if callee is str else "r")
    if len(args) == 1 and type(args[0]) is numpy.ndarray:
        vm.heap.guard_call(print_options, print_options())
        return run_on_arrays(vm, callee, (args[0],))
    return LISTED


# C code asks for text at once (`"%s" % x`, `"{}".format(x)`).
refuse(torch.Tensor.__repr__, torch.Tensor.__format__, _tensor_str._str, code="SB003", detail="the text of a tensor")
