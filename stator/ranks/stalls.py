"""Where a rank waits.   the frames of a thread that has launched collectives  ->  the collective that it is in

In: threads that have called compiled graphs with collectives.  Out: a `Stall` for a thread that is in one collective
since the last look, in a graph or natively.  Frames are read from another thread: calls pay nothing.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from types import FrameType
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch._ops import OpOverload

from stator.ranks import launches
from stator.ranks.launches import Call, Line

_OPERATOR = OpOverload.__call__.__code__
_NAMESPACES = ("_c10d_functional::", "stator_ranks::", "c10d::")
_FUNCTIONS = dist.distributed_c10d.__file__ if dist.is_available() else ""


class Stall(NamedTuple):
    """A collective that has begun and does not end.  `number`: in its group; -1 between two ranks."""

    call: Call
    number: int
    peer: int = -1  # the other rank of a send or receive, in the world
    looks: int = 0  # in a row that found a thread there

    @classmethod
    def of(cls, data: list[object] | None) -> Stall | None:
        return None if data is None else cls(Call.of(data[0]), *data[1:])  # type: ignore


class Watch:
    """Compares two looks at the threads."""

    def __init__(self) -> None:
        self.seen: dict[int, tuple[int, int, int]] = {}
        self.looks = 0  # that found the same

    def look(self, noted: list[launches.Launch]) -> Stall | None:
        """The collective that a thread has been in since the last look."""
        frames = sys._current_frames()
        seen, found = {}, None
        for thread in {each.thread for each in noted}:
            frame = frames.get(thread)
            if frame is not None:
                seen[thread] = id(frame), frame.f_lasti, sum(map(launches.number_of, _groups(noted)))
                if seen[thread] == self.seen.get(thread):
                    found = found or _stall(frame, [each for each in noted if each.thread == thread])
        self.looks = self.looks + 1 if found is not None and seen == self.seen else 0
        self.seen = seen
        return None if found is None else found._replace(looks=self.looks)


def _groups(noted: list[launches.Launch]) -> set[str]:
    return {name for each in noted for name in each.facts.calls}


def _stall(frame: FrameType, noted: list[launches.Launch]) -> Stall | None:
    for each in _outwards(frame):
        if each.f_code is _OPERATOR and str(getattr(each.f_locals.get("self"), "_name", "")).startswith(_NAMESPACES):
            return _in_graph(each, noted[-1])
        if each.f_code.co_filename == _FUNCTIONS:
            function = getattr(dist, each.f_code.co_name, None)
            function = inspect.unwrap(function) if callable(function) else None
            if getattr(function, "__code__", None) is each.f_code:
                return _native(each)
    return None


def _outwards(frame: FrameType | None) -> Iterator[FrameType]:
    for _ in range(500):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def _in_graph(frame: FrameType, launch: launches.Launch) -> Stall | None:
    """The last collective of a graph that has begun; None where the graph has left, and something else waits."""
    if launch.after is not None:
        return None
    for index, name in enumerate(launch.facts.calls):
        begun = launches.number_of(name) - 1
        call = launch.numbered(index, name)[0].get(begun)
        if call is not None:
            return Stall(call._replace(outer=_lines(frame)), begun)
    return None


def _native(frame: FrameType) -> Stall | None:
    """A call of a function of torch.distributed."""
    group = frame.f_locals.get("group") or dist.group.WORLD
    if not isinstance(group, dist.ProcessGroup):
        return None
    kind = launches.kind_of(frame.f_code.co_name)
    stack = _lines(frame)
    call = Call(kind, group.group_name, "?", "?", *(stack[-1] if stack else ("", 0)), "?", stack[-1:], stack[:-1])
    if kind not in launches.TO_ONE:
        return Stall(call, launches.number_of(group.group_name) - 1)
    peer = frame.f_locals.get("src" if "recv" in kind else "dst")
    return Stall(call, -1, peer if isinstance(peer, int) else -1)


def _lines(frame: FrameType) -> tuple[Line, ...]:
    """The lines of the program in a frame and its callers, the outermost first."""
    frames = [each for each in _outwards(frame) if not each.f_code.co_filename.startswith(launches.LIBRARIES)]
    return tuple((each.f_code.co_filename, each.f_lineno) for each in reversed(frames))


def members_of(name: str) -> list[int]:
    """Ranks of a group, in the world."""
    try:
        return dist.get_process_group_ranks(torch._C._distributed_c10d._resolve_process_group(name))
    except (RuntimeError, ValueError, KeyError):
        return []


def counts_messages(name: str) -> bool:
    """Whether ranks that agree may have different numbers: gloo counts what two of several ranks do alone."""
    members = members_of(name)
    return len(members) > 2 and torch._C._distributed_c10d._resolve_process_group(name).name() == "gloo"
