"""Values that a guard can fix.   sizes = image_sizes.tolist(); if sizes[0] > 336: ...  ->  the branch, and a guard

In: a node whose value the program needs now.  Out: that value, where it is computed from constants, small integer
inputs and single floats of modules, whose contents become a guard; UNKNOWN where another parameter, a float input or a
random number takes part, unless its range decides.  The slice of the graph behind the node runs once, on copies.
"""

from __future__ import annotations

import builtins
import operator
from collections.abc import Callable, Iterable
from typing import Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

from stator import _hook
from stator.graph.analysis.mutation import is_repeatable, reached, writes, written_by
from stator.graph.analysis.shared_memory import is_member, storage_partition
from stator.graph.services import Recorder
from stator.graph.state.torch_state import C
from stator.graph.values.branch_guards import (
    AHEAD_LIMIT,
    GuardedBranches,
    NotKnown,
    Watch,
    behind_number,
    computes,
    contents_of,
    may_decide,
    number_in,
)
from stator.shapes.environment import UNKNOWN
from stator.shapes.symbolic_values import as_constant, has_unbacked

_LOW, _HIGH = 0.0, 1.0  # what is drawn lies between them; that it is never 1 is left open, as dtypes round
_MIRRORED = {"lt": "gt", "gt": "lt", "le": "ge", "ge": "le"}
_COMPARED: dict[Any, str] = {
    **{name: name for name in _MIRRORED}, **{f"__{name}__": name for name in _MIRRORED},
    **{getattr(owner, name): name for name in _MIRRORED for owner in (operator, torch)},
    torch.less: "lt", torch.greater: "gt", torch.less_equal: "le", torch.greater_equal: "ge",
}
_RELATIONS = {sympy.StrictLessThan: "lt", sympy.StrictGreaterThan: "gt", sympy.LessThan: "le", sympy.GreaterThan: "ge"}
_READING = frozenset({*_COMPARED, "item", torch.Tensor.item})
INPUT_LIMIT = 1 << 18  # elements of an input whose contents may become a guard
SETTING_LIMIT = 4  # elements of a float tensor of a module whose contents may become a guard
WORK_LIMIT = 1 << 22  # elements that one slice may make
NODE_LIMIT = 2000
_INTEGERS = frozenset({torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool})
_MODULES = ("torch", "_operator", "operator", "math", "builtins")
_HARMLESS = frozenset({C._set_grad_enabled})
_OURS = ("stator::slice_bound", "stator::item_of_sum", "stator::float_")  # they compute numbers (see number_operators)
_FOLDED = frozenset({torch.float64, torch.float32, torch.int64, torch.bool})  # that hold such a number
_MOST = 2**31


def decided(comparison: str, number: float) -> Any:
    """The truth of `drawn <comparison> number`, where it is the same at both ends of the range, and so in between."""
    lowest, highest = (getattr(operator, comparison)(end, number) for end in (_LOW, _HIGH))
    return lowest if lowest == highest else UNKNOWN


def of_comparison(node: fx.Node) -> Any:
    """The truth of a node that compares a random tensor with a number."""
    comparison = _COMPARED.get(node.target) if node.op in ("call_function", "call_method") else None
    if comparison is None or node.kwargs or len(node.args) != 2:
        return UNKNOWN
    left, right = node.args
    if type(right) is fx.Node:
        left, right, comparison = right, left, _MIRRORED[comparison]
    if not is_drawn(left) or type(right) not in (int, float):
        return UNKNOWN
    return decided(comparison, right)  # type: ignore[arg-type]


def of_relation(relation: Any, definitions: dict[Any, tuple[fx.Node, Any]]) -> Any:
    """The truth of a comparison of a random number, read with `item()`."""
    comparison = _RELATIONS.get(type(relation))
    if comparison is None:
        return UNKNOWN
    left, right = relation.args
    if isinstance(right, sympy.Symbol):
        left, right, comparison = right, left, _MIRRORED[comparison]
    node, path = definitions.get(left, (None, ()))
    if node is None or path or node.target != "item" or not right.is_number or not is_drawn(node.args[0]):
        return UNKNOWN
    return decided(comparison, float(right))


