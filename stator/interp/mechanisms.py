"""State of one trace, one object for each mechanism (see host/mechanism).

In: notes of opcodes, rules and C calls.  Out: what branch capture, replay and the residual compare and write back.
"""

from __future__ import annotations

import time
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stator import _hook, events
from stator.breaks import Break, Strategy
from stator.heap.adopt.decimal_state import ThreadContext
from stator.heap.set_orders import SetOrder
from stator.heap.tracker import Reference
from stator.host.mechanism import Mechanism, key_ids
from stator.host.suspended_patches import patched_slots
from stator.interp.draws_ahead import DrawsAhead
from stator.interp.services import VM, Machine
from stator.settings.process_config import config

LOOK_MASK = 255  # one iteration or call in 256 reads the clock


@dataclass(slots=True, eq=False)
class CapturePolicy(Mechanism):
    """Choices of the settings and of earlier traces; the sets belong to the call site."""

    guard_filter: Callable[..., Sequence[bool]] | None = None  # the user's, which drops guards
    strict: bool = False  # whether what would do no harm here, but is wrong, raises
    capture_control_flow: bool | None = False  # branches on data are captured; None: where a break costs more
    fullgraph: bool = False  # of the settings
    effects_break: bool = False  # print and its like break instead of being replayed
    error_policy: bool | None = None  # of the innermost error_on_graph_break region; None: there is none
    compiling_shown: bool = False  # torch.compiler.is_compiling() returned True
    turned_off: set[Strategy] = field(default_factory=set)  # ways of capturing that break instead (see CallSite)
    why_off: Mapping[Strategy, str] = field(default_factory=dict)
    not_rebuilt: set[type] = field(default_factory=set)  # C types whose values no residual can make (see CallSite)

    @property
    def breaks_are_errors(self) -> bool:
        """The innermost `error_on_graph_break` region where the trace is decides, else `fullgraph`."""
        return self.fullgraph if self.error_policy is None else self.error_policy

    def fingerprint(self) -> Any:
        return self.error_policy

    def clear(self) -> None:
        pass


@dataclass(slots=True, eq=False)
class ModeState(Mechanism):
    """The protocol of `__torch_function__`: modes, where it is off, and slots of Tensor that were replaced."""

    active: list[Any] = field(default_factory=list)  # the program's TorchFunctionModes that are on, innermost last
    at_start: int = 0
    kept: int = 0  # how many of those at start the program has not left; inside a handler, those below its mode
    handling: int = 0  # how many handlers of modes are running
    functions_off: int = 0  # 1: the handlers of classes are not called; 2: those of modes neither
    functions_off_at_start: int = 0
    functions_off_before: list[tuple[Any, int]] = field(default_factory=list)  # contexts that turn it off, entered
    indexes_stay_tensors: bool = False  # inside the functions of an attention, whose positions are tensors
    index_modes: list[Any] = field(default_factory=list)  # of torch that need just that
    patched: Any = field(default_factory=patched_slots)  # special methods of Tensor that are not torch's own, by name


@dataclass(slots=True, eq=False)
class ClassState(Mechanism):
    """Facts about classes, and attributes set on them."""

    written_back = ("overlays",)

    lookups: dict[tuple[type, str], Any] = field(default_factory=dict)
    ancestry: set[type] = field(default_factory=set)  # classes whose MRO is guarded
    named: set[type] = field(default_factory=set)  # whose names are guarded
    asked: set[type] = field(default_factory=set)  # whose special methods are guarded
    overlays: dict[type, dict[str, Any]] = field(default_factory=dict)  # attributes as the program has set them
    reborn: set[tuple[type, str]] = field(default_factory=set)  # deleted and set again: last in the class from now on
    finalized: set[type] = field(default_factory=set)  # made inside, with `__del__`: some have instances
    making: int = 0  # how many type.__new__ are running

    def fingerprint(self) -> Any:
        return key_ids(self.overlays)  # type: ignore[arg-type]


@dataclass(slots=True, eq=False)
class IdentityState(Mechanism):
    """Addresses that the program has seen: the objects of the residual have others."""

    not_replayed = ("shown", "standins", "ordered")

    handed: dict[int, object] = field(default_factory=dict)  # by id: the values that the entry was called with
    addresses: set[int] = field(default_factory=set)  # of tuples made inside the trace, which it does not hold
    ids: dict[int, Reference] = field(default_factory=dict)  # of objects made inside the trace whose id was read
    hashes: dict[int, Reference] = field(default_factory=dict)  # the same, of hashes that are made of addresses
    shown: dict[int, Reference] = field(default_factory=dict)  # objects of the trace whose default repr was made
    standins: dict[str, str] = field(default_factory=dict)  # digits of their addresses in texts -> of the originals
    tells_of_deaths: bool = False  # whether a weak reference with a callback was made (see weak_references)
    collects: bool = False  # whether the residual collects garbage (see lifetimes)
    collected: tuple[Any, ...] | None = None  # the changes when it did so (see lifetimes)
    untracked: dict[int, Any] = field(default_factory=dict)  # tuples and dicts that it has met then
    weakly: list[Any] = field(default_factory=list)  # references to the objects that weak references were made to
    ordered: set[int] = field(default_factory=set)  # ids of members of sets whose order counted
    additions: dict[int, tuple[Reference, dict[int, None]]] = field(default_factory=dict)  # ids, by set
    of_process: str = ""  # the address or hash that the program has read: another process has another one
    # Orders of sets, which PYTHONHASHSEED decides, by themselves; code whose lines or path it has read, by id.
    elsewhere: dict[object, SetOrder | types.CodeType] = field(default_factory=dict)

    def process_facts(self) -> tuple[str, list[SetOrder | types.CodeType]]:
        return self.of_process, [*self.elsewhere.values()]


