"""Call pieces one after the other.   steps  ->  one Python function, a line for each piece

    v9, v10, = p0(v1, v2, v3)
    v11, v12, = p1(v9, v10, v4); v9 = v10 = None

A value is let go where it is used last, as in the graph.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import fx

from stator.backends.regions.extraction import Piece
from stator.backends.regions.flow import Flow
from stator.graph.fx.graph_modules import TEXT, Source, last_uses

FILENAME = "<stator regions>"


def stitch(flow: Flow, steps: list[Piece | fx.Node], directly: bool = False) -> Callable[..., Any]:
    """`steps`: compiled pieces, and nodes that run between them; `directly`: call their passes."""
    source = Source()
    names = {node: f"v{number}" for number, node in enumerate(flow.inputs)}
    lines = [f"def graph({', '.join(names.values())}):"]
    kept = set(flow.inputs)
    uses: list[tuple[Any, list[fx.Node]]] = [
        (number, step.inputs if isinstance(step, Piece) else step.all_input_nodes) for number, step in enumerate(steps)]
    dying = last_uses([*uses, (None, flow.output.all_input_nodes)])  # type: ignore[list-item]
    for number, step in enumerate(steps):
        if isinstance(step, Piece):
            given = ", ".join([names[node] for node in step.inputs])
            call = f"{source.constant(step.direct.forward, 'p')}([{given}])" if directly else \
                f"{source.constant(step.function, 'p')}({given})"
            for node in step.outputs:
                names[node] = f"v{len(names)}" if flow.last_use.get(node, -1) >= step.stop else "_"
            left = "".join([f"{names[node]}, " for node in step.outputs])
            lines.append(f"    {left}= {call}" if left else f"    {call}")
        else:
            text = source.call(step, names)
            names[step] = f"v{len(names)}"
            lines.append(f"    {names[step]} = {text}")
        gone = [names[node] for node in dying[number] if node not in kept]  # type: ignore[index]
        if gone:
            lines[-1] += f"; {' = '.join(gone)} = None"
    lines.append(f"    return {source.text(flow.output.args[0], names)}")
    source.names[TEXT] = "\n".join(lines)
    exec(compile(source.names[TEXT], FILENAME, "exec"), source.names)  # noqa: S102  our own text
    return source.names["graph"]  # type: ignore[no-any-return]