def is_drawn(node: fx.Node) -> bool:
    """Whether a node is a draw that nothing has changed since: it is compared and read, and nothing else."""
    return type(node) is fx.Node and node.target is torch.rand and "out" not in node.kwargs \
        and all(user.target in _READING for user in node.users)


class KnownValues:
    """Known values of one recorder's graph."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self.may_guard: Callable[[Any], bool] = lambda graph_input: False
        self.guard: Callable[[Any], None] = lambda graph_input: None
        self.branches = GuardedBranches()
        self.ahead = False  # whether a guard may compute whatever decides the capture
        self._memo: dict[fx.Node, Any] = {}
        self.unknown: set[fx.Node] = set()
        self.given: dict[fx.Node, torch.Tensor] = {}  # values that a rule knows without a run (packed sequences)
        self.asked = 0  # how often
        self.read: set[fx.Node] = set()  # inputs whose contents the trace relies on

    def of_scalar(self, fake: FakeTensor) -> Any:
        node = self.recorder.node_of(fake)
        decided = of_comparison(node)
        if decided is not UNKNOWN:
            return decided
        found = self._value(node)
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            return found if found is UNKNOWN else found.item()

    def of_tensor(self, fake: FakeTensor) -> Any:
        return self._value(self.recorder.node_of(fake))

    def of_fixed_scalar(self, fake: FakeTensor) -> Any:
        """The same, where it follows from constants and members of modules alone, which seldom change."""
        needed: set[fx.Node] = set()
        self.asked += 1
        try:
            self._reach(self.recorder.node_of(fake), needed)
        except NotKnown:
            return UNKNOWN
        if all(is_member(each.source) for each in self.recorder.inputs if each.node in needed):
            return self.of_scalar(fake)
        return UNKNOWN

    def of_number(self, value: Any) -> Any:
        """The number behind a symbolic value; its integer symbols are constants from then on."""
        symbols = self.recorder.symbols
        if self.recorder.fake_mode.in_kernel_invocation:
            return UNKNOWN  # no real operation can run now; the recorder settles the arguments, and tries again
        decided = of_relation(value.node.expr, symbols.definitions)
        if decided is not UNKNOWN:
            return decided
        free = value.node.expr.free_symbols
        if not all(symbol in symbols.definitions and self._settle_symbol(symbol) for symbol in free):
            wanted = type(value) is torch.SymBool or self.ahead and type(value) is torch.SymInt
            return behind_number(self, value) if wanted else UNKNOWN
        node = symbols.node_of(value)
        return node if type(node) is not fx.Node else self._value(node)

    def settled(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
        """The arguments of an operation, with constants for the data-dependent numbers that guards can fix."""
        free: set[sympy.Symbol] = set()

        def collect(leaf: Any) -> None:
            for size in leaf.shape if type(leaf) is FakeTensor else (leaf,):
                if type(size) is torch.SymInt:
                    free.update(s for s in size.node.expr.free_symbols if s in self.recorder.symbols.definitions)

        with torch._C.DisableTorchFunction():
            _map_leaves((args, kwargs), collect)
        for symbol in sorted(free, key=str):
            self._settle_symbol(symbol)
        plain: tuple[Any, Any] = _map_leaves((args, kwargs), lambda leaf: as_constant(leaf)
                                             if type(leaf) is torch.SymInt else leaf)
        return plain

    def _settle_symbol(self, symbol: sympy.Symbol) -> bool:
        environment = self.recorder.symbols.shape_env
        if symbol in environment.backed_var_to_val:
            return True  # the size of an input: it has a hint, and a guard of its own
        if symbol in environment.replacements:
            return not environment.replacements[symbol].free_symbols
        node, path = self.recorder.symbols.definitions[symbol]
        found = self._value(node)
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            number = self._size_again(node, path) if found is UNKNOWN else pytree.key_get(found, path)
        if number is UNKNOWN:
            return self.ahead and bool(symbol.is_integer) and \
                behind_number(self, environment.create_symintnode(symbol, hint=None)) is not UNKNOWN
        if type(number) in (int, bool):
            environment.size_like.discard(symbol)  # a size of 0 or 1 is as good as any, once it is known
            environment._set_replacement(symbol, sympy.Integer(int(number)), "a guard on values")
        return True

    def _size_again(self, node: fx.Node, path: object) -> Any:
        """A size that an operation on unknown values makes of known numbers: run its rule again."""
        recorder = self.recorder
        if not path or node.op == "placeholder" or recorder.log.reshaped:
            return UNKNOWN
        args, kwargs = _map_leaves((node.args, node.kwargs), lambda leaf: leaf.meta.get("example_value")
                                   if type(leaf) is fx.Node else leaf)
        changed = self.settled(args[:1] + map_scalars(args[1:], self.of_scalar, direct=True),
                               map_scalars(kwargs, self.of_scalar, direct=True))
        if has_unbacked(changed) or UNKNOWN in pytree.tree_leaves(changed):
            return UNKNOWN
        function = getattr(torch.Tensor, node.target) if node.op == "call_method" else node.target
        try:
            with recorder.fake_mode, torch._C.DisableTorchFunction(), recorder.symbols.dispatcher():
                number = pytree.key_get(function(*changed[0], **changed[1]), path)
        except Exception:  # it wants to know more than its sizes
            return UNKNOWN
        fresh = recorder.symbols.shape_env.pending_fresh_unbacked_symbols
        if fresh:
            fresh.clear()
            return UNKNOWN
        return UNKNOWN if has_unbacked(number) else number  # nonzero() of a fake remembers its size

    def _value(self, node: fx.Node) -> Any:
        if node in self.unknown:
            return UNKNOWN
        try:
            with unset_fake_temporarily(), torch._C.DisableTorchFunction():
                return self.run(node)
        except NotKnown:
            self.unknown.add(node)
            return UNKNOWN

    def run(self, root: fx.Node, branch: bool = False) -> Any:
        """The value of a node, computed now; `branch`: under a guard that computes it again."""
        recorder = self.recorder
        changed = {setting.setter for setting, _, _ in recorder.torch_state.before.values()}
        if recorder.scope.enclosing is not None or changed - _HARMLESS or C._is_any_autocast_enabled():
            raise NotKnown
        needed, writes = self.slice_of(root)
        inputs = [each for each in recorder.inputs if each.node in needed]
        for each in inputs:
            if not (may_decide(each) or self.ahead and computes(each)) if branch else \
                    not (is_small(each.tensor) or is_setting(each)) or not self.may_guard(each):
                raise NotKnown
        known: dict[fx.Node, Any] = {} if writes else self._memo
        copies = {each.node: contents_of(each) for each in inputs if each.node not in known}
        token = _hook.pause()
        try:
            with torch.no_grad(), Watch(AHEAD_LIMIT if branch and self.ahead else WORK_LIMIT):
                for node in recorder.graph.nodes:
                    if node in needed and node not in known:
                        made = self.given.get(node)
                        known[node] = copies[node] if node.op == "placeholder" else \
                            _evaluate(node, known) if made is None else made.clone()
        except NotKnown:
            raise
        except Exception as error:  # whatever the program is about to fail with, it fails with eagerly
            raise NotKnown from error
        finally:
            _hook.resume(token)
        self.read.update([each.node for each in inputs])
        if branch:
            self.branches.add(root, needed, inputs, number_in(known[root]), writes)
        for each in inputs if not branch else ():
            self.guard(each)
        return known[root]

    def slice_of(self, root: fx.Node) -> tuple[set[fx.Node], bool]:
        """The nodes behind `root`, with every write to what they read; whether there are such writes."""
        needed: set[fx.Node] = set()
        self._reach(root, needed)
        writers = [node for node in self.recorder.graph.nodes if writes(node)]
        if not writers:
            return needed, False
        self._refuse_shared_inputs(needed)
        found, size = False, -1
        while size != len(needed):
            size = len(needed)
            for node in writers:
                if node not in needed and not needed.isdisjoint(_alias_ancestors(node)):
                    found = True
                    self._reach(node, needed)
        return needed, found or any(node in needed for node in writers)

    def _reach(self, root: fx.Node, needed: set[fx.Node]) -> None:
        waiting = [root]
        while waiting:
            node = waiting.pop()
            if node not in needed:
                if len(needed) > NODE_LIMIT or node in self.unknown:
                    raise NotKnown
                needed.add(node)
                waiting += () if node in self.given else node.all_input_nodes

    def _refuse_shared_inputs(self, needed: set[fx.Node]) -> None:
        """Where the graph writes, two inputs in one storage would have to be copied as one."""
        tensors = [each for each in self.recorder.inputs if each.tensor is not None and _is_plain(each.tensor)]
        partition = storage_partition(*[each.tensor for each in tensors])
        for i, first in enumerate(partition):
            if first != i and (tensors[i].node in needed or tensors[first].node in needed):
                raise NotKnown


def _map_leaves(tree: Any, change: Callable[[Any], Any]) -> Any:
    """Nested arguments with each leaf changed; a slice has three."""
    cls = type(tree)
    if cls is tuple:
        return tuple([_map_leaves(item, change) for item in tree])
    if issubclass(cls, list):  # or fx's immutable one
        return [_map_leaves(item, change) for item in tree]
    if issubclass(cls, dict):
        return {key: _map_leaves(item, change) for key, item in tree.items()}
    if cls is slice:
        return slice(*[_map_leaves(item, change) for item in (tree.start, tree.stop, tree.step)])
    return change(tree)


def has_scalars(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether an integer tensor without dimensions lies in a list among the arguments: a size, most likely."""
    given = (*args, *(value for name, value in kwargs.items() if name != "out"))
    return any(type(value) in (tuple, list) and any(map(_is_scalar, value)) for value in given)


