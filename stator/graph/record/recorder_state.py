"""State of a recorder, by who decides it.   the trace, the backend, the graph being recorded, the operations so far"""

from __future__ import annotations

import collections
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.overrides import TorchFunctionMode

from stator import _hook
from stator.breaks import Break, Strategy
from stator.graph.analysis.shared_memory import Overlaps
from stator.graph.services import Recorder
from stator.graph.state.quiet_logging import muted
from stator.source import Source


def _nothing(*values: object) -> None:
    return None


@dataclass(slots=True, eq=False)
class TraceServices:
    """Functions of the trace that the recorder calls."""

    place: Callable[[fx.Node], None] = _nothing  # marks a node with where the program stands
    locate: Callable[[], Any] = _nothing  # the user's line now being interpreted
    expose: Callable[[Any], None] = _nothing
    keep_order: Callable[[fx.Node], None] = _nothing  # about what must not run twice, and all behind
    class_of: Callable[[Any], type] = lambda fake: torch.Tensor  # what the program takes a fake for
    open_parts: Callable[[Any, Source], dict[str, Any]] = lambda tensor, source: {}  # of a wrapper: by name
    listening: Callable[..., AbstractContextManager[Any]] = muted  # around each operation on fakes
    undoing: Callable[[object], AbstractContextManager[object]] = nullcontext  # effects of a custom operator on fakes
    before_saving: Callable[..., None] = _nothing  # called before autograd may save something
    refuse_patched: Callable[..., None] = _nothing
    note_stop: Callable[[Break], None] = _nothing
    note_refused: Callable[[Any, Exception], None] = _nothing  # of an input, whose history words an error
    ask: Callable[..., Any] = lambda *question: NotImplemented  # modes and classes of the program about an operation
    concerned: Callable[..., bool] = lambda *values: False  # whether a class of the program takes part


@dataclass(slots=True, eq=False)
class BackendTraits:
    """How the backend takes the graph."""

    in_order: bool = False  # whether it runs the nodes one by one, as they are recorded
    as_it_is: bool = False  # whether no compiler may have this graph
    may_be_cut: bool = False  # whether its compiler gets the pieces between operations that are slower compiled
    cut_at_errors: bool = False  # whether it gets the pieces between custom operators that may raise behind writes
    takes_sparse: bool = True  # whether it may get sparse tensors
    has_sparse: bool = False  # whether the graph has sparse tensors
    meets_sparse: bool = False  # whether there are sparse tensors for which some operations are no compiler's
    overlaps: Overlaps | None = None  # where the compiler functionalises


@dataclass(slots=True, eq=False)
class GraphScope:
    """The graph being recorded; an inner graph has one of its own (see graph/record/subgraph)."""

    enclosing: Any = None  # the inner graph being recorded
    last_input: fx.Node | None = None
    data_dependent: bool = True  # whether unbacked numbers may be symbols of it
    calls: int = 0
    inner_graphs: dict[str, fx.GraphModule] = field(default_factory=dict)  # by the name that the graph has for each
    explained_asserts: int = 0  # of the ShapeEnv's assertions: those whose failure is known as an exception


@dataclass(slots=True, eq=False)
class Region:
    """Contexts of the program that are entered now."""

    marks: dict[str, Any] = field(default_factory=dict)  # metadata of every node recorded now (see checkpoint)
    named: Any = None  # interp.calls.NamedRegions, where calls of the program are to be pieces
    tangents: bool = False  # whether the trace is at a level of forward-mode differentiation
    under_hooks: bool = False  # whether the trace is where the program has pushed hooks on saved tensors
    unseen: str = ""  # the changed setting that a compiled graph does not see: only pointwise operators may follow
    function_modes: list[Any] = field(default_factory=list)  # the program's that are on
    asking: bool = False  # whether an operation was begun to call them


@dataclass(slots=True, eq=False)
class WriteLog:
    """Operations that write, or that must not run twice."""

    changes: int = 0  # operations that may have changed a tensor in place
    reshaped: int = 0  # those that changed its metadata
    in_place: bool = False  # whether a node writes to an argument
    uncounted: bool = False  # whether a node writes to a tensor whose version does not show it
    memory: collections.Counter[int] = field(default_factory=collections.Counter)  # writes by storage: memory_behind
    read_again: list[tuple[set[int], set[fx.Node]]] = field(default_factory=list)  # memory that a checkpoint reads in
    # the backward pass, and its nodes
    repeatable: bool = True  # whether all that was recorded may run twice
    plays: list[Any] = field(default_factory=list)  # of stretches that were recorded again (see graph/fx/node_copying)
    fixed: dict[int, tuple[torch.UntypedStorage, object]] = field(default_factory=dict)  # that numpy has seen; sizes

    def fix(self, fake: torch.Tensor) -> None:
        """Note a storage that can no longer be resized: an array was made on it."""
        storage = fake.untyped_storage()
        self.fixed.setdefault(storage._cdata, (storage, _size_of(storage)))

    def refuse_resized(self) -> None:
        """Break where eager refuses to resize a storage; fakes do not."""
        if self.fixed and any(_size_of(storage) != size for storage, size in self.fixed.values()):
            raise Break("SB006", "a storage that is resized after an array was made on it",
                        turn_off=Strategy.FIXED_STORAGES)


def _size_of(storage: torch.UntypedStorage) -> object:
    """The number of bytes, or its expression: to compare symbols would be a guard."""
    size: object = storage.nbytes()
    node: object = getattr(size, "node", None)
    return size if node is None else getattr(node, "expr", node)


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
