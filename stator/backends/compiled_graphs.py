"""Compile one graph once.   a graph whose content was compiled before  ->  the compiled graph there is

In: a captured graph and its settings.  Out: its compiled form, from the backend or from an earlier capture of equal
content.  The key is complete, or the graph is compiled for itself (`Unkeyed`).  Symbols are numbered in the order of
the graph; ranges and guards over them belong to the key.  User-defined backends share within one code object alone.
"""

from __future__ import annotations

import importlib
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from stator import events
from stator.backends.background.jobs import require_compiled
from stator.backends.compilation import compile_graph
from stator.backends.cuda_graphs import records_cuda_graphs
from stator.backends.eager import NEED_NO_CODE
from stator.backends.graph_key import Contents, Key, Same, Unkeyed, graph_key, shared
from stator.backends.inductor import config_patches
from stator.backends.registry import Backend, find_backend
from stator.graph.analysis.may_fail import CAUGHT
from stator.graph.analysis.mutation import is_repeatable, is_torchs
from stator.graph.fx.graph_modules import AT
from stator.guards.global_state import global_state
from stator.settings.options import Settings
from stator.shapes.environment import TraceEnvironment
from stator.shapes.symbolic_values import SYMBOLIC
from stator.shapes.tensor_marks import ADDRESS_MARK
from stator.source import unpinned

MOST_GRAPHS, MOST_ALIKE = 64, 3  # kept for later captures: contents, the last used ones, and older graphs of each
_UNSEEN = frozenset({"backend", "options", "name", "recompile_limit", "isolate_recompiles", "strict", "audit",
                     "shapes", "shapes_spec", "start"})
_CONFIGS = ("torch._functorch.config", "torch._inductor.config")
_SWITCHES: tuple[Callable[[], object], ...] = (
    global_state, torch.get_float32_matmul_precision, torch.get_num_threads, torch.is_anomaly_enabled,
    torch.backends.cuda.flash_sdp_enabled, torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled, torch.backends.cuda.cudnn_sdp_enabled,
    torch._C._get_cublas_allow_fp16_reduced_precision_reduction,
    torch._C._get_cublas_allow_bf16_reduced_precision_reduction,
    torch._C._get_cudnn_enabled, torch._C._get_cudnn_deterministic, torch._C._get_mkldnn_enabled,
    torch._C._get_deterministic_fill_uninitialized_memory)


@dataclass
class CompiledGraph:
    """One compiled graph, and the facts about symbols that its backend needed."""

    compiled: Callable[..., object]
    guards: list[sympy.Basic]
    relied: set[sympy.Basic]
    maker: Callable[[], object]  # the resume points of the compile() call that had it compiled, while they live


@dataclass(frozen=True)
class Requester:
    """The requester of a graph: the code objects of the place, and the resume points of its compile() call."""

    codes: tuple[object, ...]
    points: object


_graphs: OrderedDict[Key, list[CompiledGraph]] = OrderedDict()  # several, where backends specialise symbols


def forget() -> None:
    _graphs.clear()


def compile_once(gm: fx.GraphModule, example_inputs: Sequence[object], settings: Settings, fake_mode: FakeTensorMode,
                 grad_enabled: bool, requester: Requester | None) -> Callable[..., object]:
    """Compile `gm`, or return the compiled graph of equal content; `requester` None: compile it for itself."""
    def share(piece: fx.GraphModule, given: Sequence[object], grad: bool,
              compile_it: Callable[[], Callable[..., object]]) -> Callable[..., object]:
        return find_or_compile(piece, given, settings, fake_mode, grad, requester, compile_it)

    def compile_here() -> Callable[..., object]:
        if settings.starts_eagerly:  # after another process has filled the caches
            require_compiled(gm, example_inputs, settings, grad_enabled)
        return compile_graph(gm, example_inputs, settings, fake_mode, grad_enabled, share)

    return share(gm, example_inputs, grad_enabled, compile_here)


def find_or_compile(gm: fx.GraphModule, example_inputs: Sequence[object], settings: Settings,
                    fake_mode: FakeTensorMode, grad_enabled: bool, requester: Requester | None,
                    compile_it: Callable[[], Callable[..., object]]) -> Callable[..., object]:
    backend = find_backend(settings.backend)
    if requester is None or backend.function in NEED_NO_CODE:
        return compile_it()
    try:
        symbols = _Symbols(fake_mode.shape_env)
        key = key_of(gm, example_inputs, settings, backend, symbols, grad_enabled, requester)
        known = _graphs.get(key, [])
    except Unkeyed:
        return compile_it()
    for found in known:
        if (backend.takes_settings or found.maker() is not requester.points) and symbols.take(found):
            _graphs.move_to_end(key)
            events.emit(events.GraphShared(backend.name, len(gm.graph.nodes)))
            return found.compiled
    for node in gm.graph.find_nodes(op="placeholder"):
        if "source" in node.meta:
            node.meta["source"] = unpinned(node.meta["source"])
    compiled = compile_it()
    try:
        _graphs[key] = [CompiledGraph(compiled, *symbols.asked(), weakref.ref(requester.points)), *known[:MOST_ALIKE]]
    except Unkeyed:
        return compiled
    _graphs.move_to_end(key)
    while len(_graphs) > MOST_GRAPHS:
        _graphs.popitem(last=False)
    return compiled


