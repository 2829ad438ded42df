"""A graph on its way to a worker process.   graph, fakes, settings  <->  bytes

In: a captured graph, in the process of the program.  Out: the same in the worker (`unpacked`), on a shape environment
and a fake mode of its own.  Objects of the program are not sent.  The bytes are read by a process that the writer has
started, and are kept in an unnamed file.
"""

from __future__ import annotations

import importlib
import io
import pickle
import sys
from dataclasses import replace
from typing import Any

import torch
from torch import fx
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.meta_utils import MetaConverter, MetaTensorDescriber
from torch.fx.experimental.sym_node import SymNode
from torch.fx.experimental.symbolic_shapes import ShapeEnv, ValueRangesSLoc
from torch.fx.node import map_arg
from torch.utils._mode_utils import no_dispatch

from stator.backends.cuda_graphs import is_member_of_module
from stator.graph.analysis.autograd_boundaries import BOUNDARY, BUCKET
from stator.graph.fx.graph_modules import NAMED_REGION, LateGraphModule, make_captured, make_graph_module
from stator.graph.state.torch_state import GRAD_MODE, SETTINGS
from stator.settings.options import Settings
from stator.shapes.environment import SavedName, TraceEnvironment
from stator.shapes.symbolic_values import SYMBOLIC
from stator.shapes.tensor_marks import ADDRESS_MARK

_CONFIGS = ("torch._inductor.config", "torch._functorch.config")
_SYMBOLS = ("backed_var_to_val", "var_to_val", "var_to_range", "var_to_sources", "source_to_var", "source_to_symbol",
            "replacements", "divisible", "unbacked_renamings", "size_like", "sizes", "val_to_var",
            "unbacked_symint_counter", "unbacked_symfloat_counter", "var_to_hint_override", "unbacked_inputs",
            "unbacked_alloc_order", "unique_ids", "_replacements_version_counter", "_version_counter")
# What compilers and Stator's own stages read of a node.
_METADATA = frozenset({"example_value", "tensor_dict", "unbacked_bindings", "stack_trace", BOUNDARY, "is_branch",
                       "recompute", "ac_graph_id", NAMED_REGION, BUCKET})
State = list[tuple[int, tuple[Any, ...], tuple[Any, ...]]]


def ambient_state() -> State:
    """Torch's settings around the graph, by their numbers."""
    return [(number, key, setting.read(*key)) for number, setting in enumerate(SETTINGS) if setting is not GRAD_MODE
            for key in ([()] if not setting.keys else [("cpu",), ("cuda",)] if setting.keys == 1 else [])]


def apply_state(state: State) -> None:
    for number, key, value in state:
        if SETTINGS[number].read(*key) != value:
            SETTINGS[number].setter(*key, *value)


def packed(gm: fx.GraphModule, inputs: list[Any], settings: Settings, grad_enabled: bool, state: State) -> bytes:
    """All that a worker needs."""
    configs = {name: sys.modules[name].save_config_portable(ignore_private_configs=False)  # type: ignore[attr-defined]
               for name in _CONFIGS if name in sys.modules}
    named = isinstance(settings.regions, tuple)  # by marks on the nodes from here on
    sent = replace(settings, regions=("named",)) if named else settings
    stream = io.BytesIO()
    GraphPickler(stream, pickle.HIGHEST_PROTOCOL).dump((gm, inputs, sent, grad_enabled))
    return pickle.dumps((configs, state, torch.is_inference_mode_enabled(), torch.get_num_threads(),
                         sys.getrecursionlimit(), stream.getvalue()))


def unpacked(data: bytes) -> tuple[fx.GraphModule, list[Any], Settings, bool, FakeTensorMode, bool]:
    """Return the arguments of `packed`, the fake mode and inference mode; restore the settings of torch."""
    configs, state, inference, threads, limit, graph = pickle.loads(data)
    for name, config in configs.items():
        importlib.import_module(name).load_config(config)
    torch.set_num_threads(threads)  # generated code depends on it
    sys.setrecursionlimit(limit)
    apply_state(state)
    unpickler = GraphUnpickler(io.BytesIO(graph))
    sent = unpickler.load()
    vars(unpickler.mode.shape_env).update(unpickler.learned)
    return *sent, unpickler.mode, inference


