"""One place of the program that is compiled: a function given to `compile()`, or a resume point inside it.

In: the function, the settings and, for a resume point, the frames to go on with.  Out: what a trace starts from, and
the record of what each entry was made from.
"""

from __future__ import annotations

import os
import types
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from stator.artifacts.site_reader import StoredSites
from stator.backends.compiled_graphs import Requester
from stator.breaks import Strategy
from stator.capture.trace import root_frame
from stator.graph.analysis.shared_memory import Overlaps
from stator.guards.guard import Guard
from stator.host import shown_names
from stator.interp.calls.named_regions import NamedRegions
from stator.interp.graph_errors import keep_order
from stator.interp.pure_kernels import watched_kernel
from stator.interp.replay.layer_replay import Replay
from stator.interp.suspend import restore
from stator.interp.vm import VM
from stator.settings import marks
from stator.settings.options import Settings
from stator.shapes import profile
from stator.shapes.named_dimensions import declarations_of
from stator.shapes.policy import Policy


@dataclass(slots=True)
class EagerRecord:
    """Why and how often calls of a site ran eagerly, and what its user was shown of it."""

    limit_told: bool = False  # that the limit was reached
    gave_up: bool = False  # guarding what kept changing
    told: bool = False  # that calls run eagerly from there on
    failures: int = 0
    calls: int = 0  # under the stance "eager_then_compile"


@dataclass(slots=True)
class EagerStart:
    """Calls that run eagerly while another process compiles, under options={"start": "eager"}."""

    calls: int = 0
    job: Any = None  # backends.background.Job: the latest compilation
    guards: Sequence[Guard] = ()  # of its graph
    told: bool = False  # that the job has ended


@dataclass(slots=True)
class ForcedBackend:
    """The backend that a stance forces, where one does."""

    own_settings: Settings  # of the site, without it
    backend: Any = None
    put_aside: dict[int, tuple[Any, list[Any]]] = field(default_factory=dict)  # entries for backends not in force


@dataclass(slots=True)
class Learned:
    """Assumptions that whole traces have refuted at a site."""

    data_dependent: bool = True  # unbacked numbers are symbols of the graph, until a backend refuses them
    not_rebuilt: set[type] = field(default_factory=set)  # C types of values that left, and no residual could make
    why_off: dict[Strategy, str] = field(default_factory=dict)  # the break that turned a way of capturing off
    outcomes: set[str] = field(default_factory=set)  # of branches on random numbers
    branches_break: bool = False  # a tensor that a captured branch left as it was would be seen under two names


