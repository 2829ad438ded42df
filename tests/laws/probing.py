"""Probe one law: run a program eagerly and compiled, in two worlds of its own, and compare all that can be seen.

In:  a factory of `Scene`s (a function, its arguments, the outside world it depends on, a change of that world).
Out: the differences between the two sides on the first call, on a repeat, after the change, and on a repeat of
that; and what the trace alone did to the world, which must be nothing.
"""

from __future__ import annotations

import contextlib
import gc
import io
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

import stator
from portrait import Describer, Portrait, differences, without_addresses
from stator import events
from stator.capture.trace import root_frame, trace

CAPTURED = "captured"  # no graph break, no call that ran eagerly
RAISES = "raises"  # the program raises: CPython does it again, under the guards that led there
STEPS = ("first call", "repeat", "after the change", "repeat after the change")


def nothing() -> None:
    return None


@dataclass
class Scene:
    """One world: `args()` gives the arguments of a call, `look()` what the outside world holds."""

    fn: Callable[..., Any]
    args: Callable[[], tuple[Any, ...]]
    change: Callable[[], Any] = nothing
    look: Callable[[], Any] = nothing
    undo: Callable[[], Any] = nothing
    around: Callable[[], Any] = contextlib.nullcontext  # entered around each call, as the change left it


@dataclass(frozen=True)
class Probe:
    """A law put to the test. `expected`: CAPTURED, RAISES, or the codes of the breaks that it may end in."""

    name: str
    make: Callable[[], Scene]
    expected: str

    def __repr__(self) -> str:
        return self.name


PROBES: dict[str, Probe] = {}


def probe(expected: str = CAPTURED) -> Callable[[Callable[[], Scene]], Callable[[], Scene]]:
    """Register a factory of scenes as a probe."""
    def register(make: Callable[[], Scene]) -> Callable[[], Scene]:
        if make.__name__ in PROBES:
            raise ValueError(f"two probes named {make.__name__}")
        PROBES[make.__name__] = Probe(make.__name__, make, expected)
        return make
    return register


@dataclass
class Verdict:
    """What the comparison saw."""

    differences: list[str] = field(default_factory=list)
    log: list[Any] = field(default_factory=list)

    @property
    def breaks(self) -> list[str]:
        return [event.code for event in self.log if isinstance(event, events.GraphBreak)]

    def gave_up(self) -> list[str]:
        kinds = (events.GraphBreak, events.EagerFallback, events.InternalFailure, events.CacheLimit)
        return [str(event) for event in self.log if isinstance(event, kinds)]

    def bugs(self) -> list[Any]:
        return [event.error for event in self.log if isinstance(event, events.InternalFailure)]


def compiled(fn: Callable[..., Any]) -> Any:
    # A trace that raises where the program does not is made good by CPython; under `strict` it is an error of ours.
    return stator.compile(fn, backend="eager", fullgraph=False, options={"strict": True})


def ramp(count: int = 4, **options: Any) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32).mul_(0.5).sub_(1).requires_grad_(options.get("grad", False))


def judge(make: Callable[[], Scene], compiler: Callable[[Callable[..., Any]], Any] = compiled) -> Verdict:
    """Both sides of a probe, one after the other, each in its own world."""
    verdict = Verdict()
    eager = portraits(make, lambda fn: fn)
    with events.record() as log:
        other = portraits(make, compiler)
    verdict.log = list(log)
    for step, left, right in zip(STEPS, eager, other, strict=True):
        verdict.differences.extend(differences(left, right, step, True))
    return verdict


def portraits(make: Callable[[], Scene], compiler: Callable[[Callable[..., Any]], Any]) -> list[Portrait]:
    """The four calls of one world. The collector rests: what eager lets go of at once must not wait for it."""
    scene = make()
    collecting = gc.isenabled()
    gc.disable()
    try:
        subject = compiler(scene.fn)
        seen = [observe(scene, subject), observe(scene, subject)]
        scene.change()
        return [*seen, observe(scene, subject), observe(scene, subject)]
    finally:
        scene.undo()
        if collecting:
            gc.enable()


def observe(scene: Scene, subject: Callable[..., Any]) -> Portrait:
    """One call and all that can be seen of it."""
    root = Portrait("call")
    describer = Describer(scene.fn.__module__)
    args = scene.args()
    result: Any = None
    raised: BaseException | None = None
    with seen_text() as text:
        with scene.around():
            try:
                result = subject(*args)
            except Exception as error:  # an outcome to compare
                raised = error
            modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), torch.is_autocast_enabled("cpu"),
                     torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled())
        root.parts["args"] = describer.describe(list(args), "args")
        root.parts["result"] = describer.describe(result, "result")
        root.parts["raised"] = Portrait(f"{type(raised).__name__}: {reason_of(raised)}")
        root.parts["world"] = describer.describe(scene.look(), "world")
    root.parts["modes"] = Portrait(repr(modes))
    root.parts["text"] = Portrait(repr([without_addresses(line) for line in text]))
    return root


def reason_of(raised: BaseException | None) -> str:
    if isinstance(raised, RecursionError):
        return ""  # CPython's words depend on the instruction that met the limit
    return without_addresses(str(raised))


@contextlib.contextmanager
def seen_text() -> Iterator[list[str]]:
    """Printed text and warnings, in the order they came; Stator's own warnings are not the program's."""
    lines: list[str] = []
    stream = io.StringIO()

    def show(message: Any, category: Any, filename: str, lineno: int, *rest: Any) -> None:
        if not str(message).startswith("stator: "):
            stream.write(f"{category.__name__}: {message}\n")

    with warnings.catch_warnings(), contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield lines
    lines.extend(stream.getvalue().splitlines())


def world_changed_by_tracing(make: Callable[[], Scene]) -> list[str]:
    """What a trace alone does to the world: arguments, outside state, printed text, torch's modes."""
    scene = make()
    try:
        args = scene.args()
        before = describe_world(scene, args)
        with seen_text() as text, scene.around():
            done = trace(lambda vm: (root_frame(vm, scene.fn, bound_arguments(scene.fn, args)), None, None))
        after = describe_world(scene, args)
        del done
        found = list(differences(before, after, "tracing", True))
        return found + [f"tracing {line}" for line in text]
    finally:
        scene.undo()


def bound_arguments(fn: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The local slots of the call: positional arguments, then defaults."""
    missing = fn.__code__.co_argcount - len(args)
    return (*args, *(fn.__defaults__[-missing:] if missing else ()))


def describe_world(scene: Scene, args: tuple[Any, ...]) -> Portrait:
    describer = Describer(scene.fn.__module__)
    root = Portrait("world")
    root.parts["args"] = describer.describe(list(args), "args")
    root.parts["world"] = describer.describe(scene.look(), "world")
    root.parts["fn"] = describer.describe(scene.fn, "fn")
    root.parts["modes"] = Portrait(repr((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu"),
                                         torch.get_default_dtype(), torch.is_inference_mode_enabled())))
    root.parts["random"] = Portrait(str(hash(torch.get_rng_state().numpy().tobytes())))
    return root


def ending_in_a_break(make: Callable[[], Scene]) -> Callable[[], Scene]:
    """The same program, with a graph break as the last thing it does: nothing may have happened twice."""
    def made() -> Scene:
        scene = make()
        inner = scene.fn

        def then_break(*args: Any) -> Any:
            result = inner(*args)
            stator.graph_break()
            return result

        then_break.__module__ = inner.__module__
        scene.fn = then_break
        return scene
    return made
