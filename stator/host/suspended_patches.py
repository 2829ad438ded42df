"""Take monkeypatches off torch while Stator works.   torch.Tensor.relu = f  ->  torch's own while a call is captured

The interpreter reads names as the program has them (`names_of_class`, `names_of_module`).  Beside other threads nothing
is taken off, and a replaced method of Tensor keeps the call eager.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import os
import re
import sys
import threading
import traceback
import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch._ops import OpOverload, OpOverloadPacket

from stator._core import holds_only, newest_version
from stator.host import torch_originals
from stator.host.own_code import OWN_FOLDER
from stator.host.value_kinds import dict_of_class

Patches = list[tuple[Any, str, Any]]  # owner, name, what the program has there or ABSENT
ABSENT = object()  # in the place of an entry: there is none
CLASSES: tuple[type, ...] = (torch.Tensor, nn.Parameter, nn.Module, torch.no_grad, torch.enable_grad,
                             torch.set_grad_enabled, torch.inference_mode)
TENSOR_CLASSES = (torch.Tensor, nn.Parameter)
_FOLDER = os.path.dirname(torch.__file__)
_COMPILER = (os.path.join(_FOLDER, "_dynamo", ""), os.path.join(_FOLDER, "_compile.py"))
_LIBRARY = os.path.dirname(threading.__file__)
_IDLE_LIBRARIES = r".*/site-packages/(torch/(?!utils/data)|tqdm|execnet)"
_IDLE_LOOPS = re.compile(rf"{re.escape(_LIBRARY)}/(?!site-packages)|{_IDLE_LIBRARIES}|<")
_HARMLESS = frozenset({"__repr__", "__str__", "__format__", "__dir__", "__deepcopy__", "__reduce_ex__", "__doc__"})
_OF_NAMESPACE = (OpOverloadPacket, str, list, type(None))  # classes of what torch itself keeps there
_OF_PACKET = (str, OpOverload, list, bool, types.BuiltinFunctionType)
_KEPT_BY_PYTHON = frozenset({"__slotnames__"})  # copyreg notes them when an instance is copied
_ORIGINALS = torch_originals.take()
_VALUES = {id(before): list(before.values()) for _, _, before in _ORIGINALS}
_NAMESPACES: list[dict[str, Any]] = [gc.get_referents(namespace)[0] if isinstance(owner, type) else owner.__dict__
                                     for owner, namespace, _ in _ORIGINALS]
_ADDED: dict[int, set[str]] = {}  # names that came later, by the id of a copy: their absence is no patch
_BASE = dict_of_class(torch._C.TensorBase)
TENSOR = _ORIGINALS[0][2]
_OBJECT = vars(object)


def original(name: str) -> Any:
    """Tensor's own entry of a name, whatever stands there now; ABSENT where there is none."""
    return next((entries[name] for entries in (TENSOR, _BASE, _OBJECT) if name in entries), ABSENT)


def is_tensor_member(function: Callable[..., Any], name: str | None) -> bool:
    """Whether Tensor itself, not a patch, has a function under that name."""
    return name is not None and (original(name) is function or _BASE.get(name) is function)


