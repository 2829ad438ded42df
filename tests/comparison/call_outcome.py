"""Call a function once and take a snapshot of everything that can be observed of the call.

In: the callable, its inputs, and the `Surroundings` of the program (its state, its file, the leaves of gradients).
Out: a `Snapshot` with these parts, one for each comparison:

    args, kwargs     the arguments after the call: values, types, aliasing, mutations
    result           value, exact type, objects and storages shared with the arguments
    raised, line     exception: class, text, args, cause, context, notes; the innermost line in the program's file
    state            globals, cells, class attributes and whatever else the program's world shows
    gradients        of the sum of all results, with respect to the leaves
    left             items that iterators still hold
    printed          text on stdout and stderr; with `interleaved`, warnings stand in their order among the text
    warnings         category, text and line
    modes            grad mode, inference mode, autocast, default dtype, deterministic algorithms
    random streams   of torch, random and numpy
"""

from __future__ import annotations

import contextlib
import io
import itertools
import random
import traceback
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy
import torch

import stator
from stator.guards.global_state import global_state
from tests.comparison.value_snapshot import Snapshot, Snapshotter, Tolerance, without_addresses

DRAIN_LIMIT = 20


class Call(NamedTuple):
    """The inputs of one call."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def no_state() -> Any:
    return {}


def no_change(number: int) -> None:
    return None


@dataclass(frozen=True)
class Checks:
    """How closely two outcomes are compared, and which parts not at all."""

    tolerance: Tolerance = 0.0  # of numbers, see `same_numbers`
    strides: str = "all"  # "results": not those of gradients, which AOTAutograd lays out as its backward graph does; "none"
    traceback: str = "line"  # the innermost one in the program's file; "frames": names and lines of all frames
    exception: str = "all"  # "text": class and text; "class": class alone (a backend words its errors in its own way)
    no_line_of: tuple[type[BaseException], ...] = ()  # exceptions whose line is CPython's own matter
    no_text_of: tuple[type[BaseException], ...] = ()  # exceptions of which the class alone is compared
    warnings: str = "own"  # those of the program's file; "interleaved": all, in their order among the printed text; "none"; "kept": not touched
    gradients: str = "sum"  # torch.autograd.grad of the sum; "backward": accumulated into the leaves; "none"
    streams: bool = True
    seed: int | None = 7  # of the random streams, before each call


EXACT = Checks()
CLOSE = Checks(tolerance=1e-4, strides="none")


@dataclass
class Surroundings:
    """All that a call can reach beside its arguments, and how to enter it."""

    module: str  # its functions and classes are compared with their state
    file: str = ""
    state: Callable[[], Any] = no_state
    leaves: Callable[[Call], Sequence[torch.Tensor]] | None = None  # of gradients; else those among the inputs
    around: Callable[[], Any] = contextlib.nullcontext  # entered around the call


def observe_call(
    subject: Callable[..., Any],
    inputs: Call,
    surroundings: Surroundings,
    checks: Checks = EXACT,
    not_of_the_program: tuple[type[BaseException], ...] = (),
) -> Snapshot:
    """Make one call; exceptions of the kinds `not_of_the_program` leave, all others are part of the outcome."""
    snapshotter = Snapshotter(surroundings.module, checks.strides != "none")
    root = Snapshot("call")
    if checks.seed is not None:
        seed_streams(checks.seed)
    result: Any = None
    raised: BaseException | None = None
    with output_recorded(checks.warnings, surroundings.file) as output, torch_modes_kept():
        with surroundings.around():
            try:
                result = subject(*inputs.args, **inputs.kwargs)
            except not_of_the_program:
                raise
            except BaseException as exception:  # any exception of the program is an outcome to compare
                raised = exception
            modes = torch_modes()
        streams = random_streams()
        root.parts["args"] = snapshotter.take(list(inputs.args), "args")
        root.parts["kwargs"] = snapshotter.take(inputs.kwargs, "kwargs")
        if raised is not None:
            root.parts["raised"] = exception_snapshot(raised, snapshotter, checks)
            if checks.exception == "all" and not isinstance(raised, (*checks.no_line_of, *checks.no_text_of)):
                root.parts["line"] = Snapshot(raising_line(raised, surroundings.file, checks.traceback))
        else:
            root.parts["result"] = snapshotter.take(result, "result")
        if checks.gradients != "none":
            leaves = leaves_among(inputs) if surroundings.leaves is None else list(surroundings.leaves(inputs))
            snapshotter.exact_layout = checks.strides == "all"
            root.parts["gradients"] = snapshotter.take(gradients(result, leaves, checks.gradients), "gradients")
            snapshotter.exact_layout = checks.strides != "none"
        root.parts["state"] = snapshotter.take(surroundings.state(), "state")
        left = [drain(each, snapshotter, f"left {i}") for i, each in enumerate([result, *inputs.args])]
        root.parts["left"] = Snapshot("left", {str(i): each for i, each in enumerate(left)})
    root.parts["printed"] = Snapshot(repr(output.text()))
    root.parts["warnings"] = Snapshot(repr(output.warnings))
    root.parts["modes"] = Snapshot(repr(modes))
    if checks.streams:
        root.parts["random streams"] = Snapshot(repr(streams))
    return root


# ---------------------------------------------------------------------- exceptions


def exception_snapshot(raised: BaseException, snapshotter: Snapshotter, checks: Checks) -> Snapshot:
    name = type(raised).__qualname__
    if checks.exception == "class" and not isinstance(raised, stator.StatorError):
        return Snapshot(name)
    if isinstance(raised, checks.no_text_of):
        return Snapshot(name)
    if checks.exception == "text":
        return Snapshot(f"{name}: {without_addresses(str(raised))}")
    return snapshotter.take(raised, "raised")


def raising_line(raised: BaseException, file: str, which: str) -> str:
    if which == "frames":
        return str([(frame.name, frame.lineno) for frame in traceback.extract_tb(raised.__traceback__)][1:])
    lines = [line for frame, line in traceback.walk_tb(raised.__traceback__) if frame.f_code.co_filename == file]
    return f"line {lines[-1] if lines else None}"


# ---------------------------------------------------------------------- output


class Output:
    """Text and warnings of one call."""

    def __init__(self) -> None:
        self.stream = io.StringIO()
        self.warnings: list[str] = []

    def text(self) -> str:
        return without_addresses(self.stream.getvalue())


@contextlib.contextmanager
def output_recorded(which: str, file: str) -> Iterator[Output]:
    """Record text and warnings; Stator's own warnings are not the program's."""
    output = Output()
    with contextlib.redirect_stdout(output.stream), contextlib.redirect_stderr(output.stream):
        if which == "kept":
            yield output
            return
        with warnings.catch_warnings(record=which == "own") as caught:
            warnings.simplefilter("ignore" if which == "none" else "always")
            if which == "interleaved":
                warnings.showwarning = interleaved(output)
            yield output
    output.warnings = [f"{w.category.__name__}: {w.message} line {w.lineno}" for w in caught or () if w.filename == file]


def interleaved(output: Output) -> Callable[..., None]:
    def show(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        if not str(message).startswith("stator: "):
            output.stream.write(f"{category.__name__}: {message}\n")
    return show


def drain(value: Any, snapshotter: Snapshotter, path: str) -> Snapshot:
    """Take what an iterator still holds after the call."""
    if type(value) is types.CoroutineType:
        value.close()
    if not hasattr(type(value), "__next__"):
        return Snapshot("no iterator")
    try:
        return snapshotter.take(list(itertools.islice(value, DRAIN_LIMIT)), path)
    except Exception as exception:  # raised by the program's own iterator: an outcome to compare
        return snapshotter.take(exception, path)


# ---------------------------------------------------------------------- torch's state


def torch_modes() -> dict[str, object]:
    return {
        "grad": torch.is_grad_enabled(),
        "inference": torch.is_inference_mode_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "default dtype": torch.get_default_dtype(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "others": without_addresses(repr(global_state())),
    }


@contextlib.contextmanager
def torch_modes_kept() -> Iterator[None]:
    grad, dtype = torch.is_grad_enabled(), torch.get_default_dtype()
    deterministic, autocast = torch.are_deterministic_algorithms_enabled(), torch.is_autocast_enabled("cpu")
    try:
        yield
    finally:
        torch.set_grad_enabled(grad)
        torch.set_default_dtype(dtype)
        if torch.are_deterministic_algorithms_enabled() != deterministic:
            torch.use_deterministic_algorithms(deterministic)
        if torch.is_autocast_enabled("cpu") != autocast:
            torch.set_autocast_enabled("cpu", autocast)


def seed_streams(seed: int = 7) -> None:
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def random_streams() -> dict[str, int]:
    _, words, position, *gauss = numpy.random.get_state()
    return {"torch": hash(torch.get_rng_state().numpy().tobytes()), "random": hash(random.getstate()),
            "numpy": hash((words.tobytes(), position, *gauss))}


# ---------------------------------------------------------------------- gradients


def tensors_in(value: Any) -> list[torch.Tensor]:
    """The tensors that a result or an input is made of, without looking into other objects."""
    found: list[torch.Tensor] = []
    met: dict[int, Any] = {}
    ahead = [value]
    while ahead:
        item = ahead.pop(0)
        if id(item) in met:
            continue
        met[id(item)] = item
        if issubclass(type(item), torch.Tensor):
            found.append(item)
        elif issubclass(type(item), torch.nn.Module):
            ahead.extend(item.parameters())
        elif issubclass(type(item), (list, tuple)):
            ahead.extend(tuple.__iter__(item) if issubclass(type(item), tuple) else list.__iter__(item))
        elif issubclass(type(item), dict):
            ahead.extend(dict.values(item))
    return found


def leaves_among(inputs: Call) -> list[torch.Tensor]:
    return [t for t in tensors_in([*inputs.args, inputs.kwargs]) if t.requires_grad and t.is_leaf]


def gradients(result: Any, leaves: Sequence[torch.Tensor], how: str = "sum") -> Any:
    """d(weighted sum of the results)/d(each leaf), which shows whether autograd sees one program."""
    outputs = [t for t in tensors_in(result) if t.requires_grad and t.layout is torch.strided
               and (t.dtype.is_floating_point or t.dtype.is_complex)]
    if not outputs or (not leaves and how == "sum"):
        return []
    try:
        with torch.enable_grad(), torch._C.DisableTorchFunctionSubclass():
            parts = [(t.abs() if t.is_complex() else t).double().sum() * (i + 1) for i, t in enumerate(outputs)]
            total = torch.stack(parts).sum()
        if how == "sum":
            return list(torch.autograd.grad(total, leaves, allow_unused=True))
        total.backward()
        return [leaf.grad for leaf in leaves]
    except RuntimeError as error:  # no derivative, or freed by a backward pass of the program's own
        return f"{type(error).__name__}: {str(error).splitlines()[0][:80]}"