class GraphPickler(pickle.Pickler):
    """Writes graphs, fakes, symbols and operators as data."""

    def __init__(self, stream: io.BytesIO, protocol: int) -> None:
        super().__init__(stream, protocol)
        self.describer = MetaTensorDescriber(copy_data=False)
        self.reader = object()  # stands for the unpickler

    def persistent_id(self, value: object) -> str | None:
        return "reader" if value is self.reader else None

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            if type(value) is not FakeTensor:
                raise pickle.PicklingError(f"a tensor of type {type(value).__name__}")
            return GraphUnpickler.fake, (self.reader, under_mode(self.describer.describe_tensor(value), None))
        if isinstance(value, torch.Tensor):
            raise pickle.PicklingError("the graph holds a tensor of the program")
        if isinstance(value, fx.GraphModule):
            inner = {name: each for name, each in value.named_children() if isinstance(each, fx.GraphModule)}
            return make_graph, (written_nodes(value), inner, isinstance(value, LateGraphModule))
        if isinstance(value, ShapeEnv):
            symbols = {name: getattr(value, name) for name in _SYMBOLS if name in vars(value)}
            return GraphUnpickler.environment, (self.reader, symbols)
        if type(value) in SYMBOLIC:
            node = value.node
            return make_symbol, (type(value), node._expr, node.shape_env, node.pytype, node._hint)
        if isinstance(value, (OpOverload, OpOverloadPacket)):
            return find_operator, (str(value),)
        if isinstance(value, HigherOrderOperator):
            return find_operator, (f"higher_order.{value.name()}",)
        return NotImplemented


class GraphUnpickler(pickle.Unpickler):
    """Makes them again, on one fake mode."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream)
        self.mode = FakeTensorMode(shape_env=TraceEnvironment(), allow_non_fake_inputs=False)
        self.converter: MetaConverter[Any] = MetaConverter()
        self.learned: dict[str, Any] = {}  # of symbols, after sizes were made of them

    def persistent_load(self, identifier: object) -> object:
        return self

    def fake(self, described: object) -> object:
        def made(make: Any, device: object) -> FakeTensor:
            with no_dispatch():
                return FakeTensor(self.mode, make(), device)

        return self.converter.meta_tensor(under_mode(described, self.mode), self.mode.shape_env, made, None, None)

    def environment(self, symbols: dict[str, Any]) -> object:
        environment: Any = self.mode.shape_env
        self.learned = {name: symbols.pop(name) for name in ("replacements", "_replacements_version_counter")
                        if name in symbols}
        vars(environment).update(symbols)
        here = ValueRangesSLoc(environment._get_sloc(), environment._get_sloc())
        environment.var_to_range_sloc = dict.fromkeys(symbols["var_to_range"], here)
        return environment


def under_mode(described: Any, mode: FakeTensorMode | None) -> Any:
    """The description of a fake, and of its base, with this fake mode."""
    base = None if described.base is None else under_mode(described.base, mode)
    return replace(described, fake_mode=mode, base=base)


def make_symbol(cls: type, expression: object, environment: object, kind: type, hint: object) -> Any:
    return cls(SymNode(expression, environment, kind, hint))


def find_operator(name: str) -> object:
    found: Any = torch.ops
    for part in name.split("."):
        found = getattr(found, part)
    return found


class Ref(int):
    """The number of a node, among its arguments."""


def written_nodes(gm: fx.GraphModule) -> list[tuple[object, ...]]:
    """The nodes of a graph as data: of the source of an input, its text and whether it is a parameter or a buffer."""
    numbers = {node: Ref(number) for number, node in enumerate(gm.graph.nodes)}
    return [(node.op, node.name, node.target, *map_arg((node.args, node.kwargs), numbers.__getitem__),
             {name: value for name, value in node.meta.items() if name in _METADATA},
             [(source.text(), is_member_of_module(source)) for source in [node.meta.get("source")] if source])
            for node in numbers]


def make_graph(written: list[tuple[Any, ...]], inner: dict[str, fx.GraphModule], whole: bool) -> fx.GraphModule:
    """`whole`: the graph of a segment, not one that an operator calls; caches tell their classes apart."""
    graph = fx.Graph()
    nodes: list[fx.Node] = []

    def read(value: object) -> Any:
        return fx.node.map_aggregate(value, lambda each: nodes[each] if type(each) is Ref else each)

    for op, name, target, args, kwargs, meta, sources in written:
        nodes.append(graph.create_node(op, target, read(args), read(kwargs), name))
        nodes[-1].meta = meta
        for text, is_member in sources:
            meta["source"] = SavedName(text)
            if is_member:
                meta["tensor_dict"] = {ADDRESS_MARK: "unguarded"}
    return make_captured(graph, inner, []) if whole else make_graph_module(graph, inner)
