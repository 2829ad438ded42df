"""Take monkeypatches off torch while Stator works.   torch.Tensor.relu = f  ->  torch's own while a call is captured

Stator, FakeTensor, AOTAutograd and Inductor use tensors and modules as they please; a patch is for the program alone.
While a capture runs, torch's classes and modules hold what they held when Stator was imported; the interpreter reads
names as the program has them (`names_of_class`, `names_of_module`).  Other threads would see the originals too: beside
them nothing is taken off, and a replaced special method of Tensor keeps the call eager.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import operator
import os
import sys
import threading
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
import torch.utils.data
from torch import fx, nn

from stator import torch_originals
from stator.guards.guard import MISSING

_is = operator.is_
CLASSES: tuple[type, ...] = (torch.Tensor, nn.Parameter, nn.Module, torch.no_grad, torch.enable_grad,
                             torch.set_grad_enabled, torch.inference_mode)
TENSOR_CLASSES = (torch.Tensor, nn.Parameter)
_dict_of = type.__dict__["__dict__"].__get__
_IDLE_LOOPS = (*(os.path.dirname(module.__file__ or "?") for module in (torch, threading, concurrent.futures)),
               os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "tqdm"), "<")
_TENSOR_LOOPS = os.path.dirname(torch.utils.data.__file__)
_HARMLESS = frozenset({"__repr__", "__str__", "__format__", "__dir__", "__deepcopy__", "__reduce_ex__", "__doc__"})


_ORIGINALS = torch_originals.take()
_BASE = _dict_of(torch._C.TensorBase)
_TENSOR = _ORIGINALS[0][2]
_OBJECT = vars(object)
_METHODS = (types.FunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)


def original(name: str) -> Any:
    """Tensor's own entry of a name, whatever stands there now; MISSING where there is none."""
    for entries in (_TENSOR, _BASE, _OBJECT):
        if name in entries:
            return entries[name]
    return MISSING


def is_tensor_member(function: Any, name: str | None) -> bool:
    """Whether Tensor itself, not a patch, has a function under that name."""
    return name is not None and (original(name) is function or _BASE.get(name) is function)


def is_tensor_value(function: Any) -> bool:
    return any(function is member for member in _TENSOR.values())


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Suspended:
    """The patches of the program, while a capture has taken them off."""

    def __init__(self) -> None:
        self.patches: list[tuple[Any, str, Any]] = []  # owner, name, what the program has there or MISSING
        self.views: dict[int, dict[str, Any]] = {}  # id of a class or a namespace -> the program's entries


_now = _Suspended()


def find_patches() -> list[tuple[Any, str, Any]]:
    """Entries that are not torch's own: (owner, name, entry or MISSING)."""
    found: list[tuple[Any, str, Any]] = []
    for owner, namespace, before in _ORIGINALS:
        if len(namespace) != len(before) or not all(map(_is, namespace.values(), before.values())):
            found += _compare(owner, namespace, before)
    return found


def _compare(owner: Any, namespace: Mapping[str, Any], before: dict[str, Any]) -> list[tuple[Any, str, Any]]:
    found = [(owner, name, MISSING) for name in before if name not in namespace]
    for name, value in namespace.items():
        if name in before:
            if before[name] is not value:
                found.append((owner, name, value))
        elif owner in CLASSES and (is_special(name) or owner in TENSOR_CLASSES and original(name) is not MISSING):
            found.append((owner, name, value))
    if not found:  # a submodule was imported, a method was added that torch does not know
        before.clear()
        before.update(namespace)
    return found


def names_of_class(cls: type) -> Mapping[str, Any]:
    """The entries of a class as the program has them."""
    return _now.views.get(id(cls)) or _dict_of(cls) if _now.views else _dict_of(cls)


def names_of_module(namespace: dict[str, Any]) -> dict[str, Any]:
    return _now.views.get(id(namespace), namespace) if _now.views else namespace


def patched_slots() -> set[str]:
    """Special methods of Tensor that the program has replaced."""
    return {name for owner, name, _ in _now.patches if owner in TENSOR_CLASSES and is_special(name)}


def _set(owner: Any, name: str, value: Any) -> None:
    if value is MISSING:
        type.__delattr__(owner, name) if isinstance(owner, type) else vars(owner).pop(name, None)
    elif isinstance(owner, type):
        type.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


def _own_entry(owner: Any, name: str) -> Any:
    return next(before for each, _, before in _ORIGINALS if each is owner).get(name, MISSING)


def in_company() -> bool:
    """Whether another thread may be using tensors: one that waits in a library's own loop is not."""
    if threading.active_count() == 1:
        return False
    for thread, frame in sys._current_frames().items():
        each: types.FrameType | None = frame
        while each is not None and thread != threading.get_ident():
            file = each.f_code.co_filename
            if file.startswith(_TENSOR_LOOPS) or not file.startswith(_IDLE_LOOPS):
                return True
            each = each.f_back
    return False


def needs_eager(patches: list[tuple[Any, str, Any]]) -> str | None:
    """A replaced method that a capture beside other threads would meet itself."""
    return next((name for owner, name, _ in patches if owner in TENSOR_CLASSES and is_special(name)
                 and name not in _HARMLESS), None) if in_company() else None


@contextlib.contextmanager
def suspended(patches: list[tuple[Any, str, Any]], beside_threads: bool = False) -> Iterator[None]:
    """While a call is captured."""
    if not patches:
        yield
        return
    _now.patches = patches
    if beside_threads or not in_company():
        for owner in {id(owner): owner for owner, _, _ in patches}.values():
            namespace = _dict_of(owner) if isinstance(owner, type) else vars(owner)
            _now.views[id(owner) if isinstance(owner, type) else id(namespace)] = dict(namespace)
        _take_off()
    try:
        yield
    finally:
        _put_on()
        _now.patches, _now.views = [], {}


def _take_off() -> None:
    for owner, name, _ in _now.patches:
        _set(owner, name, _own_entry(owner, name))


def _put_on() -> None:
    if _now.views:
        for owner, name, value in _now.patches:
            _set(owner, name, value)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """While a capture runs what must see the program's patches: guards, a backend of the user's."""
    _put_on()
    try:
        yield
    finally:
        if _now.views:
            _take_off()


# ---------------------------------------------------------------------- graphs


class Original:
    """Torch's own function behind a patched name, for a graph: nothing in it is found by that name."""

    __module__ = __name__

    def __init__(self, function: Any, name: str) -> None:
        self.function = function
        self.__name__ = self.__qualname__ = name

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)

    def __deepcopy__(self, memo: Any) -> Original:
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
    if not _now.patches:
        return
    methods = {name for owner, name, _ in _now.patches if owner in TENSOR_CLASSES}
    functions = {id(function): function for owner, name, _ in _now.patches if owner not in CLASSES
                 and callable(function := _own_entry(owner, name))}
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