def key_of(gm: fx.GraphModule, example_inputs: Sequence[object], settings: Settings, backend: Backend,
           symbols: _Symbols, grad_enabled: bool, requester: Requester) -> Key:
    """The graph, who may have it, and every setting that its backend sees."""
    if records_cuda_graphs(settings) or torch._C._autograd._top_saved_tensors_default_hooks(False):
        raise Unkeyed("CUDA graphs, or hooks of saved tensors")
    contents = _WholeContents(gm, symbols, settings.backend != "inductor")
    content = graph_key(contents), contents.of(list(example_inputs), None), shared(example_inputs)
    owner = None if backend.takes_settings else tuple(map(Same, requester.codes))
    chosen = tuple([(each.name, getattr(settings, each.name)) for each in fields(settings) if each.name not in _UNSEEN])
    return (content, symbols.facts(), Same(backend.function), owner, chosen, contents.of(dict(settings.options), None),
            contents.of(_configs(settings) if backend.takes_settings else None, None), grad_enabled, _switches())


def _switches() -> Key:
    casts = [(device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
             for device in torch._C._autocast_supported_devices()]
    device = torch.cuda.current_device() if torch.cuda.is_initialized() else None
    return tuple(casts), device, tuple([read() for read in _SWITCHES])


def _configs(settings: Settings) -> list[dict[str, object]]:
    """Settings of torch's compilers, which a backend of Stator reads."""
    names = _CONFIGS if settings.backend == "inductor" else _CONFIGS[:1]
    found = [importlib.import_module(name).get_config_copy() for name in names]
    if settings.backend == "inductor" and (found[1] | config_patches(settings)).get("freezing"):
        raise Unkeyed("parameters that become constants")
    return found


class _WholeContents(Contents):
    """Contents that hold across captures: symbols by number, and no object that only its identity tells."""

    def __init__(self, owner: fx.GraphModule, symbols: _Symbols, located: bool) -> None:
        super().__init__(owner)
        self.symbols, self.located = symbols, located

    def of_graph(self, module: fx.GraphModule) -> Key:
        return graph_key(_WholeContents(module, self.symbols, self.located))

    def callee(self, node: fx.Node) -> Key:
        if node.op != "call_function" or not is_repeatable(node) or not is_torchs(node.target):
            raise Unkeyed(f"a call of {node.target}")
        return Same(node.target)

    def of_input(self, node: fx.Node, value: object) -> Key:
        if node.meta.get("tensor_dict", {}).get(ADDRESS_MARK) == "guarded":
            raise Unkeyed("an input that stays at its address")
        return super().of_input(node, value), node.type

    def marks(self, node: fx.Node) -> Key:
        place = (node.meta.get("stack_trace"), node.meta.get(AT)) if self.located else None
        return super().marks(node), node.meta.get(CAUGHT), place

    def other(self, value: object) -> Key:
        raise Unkeyed(f"a value of {type(value)}")

    def number(self, value: torch.SymInt) -> Key:
        return "symbolic", self.symbols.numbered(value.node.expr)

    def layout(self, fake: FakeTensor) -> Key:
        with torch._C.DisableTorchFunction():
            if type(fake) is not FakeTensor or fake.item_memo is not None:
                raise Unkeyed("a subclass of tensors, or a tensor with a known value")
            try:
                size, leaf = fake.untyped_storage().nbytes(), fake.is_leaf
            except RuntimeError as error:  # a sparse tensor, a view that a write has spoilt
                raise Unkeyed(str(error)) from None
            more = (leaf, fake._is_view(), torch._C._dispatch_keys(fake).raw_repr(),
                    self.number(size) if type(size) in SYMBOLIC else size)
        return super().layout(fake), more


class _Symbols:
    """The symbols of one shape environment by number, in order of appearance."""

    def __init__(self, env: object) -> None:
        if type(env) is not TraceEnvironment or env.var_to_hint_override:
            raise Unkeyed("a shape environment of its own kind")
        self.env = env
        self.numbers: dict[sympy.Symbol, sympy.Symbol] = {}
        self.replacements = dict(env.replacements)
        self.known = len(env.guards)

    def numbered(self, expression: sympy.Basic) -> sympy.Basic:
        new = expression.free_symbols - self.numbers.keys()
        if len(new) > 1 or not new <= self.env.backed_var_to_val.keys():
            raise Unkeyed("an unbacked symbol, or two that appear together")
        for symbol in new:
            self.numbers[symbol] = sympy.Symbol(f"n{len(self.numbers)}", **symbol.assumptions0)
        return expression.xreplace(self.numbers)

    def facts(self) -> Key:
        ranges = [(number, self.env.var_to_range.get(symbol), symbol in self.env.sizes)
                  for symbol, number in self.numbers.items()]
        return (tuple([(number, known and (known.lower, known.upper), size) for number, known, size in ranges]),
                frozenset(self._expressions(0, self.known)))

    def _expressions(self, start: int, end: int | None) -> list[sympy.Basic]:
        found = []
        for guard in self.env.guards[start:end]:
            expression = guard.expr.xreplace(self.replacements)
            if not expression.free_symbols.isdisjoint(self.numbers):
                if not expression.free_symbols <= self.numbers.keys():
                    raise Unkeyed("a guard over symbols that are not in the graph")
                found.append(expression.xreplace(self.numbers))
        return found

    def asked(self) -> tuple[list[sympy.Basic], set[sympy.Basic]]:
        """Guards that the backend added, and sizes of which it relied on being 2 at least."""
        relied = self.env.relied & self.numbers.keys()
        return self._expressions(self.known, None), {self.numbers[each] for each in relied}

    def take(self, found: CompiledGraph) -> bool:
        """Add the guards of a compiled graph, if they hold in this call."""
        own = {number: symbol for symbol, number in self.numbers.items()}
        guards = [guard.xreplace(own) for guard in found.guards]
        if any(guard.xreplace(self.env.backed_var_to_val) is not sympy.true for guard in guards):
            return False
        for guard in guards:
            self.env.evaluate_expr(guard)
        self.env.relied |= {own[number] for number in found.relied}
        return True
