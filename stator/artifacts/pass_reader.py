"""Compiled graphs from data.   text, names, bytes  ->  functions that call the passes of a graph

In: data of `pass_data.py`.  Out: a function that calls the passes directly.  AOTAutograd, lowering and compilers do not
run, and are not imported.
"""

from __future__ import annotations

import base64
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx

from stator.artifacts.container import Json
from stator.artifacts.environment import first_difference
from stator.artifacts.kernel_files import Launch, load_kernel, load_triton
from stator.artifacts.made_objects import Note, Restorer
from stator.artifacts.raw_steps import Data, Thing
from stator.artifacts.value_reader import Stale
from stator.backends.aot_wrappers import WrappedPasses, conditions_now, note_conditions
from stator.backends.autograd_passes import JoinedPasses
from stator.graph.fx.graph_modules import TEXT, make_captured, make_graph_module

if TYPE_CHECKING:
    from stator.emit.resume.advance import Points

LOADED = "<stator inductor>"  # the file name of a pass that was read from a file
_ALIGNMENT = 16  # bytes, as kernels of Inductor expect


@dataclass(eq=False)
class BoxedPass:
    """A graph of AOTAutograd that runs as it is; takes its arguments as a list."""

    run: Callable[..., Any]

    def __call__(self, args: list[Any]) -> Thing:
        given = [*args]
        args.clear()
        return self.run(*given)


@dataclass(eq=False)
class AlignedPass:
    """A pass that relies on the alignment of inputs: copies others first, and writes those copies back."""

    run: Callable[..., Any]
    places: list[int]
    written: list[int]

    def __call__(self, args: list[Any]) -> Thing:
        copied: list[tuple[torch.Tensor, torch.Tensor]] = []
        for place in self.places:
            given = args[place]
            if given.data_ptr() % _ALIGNMENT:
                extent = 1 + sum([(size - 1) * step for size, step in zip(given.shape, given.stride(), strict=True)])
                flat = torch.as_strided(given, (extent if given.numel() else 0,), (1,)).clone()
                args[place] = torch.as_strided(flat, given.shape, given.stride())
                if place in self.written:
                    copied.append((given, args[place]))
        out = self.run(args)
        for given, changed in copied:
            given.copy_(changed)
        return out


class PassReader(Restorer):
    """Make entries with their compiled graphs."""

    def __init__(self, rows: list[list[Json]], root: types.FunctionType, points: Points | None,
                 blobs: dict[str, bytes]) -> None:
        super().__init__(rows, root, points)
        self.blobs = blobs
        for kind in ("wrapped", "joined", "generated", "namespace", "kernel", "triton", "aligned",
                     "graph", "tensor"):
            self.made_by(kind, getattr(self, f"_{kind}"))
        self.made_by("method of graph", self._graph_method)

    def _made(self, number: int, data: Data) -> object:
        facts: Data = self.rows[number][1]
        if facts is not None:
            why = first_difference(conditions_now("threads" in facts[1]), facts[1])
            if why is not None:
                raise Stale(why)
        made = super()._made(number, data)
        if facts is not None:
            note_conditions(made, facts[1])
        return made

    def _wrapped(self, data: Data, note: Note) -> object:
        made = WrappedPasses(*map(self.value, data))
        made.build()
        return made

    def _joined(self, data: Data, note: Note) -> object:
        inputs, count, steps, returned, unused, autocast = data
        joined = JoinedPasses(inputs, count, self.value(steps), returned, unused, self.value(autocast))
        joined.build()
        return joined

    def _generated(self, data: Data, note: Note) -> object:
        text, held = data
        names = {name: self.value(item) for name, item in held.items()}
        names[TEXT] = text
        exec(compile(text, LOADED, "exec"), names)  # noqa: S102  Inductor's, under the signature
        return names["call"]

    def _namespace(self, data: Data, note: Note) -> object:
        return types.SimpleNamespace(**{name: self.value(item) for name, item in data[0]})

    def _kernel(self, data: Data, note: Note) -> object:
        return load_kernel(self.blobs[f"kernels/{data[0]}"], data[0])

    def _triton(self, data: Data, note: Note) -> object:
        return load_triton(Launch(*data[1:]), self.blobs[f"kernels/{data[0]}"])

    def _aligned(self, data: Data, note: Note) -> object:
        return AlignedPass(self.value(data[0]), data[1], data[2])

    def _graph_method(self, data: Data, note: Note) -> object:
        return getattr(self.value(data[0]), data[1])

    def _graph(self, data: Data, note: Note) -> object:
        rows, inner = data
        graph = fx.Graph()
        nodes: list[fx.Node] = []

        def argument(value: Thing) -> Thing:
            kind = value[0]
            if kind == "node":
                return nodes[value[1]]
            if kind in ("tuple", "list"):
                return (tuple if kind == "tuple" else list)([argument(each) for each in value[1:]])
            if kind == "dict":
                return {key: argument(item) for key, item in value[1:]}
            return slice(*map(argument, value[1:])) if kind == "slice" else self.value(value[1])

        for op, name, target, args, kwargs, dtypes, trace in rows:
            nodes.append(graph.create_node(op, self.value(target), argument(args), argument(kwargs), name))
            nodes[-1].meta = {"val": examples(dtypes), "stack_trace": trace}
        held = {name: self._tensor(each[1][1:], note) if each[0] == "constant" else self.value(each)
                for name, each in inner.items()}
        return make_graph_module(graph, held) if inner else make_captured(graph, held, [])

    def _tensor(self, data: Data, note: Note) -> object:
        dtype, shape, text = self.value(data[0]), data[1], base64.b64decode(data[2])
        if not text:
            return torch.empty(shape, dtype=dtype)
        return torch.frombuffer(bytearray(text), dtype=dtype).reshape(shape)


def examples(dtypes: Thing) -> Thing:
    """Tensors of these dtypes, without memory."""
    if type(dtypes) is str:
        return torch.empty(0, dtype=getattr(torch, dtypes), device="meta")
    return None if dtypes is None else [examples(each) for each in dtypes]


