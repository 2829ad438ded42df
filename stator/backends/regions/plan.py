"""Split a graph into pieces, if that is worth it.   a graph with 32 equal layers  ->  34 pieces, 3 of them different

In: a captured graph without autograd boundaries, its fake inputs and the settings.  Out: steps in order, or `Whole`
with the reason. Runs of equal layers are cut, and calls that the user has named; what lies between them are pieces of
their own.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from stator.backends.cuda_graphs import records_cuda_graphs
from stator.backends.graph_key import Key, Unkeyed
from stator.backends.pieces import keep_parts_together
from stator.backends.regions.cuts import named_calls, named_cuts, place_apart, place_cuts
from stator.backends.regions.extraction import Piece, find_ends, key_of, wants_grad
from stator.backends.regions.flow import Flow, Whole
from stator.backends.regions.gradients import moved_gradient
from stator.backends.regions.periods import find_runs
from stator.backends.regions.probes import Probes
from stator.backends.regions.repeats import find_repeats, without
from stator.graph.analysis.autograd_boundaries import has_boundaries
from stator.graph.analysis.mutation import WRITTEN_AROUND
from stator.graph.analysis.step_functions import GRADIENTS
from stator.graph.fx.graph_modules import NAMED_REGION
from stator.graph.state.torch_state import SETTING_OF_SETTER
from stator.settings.options import Settings

# A graph that has less to save is compiled whole.
LEAST_REPEATS = 4
LEAST_PERIOD = 8  # nodes
LEAST_SAVING = 64  # nodes
LEAST_LENGTH = 16  # nodes of stretches apart from one another: each one adds the piece behind it
STEP_REPEATS = 16  # of a whole training step: each call of a piece costs about 50 us, in both passes
ONE_PIECE = "one piece"  # in the meta of a graph: a part of a step with fewer repeats
WITH_A_COMPILER = frozenset({"inductor", "aot_eager", "aot_eager_decomp_partition"})


@dataclass
class Plan:
    """Pieces and the nodes between them, in order."""

    flow: Flow
    steps: list[Piece | fx.Node]
    unique: dict[Key, Piece] = field(default_factory=dict)
    refused: tuple[str, ...] = ()  # named calls that are no pieces, and why

    @property
    def pieces(self) -> list[Piece]:
        return [step for step in self.steps if isinstance(step, Piece)]


def plan_regions(gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings, mode: FakeTensorMode,
                 grad_enabled: bool) -> Plan:
    """Raise `Whole` where the graph is to be compiled in one piece; its message is empty where nobody would cut."""
    named = type(settings.backend) is str and settings.backend in WITH_A_COMPILER
    marked = any(NAMED_REGION in node.meta for node in gm.graph.nodes)
    if settings.regions == "off" or not named or len(gm.graph.nodes) < LEAST_SAVING and not marked:
        raise Whole("")
    if type(settings.regions) is tuple and not marked:
        raise Whole("it calls no module that options['regions'] names")
    if gm.meta.get(WRITTEN_AROUND):
        raise Whole("other pieces write to its inputs")
    check_values(gm.graph, inputs)
    if marked:
        keep_parts_together(gm.graph)
    try:
        flow = Flow(gm, list(inputs), grad_enabled)
    except Unkeyed as error:
        raise Whole(str(error)) from None
    probes = Probes(flow, mode)
    if gm.meta.get(ONE_PIECE) and not marked:
        return pieces_between(flow, probes, [], 0)
    fuses = settings.backend == "inductor"
    calls = named_calls(flow) if marked else []
    cuts, refused = named_cuts(flow, calls)
    why = next(iter(refused), "")
    runs = []
    for run in find_runs(flow.numbers, LEAST_REPEATS, LEAST_PERIOD) if settings.regions == "auto" else ():
        if run.saving >= LEAST_SAVING:
            found, refusal = place_cuts(flow, run, probes, fuses, LEAST_REPEATS)
            cuts += [cut for cut in found if not marked or not calls[cut] or calls[cut] != calls[cut - 1]]
            why = why or refusal
            runs += [(run.start, run.stop)] if found else []
    apart: list[list[int]] = []
    if settings.regions == "auto" and not marked and not fuses:  # which shares equal kernels of one graph already
        apart, refusal = cuts_apart(flow, probes, without([(0, len(flow.body))], runs))
        why = why or refusal
    if not cuts and not apart:
        raise Whole(why or "nothing repeats often enough")
    settle = functools.partial(settled, flow, probes, mode, check_gradients=grad_enabled and not fuses and not marked,
                               least=0 if marked else LEAST_SAVING)
    try:
        plan = settle([*cuts], apart)
    except Whole:
        if not cuts or not apart:
            raise
        plan = settle(cuts, [])
    plan.refused = tuple(refused)
    for piece in plan.pieces if marked else ():
        piece.name = calls[piece.start][0] if calls[piece.start] else ""
    return plan


def cuts_apart(flow: Flow, probes: Probes, free: list[tuple[int, int]]) -> tuple[list[list[int]], str]:
    """The cuts of each set of equal stretches outside runs; why a set has none."""
    found: list[list[int]] = []
    why = ""
    for repeat in find_repeats(flow.numbers, free, LEAST_REPEATS, LEAST_LENGTH, LEAST_SAVING):
        try:
            cuts, refusal = place_apart(flow, repeat, probes, LEAST_REPEATS)
        except Whole as error:
            cuts, refusal = [], str(error)
        found += [cuts] if cuts else []
        why = why or refusal
    return found, why


def settled(flow: Flow, probes: Probes, mode: FakeTensorMode, cuts: list[int], apart: list[list[int]],
            check_gradients: bool, least: int) -> Plan:
    """The pieces between cuts. A compiler that fuses rounds otherwise in any case; the user's own cuts stay."""
    while True:
        if not cuts and not apart:
            raise Whole("gradients would be laid out anew")
        plan = pieces_between(flow, probes, cuts + [cut for each in apart for cut in each], least)
        moved = [(piece, why) for piece in plan.unique.values() if (why := moved_gradient(flow, piece, mode))] \
            if check_gradients else []
        if not moved:
            return plan
        left = [*apart]
        for piece, why in moved:
            around = [each for each in apart if piece.start in each or piece.stop in each]
            if around:
                left = [each for each in left if each is not around[0]]
            elif piece.start in cuts and len([each for each in plan.pieces if each.key == piece.key]) == 1:
                cuts.remove(piece.start)  # joined with the piece before it
            else:
                raise Whole(why)
        apart = left


