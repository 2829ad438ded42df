"""Record torch calls into an FX graph.   torch.relu(fake x)  ->  a call_function node, and the fake result

Every fake tensor of the trace is tied to the node that makes it.  Calls whose result holds no tensor
(shapes, dtypes) are answered from metadata, which the tensor guards of the inputs make a constant.
"""

from __future__ import annotations

import builtins
import collections
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.utils import _pytree as pytree
from torch.utils._device import _device_constructors

from stator.breaks import Break, Strategy
from stator.graph.analysis import may_fail, mutation, refused_types
from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.graph.analysis.shared_memory import Uncertain, is_pointwise, wants_gradient
from stator.graph.fx.nodes import field_names, new_node, record_arguments, spell, spelled_types
from stator.graph.metadata.input_layouts import EntryLayouts
from stator.graph.metadata.recurrent_layers import results_of_layer
from stator.graph.record import refused_operations as refused
from stator.graph.record.input_recorder import InputRecorder
from stator.graph.record.item_layouts import require_known_strides
from stator.graph.record.nested_tensors import MAKERS
from stator.graph.record.recorder_state import RecordingMode, Region, WriteLog
from stator.graph.record.tensor_index import with_masks
from stator.graph.record.wrapper_subclasses import Wrappers
from stator.graph.state.quiet_logging import keep_quiet, muted
from stator.graph.state.torch_state import TorchState
from stator.graph.values import known_values
from stator.graph.values.branch_guards import ahead_of_scalar
from stator.graph.values.graph_numbers import InputItems
from stator.host.value_kinds import is_a
from stator.shapes.environment import UNKNOWN, TraceEnvironment
from stator.shapes.symbolic_values import SYMBOLIC, data_dependent, has_unbacked

_INDEXED = frozenset({"index_put", "index_put_", "index", "index.Tensor"})  # whose lists of tensors are no sizes
# Newer torch has a class of its own; devices of real tensors may agree where those of fakes do not.
_DEVICE_MISMATCH: Any = getattr(fake_tensor, "FakeTensorDeviceMismatchError", fake_tensor.UnsupportedOperatorException)
_NO_FAKE = "There was no fake impl registered"  # what torch.library raises for a custom operator without one
_TORCH_BUG = "INTERNAL ASSERT FAILED"
_NO_DATA = "its data is not allocated yet"
_STORAGES = (torch.UntypedStorage, torch.TypedStorage)
_getitem = spell(torch.Tensor.__getitem__)[1]
_WARNING = frozenset({"grad", "T"})  # attributes that warn