def map_scalars(arguments: Iterable[Any], change: Callable[[FakeTensor], Any], direct: bool = False) -> Any:
    """The arguments with integer tensors in lists replaced; with `direct`, also those that are arguments themselves."""
    if type(arguments) is dict:
        return {name: value if name == "out" else map_scalars((value,), change, direct)[0]
                for name, value in arguments.items()}
    return tuple([type(value)([change(item) if _is_scalar(item) else item for item in value])
                  if type(value) in (tuple, list) else change(value) if direct and _is_scalar(value) else value
                  for value in arguments])


def forget_constants(changed: Any, result: object) -> None:
    """Drop constants that FakeTensor has computed with an unbacked float, which it takes for NaN."""
    for fake in (*changed, *pytree.tree_leaves(result)):
        if type(fake) is FakeTensor:
            fake.constant = None


def forget_written(written: Iterable[Any], given: Iterable[Any]) -> None:
    """Drop constants that an operation changes: FakeTensor keeps those in a list beside a tensor that is none."""
    constants = [fake for fake in written if type(fake) is FakeTensor and fake.constant is not None]
    if constants and any(type(fake) is FakeTensor and fake.constant is None for fake in given):
        with torch._C.DisableTorchFunction():
            for fake in constants:
                if fake.constant is not None:  # not yet dropped as an alias of another one
                    fake.fake_mode.fake_tensor_converter.invalidate_constant_aliases(fake.constant)