@dataclass
class CallSite:
    """One `compile()` call, or one resume point of it: its function, settings and compiled entries."""

    fn: types.FunctionType
    settings: Settings
    name: str
    compiled: Any = None
    point: Any = None  # emit.ResumePoint: where this site goes on after a graph break; None: at the start
    points: Any = None  # emit.Points of the whole call, shared by its sites
    nested: Any = None  # cache.NestedFrames: functions entered below the breaks of the whole call
    is_nested: bool = False  # entered below a break of another call, whose results are still in use
    shapes: Policy = field(init=False)
    turned_off: set[Strategy] = field(default_factory=set)  # a trace showed them to be wrong here
    learned: Learned = field(default_factory=Learned)
    eager: EagerRecord = field(default_factory=EagerRecord)
    stance: ForcedBackend = field(init=False)
    start: EagerStart = field(default_factory=EagerStart)
    stored: StoredSites | None = None  # entries of another process that no call has met yet

    def __post_init__(self) -> None:
        self.stance = ForcedBackend(self.settings)
        self.shapes = Policy(self.settings.dynamic, breaks=not self.settings.fullgraph)
        self.shapes.memory.foreseen = profile.foreseen(self.place)
        if self.point is None:
            self.shapes.declare(declarations_of(self.settings))

    @property
    def place(self) -> str:
        """How a shape profile calls this site, in any process: its file and its name."""
        code = self.fn.__code__ if self.point is None else self.point.states[-1].code
        return f"{os.path.basename(code.co_filename)}: {self.name}"

    @property
    def title(self) -> str:
        return shown_names.names.site(self.name)

    def user_line(self, bound: tuple[Any, ...]) -> tuple[str, int]:
        """The line where this site begins, of `forward` where a module is compiled."""
        if self.point is not None:
            return self.point.place
        code = self.fn.__code__
        if bound and self.fn is torch.nn.Module.__call__:
            code = getattr(getattr(type(bound[0]), "forward", None), "__code__", code)
        return code.co_filename, code.co_firstlineno

    @property
    def place_key(self) -> tuple[Any, ...]:
        """Equal for the same place of the same code, whichever compile() call it belongs to."""
        if self.point is None:
            return (self.fn.__code__,)
        return (self.fn.__code__, *((state.code, state.index) for state in self.point.states))

    @property
    def requester(self) -> Requester | None:
        """The requester of a graph; None where nothing is shared."""
        if self.settings.isolate_recompiles:
            return None
        codes = (self.fn.__code__,) if self.point is None else tuple([state.code for state in self.point.states])
        return Requester(codes, self.points)

    def begin(self, vm: VM, bound: tuple[Any, ...]) -> Any:
        """The frames a trace of this site starts from."""
        vm.recorder.scope.data_dependent = self.learned.data_dependent
        vm.recorder.backend.in_order = self.settings.runs_in_order
        vm.recorder.services.keep_order = lambda node: keep_order(vm, node, vm.policy.breaks_are_errors)
        vm.recorder.services.undoing = watched_kernel
        vm.recorder.backend.may_be_cut = self.settings.has_own_backend
        vm.recorder.backend.cut_at_errors = self.settings.delays_writes
        vm.recorder.wrappers.may_open = Strategy.SYMBOLIC_WRAPPERS not in self.turned_off
        vm.recorder.backend.takes_sparse = Strategy.SPARSE_INPUTS not in self.turned_off
        if self.settings.has_own_backend:
            vm.recorder.backend.overlaps = Overlaps(vm.recorder.propagation)
        if Strategy.COMPILER in self.turned_off:
            vm.recorder.keep_as_it_is()
        vm.recorder.known.ahead = Strategy.UNBACKED_VALUES in self.turned_off
        vm.heap.shapes = self.shapes
        if self.point is None and self.compiled is not None:
            vm.heap.bound_objects = self.compiled.prefix_args or ()
        vm.policy.error_policy, vm.policy.fullgraph = marks.error_policy(), self.settings.fullgraph
        vm.heap.trace_numpy = self.settings.trace_numpy
        vm.policy.capture_control_flow = False if self.learned.branches_break else self.settings.capture_control_flow
        vm.random.ahead.outcomes = self.learned.outcomes
        vm.policy.not_rebuilt = self.learned.not_rebuilt
        vm.policy.turned_off, vm.policy.why_off = self.turned_off, types.MappingProxyType(self.learned.why_off)
        vm.policy.effects_break = self.settings.print == "break"
        named = self.settings.regions if type(self.settings.regions) is tuple else ()
        vm.recorder.region.named = NamedRegions(named) if named else None
        # A layer that is replayed holds other modules than the one that was traced.
        replays = self.settings.replay and all(isinstance(each, type) for each in named)
        vm.replay = Replay(vm) if replays and Strategy.HANDLED_ERRORS not in self.turned_off else None
        vm.policy.strict, vm.policy.guard_filter = self.settings.strict, self.settings.guard_filter_fn
        if self.point is None:
            return root_frame(vm, self.fn, bound), None, None
        point = self.point
        return restore(vm, point.states, point.names, bound, point.pushes, point.handled, point.raising)

    def breaks_are_errors(self, vm: VM) -> bool:
        """The same as that of the policy, also where the trace stopped before it had one."""
        return self.settings.fullgraph if vm.policy.error_policy is None else vm.policy.error_policy
