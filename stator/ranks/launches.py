"""Record collectives that compiled graphs launch.   a call of a graph with two all_reduces  ->  their numbers and lines

In: a compiled graph and the FX graph behind it.  Out: the same callable, which notes each call in `LOG` with the number
that the process group gives its first collective.  Graphs without collectives stay as they are.

A process group numbers its collectives.  Ranks that run one program give the same number to the same collective,
whether it runs in a graph or natively: equal numbers are compared (`divergence.py`).
"""

from __future__ import annotations

import collections
import contextlib
import functools
import itertools
import json
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

import torch
import torch.distributed as dist
import typing_extensions
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

KEPT = 64  # launches that are remembered
MOST_GUARDS = 1000
_COMPARED = frozenset({"EQUALS", "TENSOR", "LEN", "SHAPE"})  # kinds of guards without addresses of this process
_NAMES = {"all_gather_into_tensor": "all_gather", "all_gather_into_tensor_out": "all_gather", "all_gather_single":
          "all_gather", "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter"}
TO_ONE = frozenset({"send", "recv", "isend", "irecv"})  # ranks differ by nature
_EQUAL_SIZES = frozenset({"all_reduce", "broadcast", "reduce"})
# Frames of these files are no lines of the program; torch wraps its deprecated functions by typing_extensions.
LIBRARIES = (f"{Path(torch.__file__).parent}/", f"{Path(__file__).parent.parent}/",
             typing_extensions.__file__, contextlib.__file__, functools.__file__, "<")
Line = tuple[str, int]
Compiled = Callable[..., object]


class Call(NamedTuple):
    """One collective."""

    kind: str
    group: str
    reduction: str  # empty where it has none, "?" where it is unknown
    tensor: str  # its dtype and size, where these must be equal on all ranks; "?" stands for an unknown part
    filename: str
    line: int
    root: str = ""
    stack: tuple[Line, ...] = ()  # lines of the graph that led there, the outermost first
    outer: tuple[Line, ...] = ()  # lines that led to the graph, where these are known

    def text(self) -> str:
        given = ", ".join(part for part in (self.tensor, self.reduction, self.root) if part not in ("", "?"))
        return f"{self.kind}({given}) at {self.filename}:{self.line}"

    def differs(self, other: Call) -> bool:
        return (self.kind, self.group) != (other.kind, other.group) or any(
            "?" not in one + two and one != two for one, two in self.properties(other))

    def compared(self) -> tuple[object, ...]:
        return (self.kind, self.group, self.reduction, self.tensor, self.root, self.filename, self.line)

    def properties(self, other: Call) -> list[tuple[str, str]]:
        """Reduction, root, dtype and size of two collectives."""
        tensors = [each if "[" in each else f"{each}[{each}" for each in (self.tensor, other.tensor)]
        mine, theirs = (each.partition("[") for each in tensors)
        return [(self.reduction, other.reduction), (self.root, other.root), (mine[0], theirs[0]), (mine[2], theirs[2])]

    @classmethod
    def of(cls, data: list[object]) -> Call:
        *fields, stack, outer = data
        return cls(*fields, *(tuple((file, line) for file, line in lines) for lines in (stack, outer)))  # type: ignore


def kind_of(name: str) -> str:
    """One name for the variants of a collective."""
    return _NAMES.get(name, name)


class Text(Protocol):
    def text(self) -> str: ...


class GuardText(Text, Protocol):
    """A guard, as far as ranks compare it."""

    @property
    def kind(self) -> object: ...

    @property
    def source(self) -> Text: ...


# ---------------------------------------------------------------------- collectives of a graph


def collectives_of(graph: fx.Graph) -> Iterator[Call]:
    """The collectives of a graph, in order; those between two ranks alone are left out."""
    for node in graph.nodes:
        call = _call_at(node)
        if call is not None and call.kind not in TO_ONE:
            yield call


def _call_at(node: fx.Node) -> Call | None:
    if node.op != "call_function" or not isinstance(node.target, (OpOverload, OpOverloadPacket)):
        return None
    namespace, _, name = str(node.target).partition(".")
    if namespace not in ("_c10d_functional", "stator_ranks"):
        return None
    operator = node.target.default if isinstance(node.target, OpOverloadPacket) else node.target
    assert isinstance(operator, OpOverload)
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if "group_name" not in given:
        return None  # it waits
    kind = kind_of(str(given.get("kind", name.partition(".")[0].removesuffix("_"))))
    stack = tuple(_lines_of(node))
    numbers = given.get("numbers") if kind in ("reduce", "gather", "scatter") else None
    root = given.get("src", numbers[0] if isinstance(numbers, (list, tuple)) and numbers else None)
    return Call(kind, str(given["group_name"]), str(given.get("reduce_op", given.get("reduction", ""))),
                _tensor_of(node) if kind in _EQUAL_SIZES else "", *(stack[-1] if stack else ("", 0)),
                "" if root is None else f"root {root}", stack)


