"""Show the program's frames in the error of a graph.   IndexError in node 7  ->  its traceback has the line of node 7

In: an error that a graph raised and that is raised as it is (see failing_calls).  Out: the same error, whose traceback
opens with the frames in which the program recorded the failing node, in place of those of the graph and its compiler.

The traceback tells the node: the graph's own code has one line a node, be it written by straight_line or by FX, for the
captured graph or for the one that AOTAutograd made of it.  Nodes of the latter keep the stack traces of the former.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Iterator
from typing import Any

from torch import fx

from stator.graph.fx.graph_modules import FILENAME, STANDING, stands
from stator.interp.tracebacks import Place, with_place

Standing = tuple[str, int | None]  # the stack trace of a node; the offset of the innermost instruction, where known


def places_in(graph: fx.Graph, places: dict[str, Place]) -> dict[str, Place]:
    """The frames in which the nodes of a graph were recorded, by their lines in stack traces."""
    texts = {node.meta.get("stack_trace") or "" for node in graph.nodes}
    lines = {line for text in texts for line in text.splitlines(True)}
    return {line.strip(): places[line] for line in lines if line in places}


def show_program(error: BaseException, places: dict[str, Place]) -> None:
    """Put the frames of the program into the traceback of an error of its graph."""
    found = None
    for trace, standing in failing_nodes(error.__traceback__):
        if standing[0]:
            found = trace, standing  # the innermost: graphs call others
    if found is None:
        return
    text, offset = found[1]
    frames = [places[line.strip()] for line in text.splitlines() if line.strip() in places]
    if frames and offset is not None:
        frames[-1] = dataclasses.replace(frames[-1], lasti=offset)
    traceback = found[0].tb_next
    for place in reversed(frames):
        traceback = with_place(traceback, place)
    error.__traceback__ = traceback


def failing_nodes(trace: types.TracebackType | None) -> Iterator[tuple[types.TracebackType, Standing]]:
    """The frames of graphs in a traceback, with the place of the node that each stands at."""
    stretch: list[Standing] = []
    while trace is not None:
        code = trace.tb_frame.f_code
        if code.co_filename == FILENAME:
            standing = trace.tb_frame.f_globals.get(STANDING, {}).get(trace.tb_lineno)
            if type(standing) is list:
                stretch = standing
            elif standing is not None:
                yield trace, stretch[standing] if type(standing) is int else standing
        elif code.co_name == "forward" and isinstance(module := trace.tb_frame.f_locals.get("self"), fx.GraphModule):
            node = node_at(module, trace.tb_lineno)
            if node is not None:
                yield trace, stands(node)
        trace = trace.tb_next


def node_at(module: fx.GraphModule, line: int) -> fx.Node | None:
    """The node that a line of a graph module's code runs."""
    lines: Any = getattr(module, "_lineno_map", None) or {}
    index = lines.get(line - getattr(module, "_prologue_start", 0))
    nodes = list(module.graph.nodes)
    return nodes[index] if index is not None and index < len(nodes) else None
