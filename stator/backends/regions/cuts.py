"""Place the cuts of what repeats.   a stretch that repeats  ->  where its pieces begin and end

In: a run, which may be cut anywhere along its period.  Out: the places of its cuts, one period apart: before a kernel
that compilers fuse with nothing, where the fewest bytes cross.  At a module's border the addition of one layer and the
norm of the next would be torn apart.  Of equal stretches apart from one another each gets two cuts, near its ends.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Iterable
from typing import Any

import torch

from stator.backends.graph_key import Key
from stator.backends.regions.extraction import Piece, find_ends, key_of
from stator.backends.regions.flow import Flow
from stator.backends.regions.periods import Run
from stator.backends.regions.probes import Probes
from stator.backends.regions.repeats import Repeat
from stator.graph.fx.graph_modules import NAMED_REGION

_UNKNOWN = 4096  # a size that no call has had yet


def place_cuts(flow: Flow, run: Run, probes: Probes, fuses: bool, least_repeats: int) -> tuple[list[int], str]:
    """The cuts, or none and why; `fuses`: the compiler fuses kernels, and a cut could keep it from that."""
    why = ""
    costs = border_costs(flow, run)
    order = sorted(range(run.start, run.start + run.period), key=lambda first: (
        fuses and not probes.runs_kernel(first), costs[first - run.start], -((run.stop - first) // run.period), first))
    for first in order:
        cuts = list(range(first, run.stop + 1, run.period))
        if len(cuts) <= least_repeats:
            continue
        why = next((found for cut in cuts if (found := why_not(flow, cut, cuts[0]))), "")
        if not why:
            return cuts, ""
    return [], why


def place_apart(flow: Flow, repeat: Repeat, probes: Probes, least_repeats: int) -> tuple[list[int], str]:
    """The cuts around equal stretches, which belong together; none and why."""
    start, length = repeat.starts[0], repeat.length
    costs = crossing_bytes(flow, start, start + length)

    def best(offsets: Iterable[int], inwards: int) -> tuple[int, str]:
        why = ""
        for offset in sorted(offsets, key=lambda each: (costs[each], each * inwards)):
            why = next((found for first in repeat.starts if (found := why_not(flow, first + offset, start))), "")
            if not why:
                return offset, ""
        return -1, why

    first, why = best(range(length // 3 + 1), 1)
    last, other = best(range(length - length // 3, length + 1), -1)
    if first < 0 or last < 0:
        return [], why or other
    alike: dict[Key, list[int]] = {}
    for each in repeat.starts:
        piece = Piece(each + first, each + last, flow.body[each + first:each + last])
        find_ends(flow, piece, probes)
        if not flow.grad_enabled:  # see return_alike
            piece.outputs = []
        alike.setdefault(key_of(flow, piece), []).append(each)
    kept = max(alike.values(), key=len)
    if len(kept) < least_repeats:
        return [], "pieces that look alike are used differently"
    return [each + end for each in kept for end in (first, last)], ""


def crossing_bytes(flow: Flow, start: int, stop: int) -> list[int]:
    """For each place from one to another, what crosses it: bytes, views counted double."""
    live = set(flow.crossing(start))
    size = {node: size_of(flow.value(node)) * (1 + (flow.memory.root(node) is not node)) for node in live}
    costs = [sum(size.values())]
    for place in range(start, stop):
        node = flow.body[place]
        for each in node.all_input_nodes:
            if flow.last_use[each] == place:
                size.pop(each, None)
        if flow.last_use.get(node, -1) > place:
            size[node] = size_of(flow.value(node)) * (1 + (flow.memory.root(node) is not node))
        costs.append(sum(size.values()))
    return costs


def named_calls(flow: Flow) -> list[Any]:
    """Map each node to the name and number of the marked call around it, or to None."""
    calls: list[Any] = []
    for node in flow.body:
        given = node.args[0] if node.target is operator.getitem else None
        if given in flow.place and type(flow.value(given)) in (tuple, list):
            calls.append(calls[flow.place[given]])  # a part of a result, made where it was first used
        else:  # numbers have no place in the program
            calls.append(node.meta.get(NAMED_REGION, () if "stack_trace" in node.meta or not calls else calls[-1]))
    return calls


def named_cuts(flow: Flow, calls: list[Any]) -> tuple[list[int], list[str]]:
    """The cuts at the ends of named calls, and why there is none."""
    cuts, refused = [], []
    for place, (before, behind) in enumerate(itertools.pairwise(calls), 1):
        if before != behind:
            if why := why_not(flow, place):
                refused.append(f"{(behind or before)[0]}: {why}")
            else:
                cuts.append(place)
    return cuts, list(dict.fromkeys(refused))


def why_not(flow: Flow, cut: int, first: int | None = None) -> str:
    if first is not None and flow.states[cut] != flow.states[first]:
        return "a setting of torch changes from piece to piece"
    return next((why for node in flow.crossing(cut) if (why := flow.why_not(node, cut))), "")


def border_costs(flow: Flow, run: Run) -> list[int]:
    """For each place of the first period, what crosses one period later: bytes, views counted double."""
    costs = []
    live = set(flow.crossing(run.start + run.period))
    for place in range(run.start + run.period, run.start + 2 * run.period):
        own = [node for node in live if flow.place[node] >= place - run.period]
        costs.append(sum(size_of(flow.value(node)) * (1 + (flow.memory.root(node) is not node)) for node in own))
        node = flow.body[place]
        live.difference_update([each for each in node.all_input_nodes if flow.last_use[each] == place])
        if flow.last_use.get(node, -1) > place:
            live.add(node)
    return costs


def size_of(value: object) -> int:
    if not isinstance(value, torch.Tensor):
        return 0
    with torch._C.DisableTorchFunction():
        return math.prod([each if type(each) is int else each.node.hint or _UNKNOWN for each in value.shape]) \
            * value.dtype.itemsize