def gradients_to_take_between(gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings,
                              grad_enabled: bool) -> list[fx.Node]:
    """The gradients in a training step whose layers repeat before them.

    Torch's engine takes them between pieces, so that both passes of equal layers are compiled once.
    """
    found = [node for node in gm.graph.nodes if node.target in GRADIENTS]
    return found if most_repeats(gm, found, inputs, settings, grad_enabled) >= least_repeats(settings) else []


def is_short_step(gm: fx.GraphModule, inputs: Sequence[Any], settings: Settings, grad_enabled: bool) -> bool:
    """Whether a graph is a training step that runs faster with both passes in one piece each."""
    found = [node for node in gm.graph.nodes if node.target in GRADIENTS]
    return 0 <= most_repeats(gm, found, inputs, settings, grad_enabled) < least_repeats(settings) > LEAST_REPEATS


def least_repeats(settings: Settings) -> int:
    return STEP_REPEATS if settings.backend == "inductor" else LEAST_REPEATS


def most_repeats(gm: fx.GraphModule, found: list[fx.Node], inputs: Sequence[Any], settings: Settings,
                 grad_enabled: bool) -> int:
    """How often a layer repeats before the gradients `found`; -1 where a step is not cut in any case."""
    if not found or settings.regions != "auto" or settings.backend not in WITH_A_COMPILER \
            or records_cuda_graphs(settings) or any(node.kwargs.get("create_graph") for node in found):
        return -1
    try:
        flow = Flow(gm, list(inputs), grad_enabled)
    except Unkeyed:
        return -1
    runs = find_runs(flow.numbers[:max([flow.place[node] for node in found])], LEAST_REPEATS, LEAST_PERIOD)
    return max([run.repeats for run in runs if run.saving >= LEAST_SAVING], default=0)


