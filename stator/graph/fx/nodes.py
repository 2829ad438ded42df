"""Nodes of an FX graph: how callables are spelled, and nodes made directly.   Tensor.view -> call_method "view"

`create_node` is half of what a node costs.  A recorded stretch is recorded again on other tensors: nodes with the same
targets, constants and metadata, named as if they had been recorded one by one.
"""

from __future__ import annotations

import dataclasses
import functools
import keyword
import operator
import re
import types
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.immutable_collections import immutable_dict
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from stator import _core
from stator.host import suspended_patches as patches

_SLOTS: dict[str, Any] = {
    "__getitem__": operator.getitem, "__setitem__": operator.setitem, "__delitem__": operator.delitem,
}
_property_wrappers: dict[tuple[str, int], tuple[str, Any]] = {}
_BETWEEN_WORDS = re.compile(r"\W+", re.ASCII)
_DTYPE_OF: dict[Any, torch.dtype] = {bool: torch.bool, int: torch.int64, float: torch.float64,
                                     complex: torch.complex128}
_TENSOR_TYPE = type(torch.HalfTensor)
_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_new, _init, _take = fx.Node.__new__, fx.Node.__mro__[1].__init__, fx.Node._update_args_kwargs
_FLAT = frozenset({int, float, bool, str, type(None)})


@functools.cache
def _spell_hashed(func: Any) -> tuple[str, Any]:
    cls = type(func)
    name = getattr(func, "__name__", None)
    if name in _SLOTS and patches.is_tensor_member(func, name):
        return "call_function", _SLOTS[name]
    if cls in (types.MethodDescriptorType, types.WrapperDescriptorType, types.FunctionType) \
            and patches.is_tensor_member(func, name):
        return "call_method", name
    if cls is types.FunctionType and any(func is member for member in patches.TENSOR.values()):
        return "call_method", name  # `Tensor.__pow__` is a wrapper of `pow`, which it is called
    return "call_function", func


def spell(func: Callable[..., Any]) -> tuple[str, Any]:
    """(op, target) for FX; ("getattr" | "setattr", name) for a Tensor property."""
    if type(func) is types.MethodWrapperType:  # made anew at every access: hash by what it wraps
        key = (func.__name__, id(func.__self__))
        found = _property_wrappers.get(key)
        if found is None:
            owner: Any = func.__self__
            found = _property_wrappers[key] = ("getattr" if key[0] == "__get__" else "setattr", owner.__name__)
        return found
    if type(func) is FlatCall or type(func) is types.FunctionType and not (func.__module__ or "").startswith("torch."):
        return "call_function", func  # a user function, which must not be kept
    return _spell_hashed(func)