@dataclass(slots=True, eq=False)
class FunctionState(Mechanism):
    """Facts about functions, of the program and made by the trace."""

    written_back = ("members",)
    formatting: int = 0  # C functions that make text now, and look at the results of Python functions that they call
    type_parameters: dict[int, tuple[Any, str, tuple[Any, ...]]] = field(default_factory=dict)  # which, from what
    defaults: dict[int, Any] = field(default_factory=dict)
    callbacks: dict[int, Any] = field(default_factory=dict)  # functions that stand for C callables inside C iterators
    compiled_inside: dict[int, Any] = field(default_factory=dict)  # compiled functions made by the trace
    coded: dict[int, Any] = field(default_factory=dict)  # outside functions whose code is guarded
    closures: dict[int, Any] = field(default_factory=dict)  # -> (one of the process, the stand-ins of its cells)
    members: dict[types.FunctionType, dict[str, Any]] = field(default_factory=dict)  # assigned to outside functions

    def fingerprint(self) -> Any:
        return key_ids(self.members)  # type: ignore[arg-type]


@dataclass(slots=True, eq=False)
class TensorState(Mechanism):
    """Members of tensors that the program has set."""

    written_back = ("attributes", "grads", "flags", "data")

    attributes: dict[int, dict[str, Any]] = field(default_factory=dict)  # in the __dict__
    grads: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # -> (the fake, what the program made its .grad)
    flags: dict[int, Any] = field(default_factory=dict)  # -> how requires_grad changes (see tensors/leaf_flags)
    data: dict[int, Any] = field(default_factory=dict)  # -> the memory it gets (see tensors/tensor_bookkeeping)
    read_grads: set[int] = field(default_factory=set)  # tensors whose .grad the program has read, not to drop it alone
    dropped: set[int] = field(default_factory=set)  # leaves whose .grad the residual drops before the graph

    def fingerprint(self) -> Any:
        return self.has_changes() and (
            key_ids(self.attributes),  # type: ignore[arg-type]
            [(key, id(grad)) for key, (_, grad) in self.grads.items()],
            [(key, flag.entry, flag.final, len(flag.aliases)) for key, flag in self.flags.items()],
            [(key, id(note.value)) for key, note in self.data.items()])


@dataclass(slots=True, eq=False)
class AutogradState(Mechanism):
    """Hooks, leaves and levels of differentiation."""

    counted = written_back = ("hooks",)
    not_replayed, prevents_replay = ("nodes",), ("watches", "leaves")

    nodes: dict[int, Any] = field(default_factory=dict)  # the grad_fn of fake tensors
    hooks: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # -> (a handle, its hook; None: removed)
    watches: dict[int, Any] = field(default_factory=dict)  # id of a BackwardHook made inside -> what watches the fakes
    in_hooks: bool = False  # whether hooks of modules are interpreted, in the middle of a backward pass
    leaves: list[Any] = field(default_factory=list)  # tensors of the graph that were made to require a gradient
    retained: dict[int, Any] = field(default_factory=dict)  # tensors of the graph that are to keep their gradients
    dual_levels: list[int] = field(default_factory=list)  # of forward-mode differentiation, entered by the trace
    pushed_hooks: list[Any] = field(default_factory=list)  # on saved tensors, by the trace
    ahead: list[Any] = field(default_factory=list)  # code of a backward pass that was interpreted before it
    popped_hooks: list[object] = field(default_factory=list)
    consumes: bool = False  # whether a backward pass in the graph frees its history
    hook_cells: list[Any] = field(default_factory=list)  # variables of hooks made inside, and what was in them


@dataclass(slots=True, eq=False)
class FileState:
    """Files that the call writes (see library/process/made_files)."""

    written: dict[str, bytes] = field(default_factory=dict)  # by path: data of files that were closed
    opened: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class EffectState(Mechanism):
    """Output and calls that the residual makes after the graph, in order."""

    counted = ("noted",)

    noted: list[Any] = field(default_factory=list)
    lines: set[tuple[str, int]] = field(default_factory=set)  # which write output, that may fail when it is replayed
    watched: bool = False  # whether user code runs at the replay of effects
    deciding: dict[int, object] = field(default_factory=dict)  # id -> an object that decides how output is shown
    early: int = 0  # how many of them come before the program's first change of anything outside
    files: FileState = field(default_factory=FileState)
    runs_once: bool = False  # whether a call that must not run twice is recorded (see graph_errors)