class Recorder(InputRecorder):
    """One FX graph under construction."""

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        super().__init__(fake_mode)
        self.wrappers = Wrappers(self)
        self.log = WriteLog()
        self.region = Region()
        self.mode = RecordingMode(self)
        self.known = known_values.KnownValues(self)
        self.items = InputItems(self, self.known)
        if type(fake_mode.shape_env) is TraceEnvironment:
            fake_mode.shape_env.settle = self.known.of_number
        self.torch_state = TorchState()
        self.layouts = EntryLayouts(self)
        self.roles: collections.Counter[str] = collections.Counter()  # how many inner graphs of each sort there are
        self.uncertain = Uncertain()
        self.slots_used: set[Any] = set()  # special methods of Tensor, by name or as (stem, on the left, in place)
        self.slice_bounds: dict[Any, Any] = {}  # numbers brought into a size (interp/tensors/tensor_items)

    def clear(self) -> None:
        wrappers = self.wrappers
        for held in (self.inputs, self.nodes, self.kept, self.classes,
                     wrappers.behind, wrappers.outers, wrappers.parts):
            held.clear()

    def node_of(self, fake: FakeTensor) -> fx.Node:
        """The node that makes a fake tensor (a getitem of a multi-output node is made on first use)."""
        node = self.nodes.get(id(fake))
        if node is None or type(node) is Break:  # not to be used again (interp/tensors/tensor_bookkeeping)
            raise node or Break("SB005", "a tensor that did not come through the recorder")
        if type(node) is tuple:
            parent, index = node
            node = self.graph.create_node("call_function", _getitem, (self._resolve(parent), index), {})
            node.meta["example_value"] = fake
            node.meta["stack_trace"] = node.args[0].meta.get("stack_trace")
            self.nodes[id(fake)] = node
        return node

    def _resolve(self, parent: object) -> fx.Node:
        if type(parent) is not tuple:
            return parent
        return self.graph.create_node("call_function", _getitem, (self._resolve(parent[0]), parent[1]), {})

    def is_written(self, fake: FakeTensor) -> bool:
        return self.propagation.memory_behind(fake) in self.log.memory

    def to_node_arg(self, value: Any) -> Any:
        cls = type(value)
        if cls is FakeTensor:
            return self.node_of(value)
        if cls in refused.ATOMS or cls is fx.Node:
            return value
        if cls in SYMBOLIC:
            return self.symbols.node_of(value)
        if cls is torch.Size:
            return self.symbols.sizes(tuple([self.to_node_arg(item) for item in value]))
        if cls is tuple or cls is list:
            return cls([self.to_node_arg(item) for item in value])
        if cls is dict:
            return {key: self.to_node_arg(item) for key, item in value.items()}
        if cls is slice:
            return slice(self.to_node_arg(value.start), self.to_node_arg(value.stop), self.to_node_arg(value.step))
        if is_a(value, (tuple, list)):
            return type(value)(*[self.to_node_arg(i) for i in value]) if hasattr(value, "_fields") \
                else [self.to_node_arg(i) for i in value]
        if is_a(value, (int, float, str)):
            return value
        if is_a(value, fx.GraphModule):
            return self.inner_graph(value)
        if cls is torch.Generator and id(value) in self.nodes:
            return self.nodes[id(value)]
        if is_a(value, (torch._C._SDPBackend, type)) or callable(value):
            return value
        names = field_names(cls)
        if names is None:
            raise Break("SB005", f"a {cls.__name__} passed to a torch operation")
        fields = {name: self.to_node_arg(item) for name, item in record_arguments(value, names).items()}
        return self.graph.create_node("call_function", cls, (), fields)

    def inner_graph(self, module: fx.GraphModule) -> fx.Node:
        """The name of an inner graph, which a higher-order operation takes."""
        role = module.meta.get("role", "inner")
        name = f"{role}_{self.roles[role]}"
        self.roles[role] += 1
        self.scope.inner_graphs[name] = module
        return self.graph.create_node("get_attr", name, (), {})

    def refuse_tangents(self, what: str) -> None:
        """Break where tensors may have tangents, of which `what` knows nothing."""
        if self.region.tangents:
            raise Break("SB016", f"{what} inside forward-mode differentiation")

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.services.before_saving(args, kwargs)
        op, target = spell(func)
        if self.wrappers.concern((args, kwargs)) or func in MAKERS:
            return self.wrappers.call(func, op, target, args, kwargs)
        if target == "item":
            number = self.items.number_of(args[0])
            if number is not None:
                return number
        if target == "stride" or target == "is_contiguous" and (kwargs or len(args) > 1):
            self._refuse_empty(args[0])
            if target == "stride" and type(args[0]) is FakeTensor:
                require_known_strides(self, args[0], args[1] if len(args) > 1 else kwargs.get("dim"))
        if op == "setattr":
            raise Break("SB006", f"assignment to Tensor.{target}")
        for value in args:
            if is_a(value, _STORAGES):
                raise Break("SB005", f"the storage of a tensor, passed to {getattr(target, '__name__', target)}")
        if self.torch_state.devices and kwargs.get("device") is None and func in _device_constructors():
            kwargs = {**kwargs, "device": self.torch_state.devices[-1]}
        refused.refuse_real_tensors(args)
        if kwargs:
            refused.refuse_real_tensors(kwargs.values())
        refused.refuse_misread(target)
        declared = mutation.declared_writes(func, args, kwargs)  # None: to be observed
        if self.uncertain.storages:
            self.uncertain.check(target, bool(declared), args, kwargs)
        why = refused.check_outputs(func, args, kwargs) if declared and kwargs else ""
        if why and self.backend.overlaps is not None:
            self.backend.overlaps.found = self.backend.overlaps.found or why
        key = self.propagation.key(func, args, kwargs, bool(declared))
        entry = None if key is None else self.propagation.find(key, func, args, kwargs, bool(declared))
        result = self.propagation.recall(entry, args)
        if result is not None:
            self.record(op, target, args, kwargs, result)
            return result
        asked = args, kwargs
        seen = mutation.Observation(func, args, kwargs) if declared is None else None
        # Without a schema, only functions of the user may give a tensor another layout.
        before = self.layouts.before(args, kwargs) if declared or seen is not None and seen.opaque else None
        versions = mutation.versions_of(declared) if declared else []
        stream = kwargs.get("generator")
        undoing = nullcontext() if mutation.is_repeatable_target(func) else self.services.undoing(func)
        if not mutation.is_repeatable_target(func):  # even now; torch would run it on constants
            known_values.forget_constants(mutation.tensors_in((args, kwargs)), ())
        if declared:
            known_values.forget_written(declared, mutation.tensors_in((args, kwargs)))
        noted = None if key is None else self.propagation.states(args)
        with self.services.listening(target, args, kwargs), seen or nullcontext(), undoing:
            result = self.propagation.write(entry, args, kwargs)
            if result is None:
                args, kwargs, result = self._propagate(func, target, args, kwargs if stream is None else
                                                       {key: kwargs[key] for key in kwargs if key != "generator"})
        if result is NotImplemented:  # torch's parser refused: nothing was run
            return result
        if stream is not None:
            kwargs = {**kwargs, "generator": stream}
        if asked[0] is not args or asked[1] is not kwargs:
            key = None  # what was found out holds for these values, and not for all tensors that look like them
        fresh = bool(self.symbols.shape_env.pending_fresh_unbacked_symbols)
        self._refuse_result(target, result, fresh)
        if declared and mutation.counts_writes(func):
            mutation.count_writes(declared, versions)
        written = declared if seen is None else seen.written()
        if written:
            missed = mutation.not_counted(written, versions) if seen is None else seen.missed
            self.log.uncounted = self.log.uncounted or bool(missed)
        if written and declared is None and self.uncertain.storages:
            self.uncertain.check(target, True, args, kwargs)
        if written or result is None:
            self.log.changes += 1
            self.propagation.changed(args)
            self.propagation.changed(kwargs.values())
            self.log.reshaped += before != self.layouts.after(*asked) if before is not None else not written
            self.log.refuse_resized()
            if noted is not None and key is not None and not fresh and written and len(written) == 1 \
                    and written[0] is result and torch.Tag.inplace_view not in mutation.tags_of(func):  # refuses views
                self.propagation.learn_write(key, func, args, noted, result)
        elif key is not None and not fresh and (seen is None or seen.repeatable):
            self.propagation.learn(key, func, args, kwargs, result)
        if fresh or written or result is None or self.holds_tensor(result):
            self.record(op, target, args, kwargs, result, written, mutation.why_seen_once(seen))
        return result

    def _refuse_result(self, target: object, result: object, fresh: bool) -> None:
        """Break at a result that this graph, or its compiler, may not have."""
        if fresh and not self.scope.data_dependent:
            raise Break("SB003", f"{getattr(target, '__name__', target)} of a tensor")
        if not self.backend.in_order and isinstance(result, FakeTensor) and refused.is_sparse(result):
            self.backend.meets_sparse = True
            if self.scope.enclosing is not None and result.requires_grad:
                raise Break("SB017", "a sparse tensor with a gradient in an inner graph, for a compiler")

    def _refuse_empty(self, fake: FakeTensor) -> None:
        """The strides of an empty tensor count for nothing, so the rules for fakes do not get them right."""
        if type(fake) is FakeTensor and fake.dim() > 1 and any(type(size) is int and not size for size in fake.shape) \
                and self.node_of(fake).op != "placeholder":
            raise Break("SB017", "the strides of an empty tensor, which only the real one knows")

    def _propagate(self, func: Callable[..., Any], target: object, args: tuple[Any, ...],
                   kwargs: dict[str, Any]) -> Any:
        """The call on fakes: recorded arguments and result; tried again with items of tensors, then known numbers."""
        pending = self.symbols.shape_env.pending_fresh_unbacked_symbols
        name = getattr(target, "__name__", target)
        if name == "__bool__":
            truth = self.items.truth_of(args[0])
            if truth is not None:
                return args, kwargs, truth
            known = self.known.of_scalar(args[0])
            if known is UNKNOWN:
                known = ahead_of_scalar(self.known, args[0])
            if known is not UNKNOWN:
                return args, kwargs, bool(known)
        if name in ("getitem", "setitem"):
            args = known_values.index_as_read(args)
        if name not in _INDEXED and known_values.has_scalars(args[1:], kwargs):
            args = *args[:1], *known_values.map_scalars(args[1:], self._item)
            kwargs = known_values.map_scalars(kwargs, self._item)
        for change in (self._items_of_sizes, self.known.settled):
            try:
                result = self.attempt(func, target, args, kwargs)
                if pending and target != "item":
                    args, kwargs = self._with_numbers_taken((args, kwargs))
                return args, kwargs, result
            except Break as stop:
                if stop.code != "SB003":
                    raise
                reason = stop
            pending.clear()
            args, kwargs = change(args, kwargs)
        try:
            return args, kwargs, self.attempt(func, target, args, kwargs)
        except Break:
            raise reason from None

    def attempt(self, func: Any, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch._C.DisableTorchFunction(), self.symbols.dispatcher(), self.symbols.unasked(func, args, kwargs):
            try:
                refused_types.refuse_dtypes(func, args, kwargs)
                foreseen = results_of_layer(func, args, kwargs) or refused.results_of_dropout(func, args, kwargs)
                result = foreseen if foreseen is not None else \
                    func(*with_masks(self, target, args), **refused.numbers_left_open(func, kwargs))
                if torch.SymFloat in map(type, (*args, *kwargs.values())):
                    known_values.forget_constants(mutation.declared_writes(func, args, kwargs) or args[:1], result)
                return result
            except fake_tensor.DataDependentOutputException as error:
                return refused.decomposed(func, args, kwargs, f"{getattr(target, '__name__', target)}: {error}")
            except fake_tensor.DynamicOutputShapeException as error:
                raise Break("SB004", f"{error}") from None
            except (fake_tensor.UnsupportedOperatorException, NotImplementedError, _DEVICE_MISMATCH) as error:
                # Whether the operator exists for real tensors, eager says.
                raise _unfaked(error, func) from None
            except GuardOnDataDependentSymNode as error:
                raise data_dependent(error.cond, f"{getattr(target, '__name__', target)} needs a number") from None
            except Exception as error:
                if _NO_FAKE in str(error) or _TORCH_BUG in str(error):
                    raise _unfaked(error, func) from None
                if _NO_DATA in str(error):  # C++ code that reads the values of an argument (tensor_split's indices)
                    raise Break("SB003", f"{getattr(target, '__name__', target)} reads a tensor's values") from None
                if has_unbacked((args, kwargs)) or self.symbols.shape_env.pending_fresh_unbacked_symbols:
                    # Its rule for fakes cannot live with the unknown size; whether the program fails, eager says.
                    name = getattr(target, "__name__", target)
                    raise Break("SB003", f"{name} on a data-dependent size: {error}") from None
                failure = refused.raised_by_eager(func, args, kwargs, error, self.services.class_of, self.inputs)
                for fake in pytree.tree_leaves((args, kwargs)):
                    for each in refused.inputs_behind(fake, self.inputs) if type(fake) is FakeTensor else ():
                        self.services.note_refused(each, failure)
            raise failure  # not in the handler: the rule's error is no context for the program

    def _items_of_sizes(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """x.repeat(t, 1) as x.repeat(t.item(), 1)"""
        change = known_values.map_scalars
        return (change(args[:1], self._item) + change(args[1:], self._item, direct=True),
                change(kwargs, self._item, direct=True))

    def _item(self, fake: FakeTensor) -> Any:
        """The number of a tensor that stands for a size: itself where it is as good as constant, else a symbol."""
        number = self.items.number_of(fake)
        if number is not None:
            return number
        number = self.known.of_fixed_scalar(fake)
        if number is not UNKNOWN:
            return number
        memo = fake.item_memo
        if type(memo) is torch.SymInt and memo.node._expr not in self.symbols.definitions:
            fake.item_memo = None  # a symbol that a failed attempt made, and no node defines
        return self.call(torch.Tensor.item, (fake,), {})

    def _with_numbers_taken(self, values: object) -> Any:
        """Tensors that the operation just took for numbers (`addcdiv_(..., value=t)`): their items stand for them."""
        pending = self.symbols.shape_env.pending_fresh_unbacked_symbols
        taken = {}
        for fake in pytree.tree_leaves(values):
            with torch._C.DisableTorchFunction():
                number = fake.item_memo if type(fake) is FakeTensor else None
            symbol = None if number is None else number.node.expr
            if symbol in pending and id(fake) not in taken:
                others = [other for other in pending if other != symbol]
                pending[:] = [symbol]
                self.record("call_method", "item", (fake,), {}, number)
                pending[:] = others
                taken[id(fake)] = number
        return pytree.tree_map_only(FakeTensor, lambda f: taken.get(id(f), f), values) if taken else values

    def attribute(self, fake: FakeTensor, name: str, descr: Any) -> Any:
        """A property of a tensor: metadata, or a tensor (`x.T`), which becomes a node."""
        if self.uncertain.storages:
            self.uncertain.check(name, False, (fake,), {})
        listening = self.services.listening
        with torch._C.DisableTorchFunction(), self.symbols.dispatcher(), \
                nullcontext() if listening is muted and name not in _WARNING else listening(name, None, {}):
            wrapper = self.wrappers.behind.get(id(fake))
            if name == "nbytes" and wrapper is None and not refused.is_sparse(fake):
                return fake.numel() * fake.element_size()  # the attribute itself refuses sizes that are symbols
            result = descr.__get__(fake) if wrapper is None else self.wrappers.noted(descr.__get__(wrapper))
        if self.holds_tensor(result):
            self.record("getattr", name, (fake,), {}, result)
        return result

    def version_of(self, fake: torch.Tensor) -> int:
        """A number that grows with each write to the memory of a fake, through whatever tensor."""
        count = self.log.changes if fake.is_inference() else fake._version
        return count + self.log.memory[self.propagation.memory_behind(fake)] if self.log.memory else count

    def unexplained_asserts(self) -> int:
        """Count assertions that torch has added for an operation: how eager would fail, or go on, is not known."""
        return int(self.symbols.shape_env.num_deferred_runtime_asserts) - self.scope.explained_asserts

    def keep_as_it_is(self) -> None:
        """The program asks for what only autograd's own record of each operation can answer: no compiler."""
        self.backend.as_it_is = self.backend.in_order = True

    def require_grad(self, fake: FakeTensor) -> None:
        """Make a tensor of the graph a leaf."""
        self.propagation.changed((fake,))
        with torch._C.DisableTorchFunction():
            fake.requires_grad_()
        self.record("call_method", "requires_grad_", (fake,), {}, None)

    def record(self, op: str, target: object, args: tuple[Any, ...], kwargs: dict[str, Any], result: object,
               written: Any = None, once: str = "") -> fx.Node:
        """One node for a call whose result is known; its written tensors (None: of inner graphs); why it runs once."""
        self.services.before_saving(args, kwargs)
        if self.region.unseen and (not is_pointwise(target) or wants_gradient(result)):
            raise Break("SB006", f"{self.region.unseen}, which operators in a compiled graph would not see")
        to_arg = self.to_node_arg
        bindings = self.symbols.take_fresh(result)
        if op == "call_method" or str(getattr(target, "__module__", "")).partition(".")[0] == "torch":
            args, kwargs = spelled_types(args, kwargs)
        node_args = tuple([to_arg(value) for value in args])
        if op == "getattr":
            op, node_args, target = "call_function", (node_args[0], target), builtins.getattr
        node_kwargs = {k: to_arg(v) for k, v in kwargs.items()} if kwargs else {}
        node = new_node(self.graph, op, target, node_args, node_kwargs)
        self.scope.calls += 1
        node.meta.update(self.region.marks)
        if self.backend.meets_sparse and refused.no_compiler_may_have(args, kwargs, result) \
                or written and self.backend.has_sparse and self.scope.enclosing is None and not self.backend.in_order \
                and refused.takes_sparse((args, kwargs)):  # AOTAutograd refuses a write beside an input without storage
            self.propagation.require_exact()
            node.meta[BOUNDARY] = True
        if written is None and self.scope.inner_graphs:
            written = may_fail.note_inner_graphs(node, [each for each in args if is_a(each, fx.GraphModule)], args)
        if written:
            self.log.in_place = True
            memory = list(map(self.propagation.memory_behind, written))
            self.log.memory.update(memory)
            if any(not reads.isdisjoint(memory) for reads, _ in self.log.read_again):
                raise Break("SB016", "a write to memory that a checkpoint reads again", turn_off=Strategy.CHECKPOINTS)
            if self.backend.overlaps is not None:
                self.backend.overlaps.check(target, args, kwargs, list(written))
            mutation.note_writes(node, {self.node_of(fake) for fake in written})
        if once:
            node.meta[mutation.UNREPEATABLE] = once
        self.log.repeatable = self.log.repeatable and mutation.is_repeatable(node)
        if result is not None:
            node.meta["example_value"] = self.wrappers.inside(result) if self.wrappers.behind else result
            self.symbols.define_fresh(node, bindings, result)
            if type(result) is FakeTensor:
                self.tie(result, node)
            elif type(result) not in SYMBOLIC:
                self._tie_parts(result, node)
        self.services.place(node)
        if not self.log.repeatable or node.target in mutation.PURE_KERNELS:
            self.services.keep_order(node)
        return node

    def _tie_parts(self, result: Any, node: fx.Node) -> None:
        for i, part in enumerate(result):
            if type(part) is FakeTensor:
                self.tie(part, (node, i))
            elif is_a(part, (tuple, list)):
                self._tie_parts(part, (node, i))

    def holds_tensor(self, result: Any) -> bool:
        if type(result) is FakeTensor:
            return True
        if is_a(result, torch.Tensor):
            raise Break("SB017", f"an operation that returned a {type(result).__name__}")
        return any(self.holds_tensor(part) for part in result) if is_a(result, (tuple, list)) else False


keep_quiet(Recorder.attempt)


def _unfaked(error: Exception, func: object) -> Break:
    """The break at an operator that fake tensors have no rule for."""
    stop = Break("SB017", f"{error}".splitlines()[0])
    if _NO_FAKE in stop.detail or isinstance(error, fake_tensor.UnsupportedOperatorException):
        name = str(func).removeprefix("<CustomOpDef(").removesuffix(")>").removesuffix(".default").replace("::", ".")
        stop.detail = f"the operator {name} has no rule for fake tensors"
        stop.remedy = "register a function that makes an empty result of its shape: torch.library.register_fake"
    return stop