def run_target(op: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return target(*args, **kwargs) if op == "call_function" else getattr(args[0], target)(*args[1:], **kwargs)


def input_name(text: str) -> str:
    """A readable FX name for a graph input.   self.layers[0].weight -> self_layers_0_weight"""
    return legal_name(name_parts(text))


def name_parts(text: str) -> str:
    """A text with underscores between its words; `legal_name` of it is the name of the input."""
    return _BETWEEN_WORDS.sub("_", text)


def legal_name(name: str) -> str:
    name = name.strip("_")
    # `self` is the module's own parameter in the code FX generates.
    return name if name.isidentifier() and not keyword.iskeyword(name) and name != "self" else f"arg_{name}"


def spelled_types(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """x.to(int), x.type(torch.HalfTensor): dtypes and names in place of classes; `from` as a positional argument."""
    if "from" in kwargs and args:
        args = (args[0], kwargs["from"], *args[1:])
        kwargs = {name: value for name, value in kwargs.items() if name != "from"}
    if any(map(_is_type, args)) or any(map(_is_type, kwargs.values())):
        return tuple(map(_spelled, args)), {name: _spelled(value) for name, value in kwargs.items()}
    return args, kwargs


def _is_type(value: object) -> bool:
    return type(value) is type or type(value) is _TENSOR_TYPE


def _spelled(value: Any) -> Any:
    if type(value) is _TENSOR_TYPE:
        return f"{value.__module__}.{value.__name__}"
    return _DTYPE_OF.get(value, value) if type(value) is type else value


def field_names(cls: type) -> tuple[str, ...] | None:
    """The fields of a frozen dataclass that is made of them and nothing else; None for any other class."""
    if type(cls) is not type:
        return None
    parameters: Any = cls.__dict__.get("__dataclass_params__")
    made_by: Any = cls.__dict__.get("__init__")
    if parameters is None or not parameters.frozen or type(made_by) is not types.FunctionType:
        return None
    if made_by.__code__.co_filename != "<string>" or cls.__new__ is not object.__new__ \
            or hasattr(cls, "__post_init__"):
        return None
    fields = dataclasses.fields(cls)
    return tuple(field.name for field in fields) if all(field.init for field in fields) else None


def record_arguments(value: object, names: tuple[str, ...]) -> dict[str, Any]:
    return {name: object.__getattribute__(value, name) for name in names}


class Original:
    """Torch's own function behind a patched name, for a graph: nothing in it is found by that name."""

    __module__ = __name__

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: object) -> Original:
        return self


class FlatCall:
    """A call of a user's function by the leaves of its arguments, which gives the leaves of its result."""

    __module__ = __name__

    def __init__(self, function: Callable[..., Any], build: Callable[[Iterator[Any]], Any]) -> None:
        self.function, self.build = function, build
        name = getattr(function, "__name__", "")  # fx looks for the source of a lambda
        self.__name__ = self.__qualname__ = name if name.isidentifier() else "flat_call"
        self.result: pytree.TreeSpec | None = None  # of its first call

    def __call__(self, *leaves: object) -> tuple[Any, ...]:
        args, kwargs = self.build(iter(leaves))
        flat, found = pytree.tree_flatten(self.function(*args, **kwargs))
        self.result = found if self.result is None else self.result
        if found != self.result:
            raise TypeError(f"{self.__name__} returned another structure than when it was captured")
        return tuple(flat)

    def __deepcopy__(self, memo: object) -> FlatCall:
        return self


def method_of_node(node: fx.Node) -> Any:
    """Torch's own method that a node calls by name; None where it may be another class's."""
    receiver = node.args[0]
    if isinstance(receiver, fx.Node) and isinstance(receiver.meta.get("example_value"), torch.Tensor):
        found = patches.original(str(node.target))
        return found if type(found) in _METHODS else None
    return None


def fix_targets(graph: fx.Graph) -> None:
    """Spell the operations of a graph so that patched names are not looked up when it runs."""
    if not patches.NOW.patches:
        return
    methods = {name for owner, name, _ in patches.NOW.patches if owner in patches.TENSOR_CLASSES}
    functions = {id(function): function for owner, name, _ in patches.NOW.patches if owner not in patches.CLASSES
                 and callable(function := patches.own_entry(owner, name))}
    for node in graph.nodes:
        if node.op == "call_method" and node.target in methods:
            function = patches.original(node.target)
            node.op, node.target = "call_function", Original(function, node.target)
        elif node.op == "call_function" and id(node.target) in functions:
            node.target = Original(node.target, node.target.__name__)
        elif node.op == "call_function" and node.target is getattr and node.args[1] in methods:
            getter = patches.original(node.args[1]).__get__
            node.target, node.args = Original(getter, node.args[1]), node.args[:1]
        elif node.op == "call_function" and getattr(node.target, "__module__", "") == "_operator":
            _fix_operator(node, methods)


def _fix_operator(node: fx.Node, methods: set[str]) -> None:
    stem = node.target.__name__.strip("_")  # type: ignore[union-attr]
    names = (f"__{stem}__", f"__r{stem}__")
    if not methods.intersection(names) or not any(
            isinstance(each.meta.get("example_value"), torch.Tensor) for each in node.all_input_nodes):
        return
    first = node.args[0]
    if isinstance(first, fx.Node) and isinstance(first.meta.get("example_value"), torch.Tensor):
        node.target = Original(patches.original(names[0]), names[0])
    else:
        node.target, node.args = Original(patches.original(names[1]), names[1]), node.args[::-1]


def bare_node(graph: fx.Graph, name: str, op: str, target: object, args: tuple[Any, ...],
              kwargs: dict[str, Any]) -> fx.Node:
    """A node that stands in no list yet, its target known to be right."""
    node = _new(fx.Node)
    _init(node, graph, name, op, target, None)
    _take(node, args, kwargs)
    return node


def new_node(graph: fx.Graph, op: str, target: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> fx.Node:
    name = graph._graph_namespace.create_name(graph._target_to_str(target), None)
    node = bare_node(graph, name, op, target, args, kwargs or immutable_dict())
    graph._graph_namespace.associate_name_with_obj(name, node)
    graph._insert(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def new_input(graph: fx.Graph, last: fx.Node | None, name: str) -> fx.Node:
    """An input, after the last one."""
    unique = graph._graph_namespace.create_name(name if name.islower() else graph._target_to_str(name), None)
    if unique != name and _is_taken(name, last):
        name = unique
    node = bare_node(graph, unique, "placeholder", name, (), immutable_dict())
    graph._graph_namespace.associate_name_with_obj(unique, node)
    (graph._root if last is None else last).append(node)
    graph._find_nodes_lookup_table.insert(node)
    graph._len += 1
    return node


def _is_taken(name: str, node: fx.Node | None) -> bool:
    """Whether an input is called so already: in the code that fx writes, inputs are parameters."""
    while node is not None and node.op == "placeholder":
        if node.target == name:
            return True
        node = node.prev
    return False


def first_operation(node: fx.Node) -> fx.Node:
    """The node before which something computed from an input can be put."""
    while node.op == "placeholder":
        node = node.next
    return node


class Stretch:
    """Recorded nodes, ready to be recorded again."""

    __slots__ = ("steps", "outer", "wanted")

    def __init__(self, graph: fx.Graph, nodes: Iterable[fx.Node]) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self.outer: list[fx.Node] = []  # what it uses of the graph before it
        self.wanted: tuple[int, ...] | None = None  # which of its nodes are used after it
        own: set[fx.Node] = set()
        for node in nodes:
            own.add(node)
            self.outer += [each for each in node.all_input_nodes if each not in own and each not in self.outer]
            args = node.args if all(type(arg) is fx.Node or is_free(arg) for arg in node.args) else None
            kwargs = node.kwargs if is_free(node.kwargs) else None
            name = graph._target_to_str(node.target)
            looked_up = (node.op, node.target if node.op == "call_function" else None)
            self.steps.append((node, name, is_bare(name), node.op, node.target, args, kwargs, looked_up,
                               dict(node.meta)))

    def record(self, graph: fx.Graph, known: dict[fx.Node, fx.Node], above: str | None, before: int) -> Play:
        """Append copies to the graph and to `known`; `above` replaces the first `before` characters of stack traces."""
        play = Play(self, [known.get(each, each) for each in self.outer])

        def mapped(arguments: object) -> Any:
            return map_arg(arguments, lambda inner: known.get(inner, inner))

        if graph._insert != graph._root.prepend:
            raise AssertionError("a stretch is recorded at the end of the graph")
        namespace = graph._graph_namespace
        names = namespace._used_names, namespace._base_count, namespace.create_name, namespace._obj_to_name
        play.copies = _core.copy_nodes(self.steps, graph, known, names, graph._find_nodes_lookup_table.table, mapped,
                                       above, before)
        graph._len += len(self.steps)
        return play


def is_free(value: object) -> bool:
    """Whether there is no node in it."""
    if type(value) in _FLAT:
        return True
    found: list[fx.Node] = []
    map_arg(value, lambda node: found.append(node) or node)  # type: ignore[func-returns-value]
    return not found


def is_bare(name: str) -> bool:
    """Whether FX would name a node like this, or with a number behind it."""
    return name.isascii() and name.isidentifier() and not name[-1].isdigit()


@dataclass
class Play:
    """One recording of a stretch: its copies, in order, what they were given, and which are used after it."""

    stretch: Stretch
    inputs: list[fx.Node]
    copies: list[fx.Node] = field(default_factory=list)
    outputs: list[fx.Node] = field(default_factory=list)
