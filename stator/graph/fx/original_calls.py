"""Call torch's own functions whatever their names find when a graph runs.   call_method "relu"  ->  the method itself

A graph names what it calls; a program that patches `Tensor.relu` and calls the original means the original.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from stator.host.suspended_patches import CLASSES, NOW, TENSOR_CLASSES, original, own_entry

_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


class Original:
    """Torch's own function behind a patched name, for a graph: nothing in it is found by that name."""

    __module__ = __name__

    def __init__(self, function: Callable[..., Any], name: str) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: object) -> Original:
        return self


def method_of_node(node: fx.Node) -> Any:
    """Torch's own method that a node calls by name; None where it may be another class's."""
    receiver = node.args[0]
    if isinstance(receiver, fx.Node) and isinstance(receiver.meta.get("example_value"), torch.Tensor):
        found = original(str(node.target))
        return found if type(found) in _METHODS else None
    return None


def fix_targets(graph: fx.Graph) -> None:
    """Spell the operations of a graph so that patched names are not looked up when it runs."""
    if not NOW.patches:
        return
    methods = {name for owner, name, _ in NOW.patches if owner in TENSOR_CLASSES}
    functions = {id(function): function for owner, name, _ in NOW.patches if owner not in CLASSES
                 and callable(function := own_entry(owner, name))}
    for node in graph.nodes:
        if node.op == "call_method" and node.target in methods:
            function = original(node.target)
            node.op, node.target = "call_function", Original(function, node.target)
        elif node.op == "call_function" and id(node.target) in functions:
            node.target = Original(node.target, node.target.__name__)
        elif node.op == "call_function" and node.target is getattr and node.args[1] in methods:
            getter = original(node.args[1]).__get__
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
        node.target = Original(original(names[0]), names[0])
    else:
        node.target, node.args = Original(original(names[1]), names[1]), node.args[::-1]
