"""Name a divergence of ranks before it hangs.   rank 0 runs all_reduce, rank 1 broadcast  ->  RankDivergence

In: events of finished captures, which hold the graphs.  Out: one `RankDivergence` event and a warning for the first
collective of a group in which two ranks differ, with the line of each.

Each rank publishes the collectives of a graph that it has captured, by the number that the group will give them, in the
store of the process group, and reads those of the others.  Calls that hit publish nothing and pay nothing: a rank that
compiles alone finds no entry of its peers, and reports nothing.  A thread reads later entries; it ends with the last
match, or after `SECONDS`.
"""

from __future__ import annotations

import json
import threading
import time
import warnings
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import fx
from torch._ops import OpOverload, OpOverloadPacket

from stator import events

SECONDS = 10.0  # that a rank waits for entries of others
PAUSE = 0.02
_NAMES = {"all_gather_into_tensor": "all_gather", "all_gather_into_tensor_out": "all_gather",
          "reduce_scatter_tensor": "reduce_scatter", "reduce_scatter_tensor_out": "reduce_scatter"}
_TO_ONE = frozenset({"send", "recv", "isend", "irecv"})  # ranks differ by nature
_EQUAL_SIZES = frozenset({"all_reduce", "broadcast", "reduce"})


class Call(NamedTuple):
    """One collective of a graph."""

    kind: str
    group: str
    reduction: str
    tensor: str  # its dtype and size, where these must be equal on all ranks
    filename: str
    line: int

    def text(self) -> str:
        given = ", ".join(filter(None, (self.tensor, self.reduction)))
        return f"{self.kind}({given}) at {self.filename}:{self.line}"

    def differs(self, other: Call) -> bool:
        return self[:4] != other[:4]


class RankDivergence(events.Event):
    """Two ranks are about to run different collectives as the same one of a group."""

    group: str
    number: int  # of the collective in its group
    rank: int
    other_rank: int
    mine: Call
    theirs: Call

    def text(self) -> str:
        return (f"stator: ranks {self.rank} and {self.other_rank} diverge at collective {self.number} of group "
                f"{self.group!r}. Rank {self.rank} runs {self.mine.text()}; rank {self.other_rank} runs "
                f"{self.theirs.text()}. Let values that all ranks share decide the branch that leads there.")


# ---------------------------------------------------------------------- collectives of a graph


def collectives_of(graph: fx.Graph) -> Iterator[Call]:
    """The collectives of a graph, in order; those between two ranks alone are left out."""
    for node in graph.nodes:
        if node.op == "call_function" and isinstance(node.target, (OpOverload, OpOverloadPacket)):
            namespace, _, name = str(node.target).partition(".")
            if namespace in ("_c10d_functional", "stator_ranks"):
                call = _call(node, name.partition(".")[0])
                if call is not None and call.kind not in _TO_ONE:
                    yield call


def _call(node: fx.Node, name: str) -> Call | None:
    operator = node.target.default if isinstance(node.target, OpOverloadPacket) else node.target
    assert isinstance(operator, OpOverload)
    names = [argument.name for argument in operator._schema.arguments]
    given = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    if "group_name" not in given:
        return None  # it waits
    kind = str(given.get("kind", name.removesuffix("_")))
    kind = _NAMES.get(kind, kind)
    tensor = next((each.meta.get("example_value") for each in node.all_input_nodes), None)
    shown = ""
    if kind in _EQUAL_SIZES and isinstance(tensor, torch.Tensor):
        with torch._C.DisableTorchFunction():
            size = tensor.numel()
            shown = f"{str(tensor.dtype).removeprefix('torch.')}[{size if isinstance(size, int) else '?'}]"
    return Call(kind, str(given["group_name"]), str(given.get("reduce_op", given.get("reduction", ""))), shown,
                *_line_of(node))


def _line_of(node: fx.Node) -> tuple[str, int]:
    """The innermost line of the program outside torch."""
    found = ("", 0)
    for text in (node.meta.get("stack_trace") or "").splitlines():
        if text.strip().startswith('File "'):
            filename, _, rest = text.strip()[6:].partition('", line ')
            if "/torch/" not in filename:
                found = filename, int(rest.partition(",")[0])
    return found


# ---------------------------------------------------------------------- publication


class Publication(NamedTuple):
    """Collectives of one graph, by their numbers in one group."""

    store: dist.Store
    world: int  # how many worlds this process has had: a store may outlive one
    group: str
    rank: int
    calls: dict[int, Call]
    waiting: set[tuple[int, int]]  # numbers and ranks whose entries are not there

    def publish(self) -> None:
        for number, call in self.calls.items():
            self.store.set(self.key(number, self.rank), json.dumps(call))

    def key(self, number: int, rank: int) -> str:
        return f"stator/{self.world}/{self.group}/{number}/{rank}"

    def read(self) -> RankDivergence | None:
        """Compare with entries that are there."""
        for number, rank in sorted(self.waiting):
            key = self.key(number, rank)
            if self.store.check([key]):
                self.waiting.discard((number, rank))
                theirs = Call(*json.loads(self.store.get(key)))
                if self.calls[number].differs(theirs):
                    return RankDivergence(self.group, number, self.rank, rank, self.calls[number], theirs)
        return None


_reported: set[str] = set()  # groups
_watching: list[object] = []
_worlds: list[int] = []  # ids of default groups, in order


def watch() -> None:
    """Compare collectives with other ranks from now on, at each capture."""
    if not _watching:
        _watching.append(events.subscribe(_on_event))


def _on_event(event: events.Event) -> None:
    if not isinstance(event, events.CaptureFinished) or event.graph is None or not dist.is_initialized():
        return
    by_group: dict[str, list[Call]] = {}
    for call in collectives_of(event.graph.graph):
        by_group.setdefault(call.group, []).append(call)
    for name, calls in by_group.items():
        group = torch._C._distributed_c10d._resolve_process_group(name)
        if group.size() > 1 and name not in _reported:
            _compare(group, name, calls)


def _compare(group: dist.ProcessGroup, name: str, calls: list[Call]) -> None:
    try:
        first = group._get_sequence_number_for_group()
        store = dist.distributed_c10d._get_default_store()
    except RuntimeError:  # a backend without numbers
        return
    if not _worlds or _worlds[-1] != id(dist.group.WORLD):
        _worlds.append(id(dist.group.WORLD))
        _reported.clear()
    numbered = dict(enumerate(calls, first))
    others = [rank for rank in range(group.size()) if rank != group.rank()]
    waiting = {(number, rank) for number in numbered for rank in others}
    found = Publication(store, len(_worlds), name, group.rank(), numbered, waiting)
    found.publish()
    difference = found.read()
    if difference is not None:
        report(difference)
    elif found.waiting:
        threading.Thread(target=_wait, args=(found,), name="stator ranks", daemon=True).start()


def _wait(found: Publication) -> None:
    end = time.monotonic() + SECONDS
    while found.waiting and time.monotonic() < end and found.group not in _reported:
        time.sleep(PAUSE)
        try:
            difference = found.read()
        except RuntimeError:  # the store is gone, and the group with it
            return
        if difference is not None:
            return report(difference)


def report(difference: RankDivergence) -> None:
    if difference.group not in _reported:
        _reported.add(difference.group)
        warnings.warn(difference.text(), RuntimeWarning, stacklevel=2)
        events.emit(difference)