def _tensor_of(node: fx.Node) -> str:
    tensor = next((each.meta.get("example_value") for each in node.all_input_nodes), None)
    if not isinstance(tensor, torch.Tensor):
        return "?"
    with torch._C.DisableTorchFunction():
        size = tensor.numel()
        return f"{str(tensor.dtype).removeprefix('torch.')}[{size if isinstance(size, int) else '?'}]"


def _lines_of(node: fx.Node) -> Iterator[Line]:
    """Lines of the program outside torch, the outermost first."""
    for text in (node.meta.get("stack_trace") or "").splitlines():
        if text.strip().startswith('File "'):
            filename, _, rest = text.strip()[6:].partition('", line ')
            if not filename.startswith(LIBRARIES):
                yield filename, int(rest.partition(",")[0])


# ---------------------------------------------------------------------- launches


class Facts(NamedTuple):
    """A graph with collectives, as other ranks read it."""

    calls: dict[str, list[Call | None]]  # by group; None: between two ranks
    guards: dict[str, str]  # of its entry, by place
    digest: int

    def data(self) -> str:
        return json.dumps(self)

    @classmethod
    def of(cls, text: str | bytes) -> Facts:
        calls, guards, digest = json.loads(text)
        return cls({name: [None if call is None else Call.of(call) for call in found] for name, found in calls.items()},
                   guards, digest)


class Launch:
    """One call of a graph with collectives.  `first`: numbers of its groups before it; `after`: behind it."""

    __slots__ = ("number", "facts", "first", "after", "thread")

    def __init__(self, number: int, facts: Facts, first: list[int], after: list[int] | None = None,
                 thread: int = 0) -> None:
        self.number, self.facts, self.first, self.after, self.thread = number, facts, first, after, thread

    def data(self) -> list[object]:
        return [self.number, self.first, self.after]

    def key(self) -> tuple[object, ...]:
        """Equal for launches of the same collectives, with the same numbers."""
        cut = any(self.numbered(index, name)[1] for index, name in enumerate(self.facts.calls)) if self.after else False
        return (self.facts.digest, *self.first, cut)

    def numbered(self, index: int, name: str) -> tuple[dict[int, Call], Call | None]:
        """Collectives of one group by number, and the first one that an exception kept from its launch."""
        calls = self.facts.calls[name]
        own = [call for call in calls if call is not None]
        begun = len(calls) if self.after is None else self.after[index] - self.first[index]
        if begun == len(calls):
            found = [(place, call) for place, call in enumerate(calls) if call is not None]
        else:  # a backend that does not count what two ranks do alone, or a call that raised
            found = list(enumerate(own))
        lost = own[begun] if begun < len(own) else None
        return {self.first[index] + place: call for place, call in found if place < begun}, lost


LOG: collections.deque[Launch] = collections.deque(maxlen=KEPT)
WAKE = threading.Event()  # a launch after a while without any
IDLE: list[bool] = []  # not empty while nobody has launched anything for a while
_numbers_of_graphs = itertools.count(1)


def number_of(name: str) -> int:
    """How many collectives a group has begun; -1 where it does not count, or is gone."""
    try:
        return torch._C._distributed_c10d._resolve_process_group(name)._get_sequence_number_for_group()
    except (RuntimeError, ValueError):
        return -1


def recorded(compiled: Compiled, graph: fx.Graph, guards: Iterable[GuardText], first: Callable[[], None]) -> Compiled:
    """The compiled graph, which notes its collectives where it has some; `first` runs before its first call."""
    calls: dict[str, list[Call | None]] = {}
    if not (dist.is_available() and dist.is_initialized() and dist.get_world_size() > 1):
        return compiled
    for node in graph.nodes:
        call = _call_at(node)
        if call is not None:
            calls.setdefault(call.group, []).append(None if call.kind in TO_ONE else call)
    if not calls:
        return compiled
    kept = [each for each in itertools.islice(guards, MOST_GUARDS) if getattr(each.kind, "name", "") in _COMPARED]
    described = repr([(name, [call and call.compared() for call in found]) for name, found in calls.items()])
    facts = Facts(calls, {each.source.text(): each.text() for each in kept}, zlib.crc32(described.encode()))
    return _noted(compiled, next(_numbers_of_graphs), facts, first)


def _noted(compiled: Compiled, number: int, facts: Facts, first: Callable[[], None]) -> Compiled:
    names, called = tuple(facts.calls), False
    unknown = [-1] * len(names)

    def launch(*inputs: object) -> object:
        nonlocal called
        noted = Launch(number, facts, [number_of(name) for name in names], None, threading.get_ident())
        LOG.append(noted)
        if not called:
            called = True
            first()
        if IDLE:
            WAKE.set()
        try:
            return compiled(*inputs)
        finally:
            noted.after = [number_of(name) for name in names]

    def launch_uncounted(*inputs: object) -> object:
        LOG.append(Launch(number, facts, unknown, unknown))
        return compiled(*inputs)

    return launch if all(number_of(name) >= 0 for name in names) else launch_uncounted