def is_special(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


class _Suspended:
    """The patches of the program, while a capture has taken them off."""

    def __init__(self) -> None:
        self.patches: Patches = []
        self.views: dict[int, dict[str, Any]] = {}  # id of a class, or of the dict of either -> the program's entries


class _Unpatched:
    """Versions of namespaces at which all entries were torch's own: at the same version, nobody has to look again."""

    def __init__(self) -> None:
        self.torch = 0
        self.operators = 0
        self.overloads = 0
        self.packets: list[dict[str, Any]] = []  # of the operators at that version


NOW = _Suspended()
_UNPATCHED = _Unpatched()


def find_patches() -> Patches:
    """Entries that are not torch's own: (owner, name, entry or ABSENT)."""
    found: Patches = []
    version = newest_version(_NAMESPACES)
    if version and version == _UNPATCHED.torch:
        return found
    for (owner, namespace, before), own in zip(_ORIGINALS, _NAMESPACES, strict=True):
        if not 0 < newest_version([own]) <= _UNPATCHED.torch and _differ(list(own.values()), _VALUES[id(before)]):
            found += _compare(owner, namespace, before)
    if not found:
        _UNPATCHED.torch = version
    return found


def _differ(now: list[Any], before: list[Any]) -> bool:
    try:
        return now != before  # by identity, where entries are the same
    except Exception:  # a tensor in the place of a function
        return True


def _file(value: object) -> str:
    return value.__code__.co_filename if type(value) is types.FunctionType else ""


def _compare(owner: object, namespace: Mapping[str, Any], before: dict[str, Any]) -> Patches:
    added = _ADDED.setdefault(id(before), set())
    found = [(owner, name, ABSENT) for name in before if name not in namespace and name not in added]
    for name, value in namespace.items():
        if name in before:
            if before[name] is value:
                continue
            file = _file(value)
            if file.startswith(OWN_FOLDER) or _file(before[name]).startswith(OWN_FOLDER) and file.startswith(_FOLDER):
                continue  # of `stator.install`, or of `uninstall`
            if file.startswith(_COMPILER):
                before[name] = value  # torch's compiler wraps functions of torch when it is loaded
            elif owner not in CLASSES and not callable(before[name]) and not callable(value):
                before[name] = value  # state that torch itself keeps in a module: torch.cuda._initialized
            else:
                found.append((owner, name, value))
        elif owner in CLASSES and is_special(name) and (
                value is None or callable(value) or hasattr(type(value), "__get__")) or owner in TENSOR_CLASSES \
                and name not in _KEPT_BY_PYTHON and original(name) is not ABSENT:  # which hides a member of TensorBase
            found.append((owner, name, value))
    if not found:  # a submodule was imported, a method was added that torch does not know, or is gone again
        added |= namespace.keys() - before.keys()
        before.clear()
        before.update(namespace)
        _VALUES[id(before)] = list(before.values())
    return found


def names_of_class(cls: type) -> Mapping[str, Any]:
    return NOW.views.get(id(cls)) or dict_of_class(cls) if NOW.views else dict_of_class(cls)


def names_of_module(namespace: dict[str, Any]) -> dict[str, Any]:
    """The entries of a dict, which may be that of a module or a class, as the program has them."""
    return NOW.views.get(id(namespace), namespace) if NOW.views else namespace


@functools.cache
def names_used_by(name: str) -> frozenset[str]:
    """Members of Tensor that a method of Tensor finds by name: `__rtruediv__` calls `reciprocal`."""
    method: Any = original(name)
    names: list[str] = []
    while type(method) is types.FunctionType:
        names += method.__code__.co_names
        method = getattr(method, "__wrapped__", None)
    return frozenset([each for each in names if each in _BASE])


def slots_behind(name: str) -> Iterator[str]:
    """Special methods of Tensor that do something else where a member is replaced."""
    yield from [name] if is_special(name) else []
    yield from (each for each in TENSOR if is_special(each) and name in names_used_by(each))


def patched_slots() -> set[str]:
    """Special methods of Tensor that the program has replaced, or what they find."""
    return {slot for owner, name, _ in NOW.patches if owner in TENSOR_CLASSES for slot in slots_behind(name)}


def _set(owner: object, name: str, value: object) -> None:
    if value is ABSENT:
        type.__delattr__(owner, name) if isinstance(owner, type) else vars(owner).pop(name, None)
    elif isinstance(owner, type):
        type.__setattr__(owner, name, value)
    else:
        vars(owner)[name] = value


def own_entry(owner: object, name: str) -> Any:
    return next(before for each, _, before in _ORIGINALS if each is owner).get(name, ABSENT)


def in_company() -> bool:
    """Whether another thread may be using tensors: one that waits in a library's own loop is not."""
    if threading.active_count() == 1:
        return False
    frames: dict[int, types.FrameType] = sys._current_frames()
    del frames[threading.get_ident()]  # a frame that holds itself keeps the objects of the program alive
    return any(not _IDLE_LOOPS.match(each.f_code.co_filename)
               for frame in frames.values() for each, _ in traceback.walk_stack(frame))


def needs_eager(patches: Patches) -> str | None:
    """A replaced method of Tensor that a capture beside other threads would meet itself."""
    return next((name for owner, name, _ in patches if owner in TENSOR_CLASSES and name not in _HARMLESS),
                None) if in_company() else None


def replaced_operator(overloads: bool) -> str | None:
    """An operator of ATen, or with `overloads` an overload, that the program has replaced: compilers use the names."""
    operators = vars(torch.ops.aten)
    version = newest_version([operators])
    if not version or version != _UNPATCHED.operators:
        if not holds_only([operators], _OF_NAMESPACE):
            return next(name for name, packet in operators.items() if type(packet) not in _OF_NAMESPACE)
        _UNPATCHED.operators = version
        _UNPATCHED.packets = [vars(packet) for packet in operators.values() if type(packet) is OpOverloadPacket]
    return replaced_overload() if overloads else None


def replaced_overload() -> str | None:
    packets = _UNPATCHED.packets
    version = newest_version(packets)
    if version and version == _UNPATCHED.overloads:
        return None
    if not holds_only(packets, _OF_PACKET):
        for packet in vars(torch.ops.aten).values():
            for entry, value in vars(packet).items() if type(packet) is OpOverloadPacket else ():
                if type(value) not in _OF_PACKET and entry in ("_op", *packet.overloads()):
                    return f"{packet.__name__}.{entry}"
    _UNPATCHED.overloads = version
    return None


@contextlib.contextmanager
def suspended(patches: Patches, beside_threads: bool = False) -> Iterator[None]:
    if not patches:
        yield
        return
    before = NOW.patches, NOW.views
    taken_off = beside_threads or not in_company()
    _begin(patches, taken_off)
    try:
        yield
    finally:
        _put_on()
        NOW.patches, NOW.views = before


def _begin(patches: Patches, taken_off: bool) -> None:
    NOW.patches, NOW.views = patches, {}
    if taken_off:
        for owner in {id(owner): owner for owner, _, _ in patches}.values():
            namespace = gc.get_referents(dict_of_class(owner))[0] if isinstance(owner, type) else vars(owner)
            NOW.views[id(owner)] = NOW.views[id(namespace)] = dict(namespace)
        _take_off()


def _take_off() -> None:
    for owner, name, _ in NOW.patches:
        own = own_entry(owner, name)
        if own is ABSENT and owner in TENSOR_CLASSES:
            own = original(name)  # inherited: in the place of the patch, so that the dict of the class keeps its order
        _set(owner, name, own)


def _put_on() -> None:
    if NOW.views:
        for owner, name, value in NOW.patches:
            _set(owner, name, value)


@contextlib.contextmanager
def restored() -> Iterator[None]:
    """While a capture runs code that must see the patches, and may change them: guards, a user's backend."""
    if not NOW.views:
        yield
        return
    _put_on()
    NOW.patches, NOW.views = [], {}
    try:
        yield
    finally:
        _begin(find_patches(), True)