def index_as_read(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """x[[i, j]] as x[i, j] where the list holds tensors: so torch reads a short list, and numbers would hide it."""
    if len(args) > 1 and type(args[1]) is list and len(args[1]) < 32 and any(map(_is_scalar, args[1])):
        return args[0], tuple(args[1]), *args[2:]
    return args


def _is_scalar(value: Any) -> bool:
    return type(value) is FakeTensor and value.dim() == 0 and value.dtype in _INTEGERS


def _is_plain(tensor: torch.Tensor) -> bool:
    return tensor.layout is torch.strided and tensor.device.type == "cpu"


def is_setting(graph_input: Any) -> bool:
    """Whether an input is a number or two that a module holds: a curvature, a threshold, a temperature."""
    tensor = graph_input.tensor
    return tensor is not None and _is_plain(tensor) and is_member(graph_input.source) \
        and tensor.is_floating_point() and tensor.device.type == "cpu" and tensor.numel() <= SETTING_LIMIT


def is_small(tensor: torch.Tensor) -> bool:
    return tensor is not None and _is_plain(tensor) and tensor.dtype in _INTEGERS and tensor.numel() <= INPUT_LIMIT


def _alias_ancestors(node: fx.Node) -> set[fx.Node]:
    """Nodes that may share memory with what a node writes to: views keep the dtype, or change it by name."""
    return reached(written_by(node), lambda step: [each for each in step.all_input_nodes
                                                   if "view" in str(step.target) or _dtypes(each) & _dtypes(step)])


def _dtypes(node: fx.Node) -> set[torch.dtype]:
    return {leaf.dtype for leaf in pytree.tree_leaves(node.meta.get("example_value")) if type(leaf) is FakeTensor}


def _evaluate(node: fx.Node, known: dict[fx.Node, Any]) -> Any:
    """The value of one node; only torch's own functions are run."""
    args, kwargs = fx.map_arg((node.args, node.kwargs), lambda argument: known[argument])
    if node.op == "call_method":
        result = getattr(torch.Tensor, node.target)(*args, **kwargs)
    elif node.op == "call_function" and _is_torch(node.target) and node.target is not torch.get_rng_state:
        result = node.target(*args, **kwargs)
    else:
        raise NotKnown
    examples = pytree.tree_leaves(node.meta.get("example_value"))
    for made, example in zip(pytree.tree_leaves(result), examples, strict=True):
        if isinstance(made, torch.Tensor) and (type(example) is not FakeTensor or made.dtype != example.dtype
                                               or made.device != example.device or made.dim() != example.dim()):
            raise NotKnown
    return result


def _is_torch(target: object) -> bool:
    if isinstance(target, torch._ops.OpOverload):
        return target.namespace in ("aten", "prims") or target.name().startswith(_OURS)
    if isinstance(target, torch._ops.OpOverloadPacket):
        return target._qualified_op_name.split("::")[0] in ("aten", "prims")
    if isinstance(target, torch._ops.HigherOrderOperator):
        return False
    module = getattr(target, "__module__", None) or type(target).__module__
    return target is builtins.getattr or target is operator.getitem or str(module).partition(".")[0] in _MODULES


def hide_constants(graph: fx.Graph) -> None:
    """Hide constants that FakeTensor would compute wrongly with, or would run an operator with effects on."""
    if all(type(node.meta.get("example_value")) is not torch.SymFloat and is_repeatable(node) for node in graph.nodes):
        return
    for node in graph.nodes:
        if node.op == "call_function" and node.target is torch.tensor and len(node.args) == 1:
            number, made = _number(node.args[0]), node.meta["example_value"]
            if number is not None and made.dtype in _FOLDED and (made.is_floating_point() or type(number) is not float):
                node.target, node.args = torch.full, (tuple(made.shape), number)
                node.kwargs = {**node.kwargs, "dtype": made.dtype, "device": made.device}


def _number(value: Any) -> Any:
    """The one number that a list of lists holds, or None."""
    while isinstance(value, (list, tuple)) and len(value) == 1:
        value = value[0]
    return value if type(value) in (int, float, bool) and abs(value) < _MOST else None