def pieces_between(flow: Flow, probes: Probes, cuts: list[int], least: int) -> Plan:
    plan = Plan(flow, list(steps_between(flow, sorted(set(cuts)))))
    for piece in plan.pieces:
        find_ends(flow, piece, probes)
    plan.steps[:0] = flow.hoisted
    check_casts(plan, probes)
    check_writes(plan)
    if not flow.grad_enabled:
        return_alike(flow, plan.pieces)
    for piece in plan.pieces:
        piece.key = key_of(flow, piece)
    plan.unique = {piece.key: piece for piece in plan.pieces}
    saved = sum([len(piece.nodes) for piece in plan.pieces]) - sum([len(piece.nodes) for piece in plan.unique.values()])
    if saved < least:
        raise Whole("pieces that look alike are used differently")
    return plan


def return_alike(flow: Flow, pieces: list[Piece]) -> None:
    """Let pieces that are equal but for what is needed of them return the same: the last layer is one of all.

    With gradients a result that nobody uses would get one of zeros, which is not the same as none.
    """
    wanted: dict[Key, set[int]] = {}
    bodies = []
    for piece in pieces:
        outputs, piece.outputs = piece.outputs, []
        bodies.append(key_of(flow, piece))
        wanted.setdefault(bodies[-1], set()).update([flow.place[node] - piece.start for node in outputs])
    for piece, body in zip(pieces, bodies, strict=True):
        piece.outputs = [piece.nodes[place] for place in sorted(wanted[body])]


def check_values(graph: fx.Graph, inputs: Sequence[Any]) -> None:
    if has_boundaries(graph):
        raise Whole("only autograd can do a part of it")
    if any(isinstance(value, torch.Tensor) and type(value) is not FakeTensor for value in inputs):
        raise Whole("an input is a tensor subclass")
    if any(node.meta.get("unbacked_bindings") for node in graph.nodes):
        raise Whole("it has unbacked symbols")


def steps_between(flow: Flow, cuts: list[int]) -> list[Piece | fx.Node]:
    """Pieces from cut to cut; a stretch that leaves torch's settings changed is cut at each change."""
    steps: list[Piece | fx.Node] = []
    edges = [0, *cuts, len(flow.body)]
    for start, stop in zip(edges, edges[1:], strict=False):
        begun = start
        if flow.states[start] != flow.states[stop]:
            for place in range(start, stop):
                node = flow.body[place]
                if id(node.target) in SETTING_OF_SETTER:
                    if place > begun:
                        steps.append(Piece(begun, place, flow.body[begun:place]))
                    steps.append(node)
                    begun = place + 1
        if stop > begun:
            steps.append(Piece(begun, stop, flow.body[begun:stop]))
    return steps


def check_writes(plan: Plan) -> None:
    """A backward pass may compute a value anew from an input, which a later piece has written to."""
    seen: set[fx.Node] = set()
    for piece in plan.pieces if plan.flow.grad_enabled else ():
        for node in set(piece.inputs):
            if node.op == "placeholder" and plan.flow.memory.is_written(node, 0):
                if node in seen:
                    raise Whole(f"{node.name}, which is written to, is used in several pieces")
                seen.add(node)


def check_casts(plan: Plan, probes: Probes) -> None:
    """Autocast casts a parameter once for all its uses, and its gradients are added up before they are cast back."""
    flow = plan.flow
    pieces_of = Counter([node for piece in plan.pieces for node in set(piece.inputs)
                         if node.op == "placeholder" and wants_grad(flow.value(node))])
    shared = {node for node, count in pieces_of.items() if count > 1}
    devices = {value.device.type for value in flow.values.values() if isinstance(value, torch.Tensor)}
    seen: set[fx.Node] = set()
    for piece in plan.pieces if shared else ():
        cast: set[fx.Node] = set()
        for user in piece.nodes:
            given = shared.intersection(user.all_input_nodes)
            if given and casts_on(flow.states[flow.place[user]], devices):
                cast.update([node for node in given if probes.is_cast(user, node)])
        for node in cast & seen:
            raise Whole(f"{node.name} is cast in several pieces")
        seen |= cast


def casts_on(state: dict[Any, Any], devices: set[str]) -> bool:
    """Whether autocast is on for one of the devices."""
    known = {key[0]: value[0] for (setting, key), value in state.items()
             if setting.setter is torch._C.set_autocast_enabled}
    return any(known.get(device, torch.is_autocast_enabled(device)) for device in devices)