@dataclass(slots=True, eq=False)
class ResidualState(Mechanism):
    """Values that the residual computes for the graph, and what failed assertions of the graph mean."""

    feeds_graph = True
    counted = ("draws", "copies", "assertions")

    draws: list[Any] = field(default_factory=list)  # random numbers that the residual draws, in order
    copies: list[Any] = field(default_factory=list)  # copies of tensors that it makes before the graph, in order
    copy_memos: dict[int, Any] = field(default_factory=dict)  # of a memo of deepcopy() -> which tensors were copied
    assertions: list[Any] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class WarningState(Mechanism):
    """Filters of warnings, as the program changes them."""

    managers: dict[int, Any] = field(default_factory=dict)  # the catch_warnings that the program has entered
    recordings: list[Any] = field(default_factory=list)  # catch_warnings(record=True) that are entered, innermost last
    heard: Any = None  # warnings of the C code that runs now
    changed: bool = False  # the filters of the process are as they were until the residual runs


@dataclass(slots=True, eq=False)
class LockState(Mechanism):
    """Locks from outside."""

    prevents_replay = ("used", "answers")

    used: dict[int, Any] = field(default_factory=dict)  # how the program has used each
    answers: dict[Any, Any] = field(default_factory=dict)  # state that was read of locks that it has not used


@dataclass(slots=True, eq=False)
class CacheState(Mechanism):
    """Results of functions under functools.lru_cache."""

    prevents_replay = ("fills",)

    fills: dict[int, list[tuple[Any, Any]]] = field(default_factory=dict)  # of an outside cache -> its new results


@dataclass(slots=True, eq=False)
class ContextState(Mechanism):
    """Context variables, and the context of decimals."""

    sets: list[Any] = field(default_factory=list)  # values of variables that are set now and were not at the start
    decimal: ThreadContext | None = None  # contexts on which the trace computes decimals
    entered: list[Any] = field(default_factory=list)  # contexts made inside that the thread is in, innermost last
    loops: Any = None  # event loops of asyncio (see library/asynchronous/event_loop)

    def fingerprint(self) -> Any:
        return [id(each) for each in self.sets], self.decimal and self.decimal.fingerprint()

    def has_changes(self) -> bool:
        return bool(self.sets or self.decimal and (self.decimal.current or self.decimal.changed()))


@dataclass(slots=True, eq=False)
class RandomState(Mechanism):
    """Random streams whose numbers the trace knows."""

    known: dict[int, Any] = field(default_factory=dict)  # made in the trace (see known_random_streams)
    seeded: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # an outside stream -> it, the one in its place
    ahead: DrawsAhead = field(default_factory=DrawsAhead)  # conditions over numbers that a guard draws


class Progress:
    """Clock and limits of one trace."""

    __slots__ = ("limit", "every", "started", "due", "jumps", "pushes", "stop", "recursion_limit")

    def __init__(self) -> None:
        self.limit: int = config.capture_iteration_limit
        self.every: int = config.capture_progress_seconds
        self.started = time.monotonic()
        self.due = self.started + self.every
        self.jumps = self.pushes = 0  # backward jumps and calls so far
        self.stop: Break = None  # type: ignore[assignment]  # what to raise at `vm.stop_step`
        self.recursion_limit = 0  # the user's, while the trace runs under its own

    def look(self, vm: Machine) -> None:
        now = time.monotonic()
        if now >= self.due:
            self.due = now + self.every
            _hook.quietly(lambda: self.emit(vm, now - self.started))

    def emit(self, vm: Machine, seconds: float) -> None:
        stack = vm.stack()
        events.emit_progress(events.CaptureProgress(
            stack[0].function, seconds, self.jumps, len(vm.recorder.graph.nodes), stack[-1].filename, stack[-1].line))


class Mechanisms:
    """State that opcodes and rules keep for one trace, by mechanism."""

    def __init__(self) -> None:
        self.classes = ClassState()
        self.functions = FunctionState()
        self.identity = IdentityState()
        self.tensors = TensorState()
        self.autograd = AutogradState()
        self.modes = ModeState()
        self.locks = LockState()
        self.caches = CacheState()
        self.random = RandomState()
        self.contexts = ContextState()
        self.warnings = WarningState()
        self.effects = EffectState()
        self.residual = ResidualState()
        self.policy = CapturePolicy()
        self.mechanisms: list[Mechanism] = [*vars(self).values()]  # in the order in which they are written back

    @property
    def turned_off(self) -> set[Strategy]:
        return self.policy.turned_off


def fingerprints(vm: VM, of_graph: bool = True) -> list[Any]:
    """State of all mechanisms, to be compared with a later one; not `of_graph`: without notes that the graph holds."""
    with torch._C.DisableTorchFunction():
        return [each.fingerprint() for each in vm.mechanisms if of_graph or not each.feeds_graph]


def has_changes(vm: VM) -> bool:
    """Whether the trace has changed namespaces, classes, settings or the bookkeeping of outside tensors."""
    return any(each.has_changes() for each in vm.mechanisms)


def undo(vm: VM) -> None:
    for each in vm.mechanisms:
        each.undo()


def clear(vm: VM) -> None:
    for each in vm.mechanisms:
        each.clear()
