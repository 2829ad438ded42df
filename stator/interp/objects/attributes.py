"""Attribute lookup as CPython defines it, so that every read has a source.

    load_attr(vm, obj, "n")  ->  the value goes to the current frame's stack (or to `cont`)
"""

from __future__ import annotations

import collections
import contextlib
import threading
import types
from typing import Any, TypeGuard, cast

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator import _hook
from stator.breaks import Break
from stator.graph.fx.nodes import field_names, record_arguments
from stator.guards.guard import Kind
from stator.heap.adopt.decimal_state import FOUND_BY_C
from stator.heap.adopt.instances import BOXED_LATER, box_attributes
from stator.heap.heap import Heap
from stator.heap.iterators.peekable_iterators import posed_class
from stator.heap.raw_access import CONSTANT_TYPES, instance_dict, is_constant_tuple
from stator.heap.tracker import Box, ShadowKind
from stator.host.suspended_patches import original
from stator.host.value_kinds import is_a, module_of, mro_of
from stator.interp.arrays.native_numpy import load_held_attr
from stator.interp.frame import Continuation, Raised
from stator.interp.lookup import MISSING, find
from stator.interp.objects import descriptors, native_attributes
from stator.interp.objects.weak_access import PROXIES, behind_proxy
from stator.interp.services import VM
from stator.interp.tensors import tensor_bookkeeping
from stator.interp.torch_function_protocol import concerned
from stator.native.torch_ops import torch_leaf
from stator.shapes.symbolic_values import GRAPH_SCALARS, SYMBOLIC, UNREAD, specialise, unread
from stator.source import CallOf, DictOf, Key, Pinned, Slot

LIST_ITERATOR: type = type(iter([]))
_object_getattribute = object.__getattribute__
_PLAIN_FUNCTIONS = (types.FunctionType,)
_alias_getattribute = types.GenericAlias.__dict__["__getattribute__"]
_super_getattribute = super.__dict__["__getattribute__"]
_C_LOOKUPS = {threading.local.__dict__["__getattribute__"]}
_module_getattr = torch.nn.Module.__getattr__
UNSURE = object()
_MEMBER_DICTS = ("_parameters", "_buffers", "_modules")
HOLDERS = frozenset({torch._ops._OpNamespace, torch._ops._Ops, torch._ops.OpOverloadPacket})


def load_attr(vm: VM, obj: Any, name: str, cont: Any = None) -> None:
    cls = type(obj)
    if cls is FakeTensor:
        return load_tensor_attr(vm, obj, name, cont)
    if cls in GRAPH_SCALARS:
        return load_held_attr(vm, obj, name, cont)
    if cls in SYMBOLIC:
        return load_attr(vm, specialise(obj, f"the attribute {name}"), name, cont)
    if is_a(obj, type):
        return descriptors.load_type_attr(vm, obj, name, cont)
    if cls in HOLDERS:
        resolve(obj, name)
    if cls is super or cls is descriptors.TensorSuper:
        return descriptors.load_super_attr(vm, obj, name, cont)
    if is_a(obj, types.ModuleType) and (cls is types.ModuleType
                                        or type(find(vm, cls, "__getattribute__")) is types.WrapperDescriptorType):
        return descriptors.load_module_attr(vm, obj, name, cont)
    if cls is LIST_ITERATOR and (posed := posed_class(vm.heap, obj)) is not None:
        if name == "__class__":
            return vm.give(posed, cont)
        raise Break("SB014", f"the attribute {name!r} of a {posed.__name__} from outside")
    getattribute = find(vm, cls, "__getattribute__")
    if type(getattribute) is types.WrapperDescriptorType and getattribute.__name__ == "__getattribute__":
        if cls is types.MethodType:
            if (descr := find(vm, cls, name)) is MISSING:
                return load_attr(vm, obj.__func__, name, cont)
            return descriptors.bind(vm, descr, obj, cls, cont)
        if getattribute is _super_getattribute:
            return descriptors.load_super_attr(vm, obj, name, cont)
        if getattribute is _alias_getattribute and name not in _OF_ALIASES:
            return load_attr(vm, vm.sync(lambda: load_generic(vm, obj, "__origin__", None)), name, cont)
        if cls in PROXIES:
            return load_attr(vm, behind_proxy(vm, obj), name, cont)
        if name in FOUND_BY_C.get(id(getattribute), ()):
            return vm.call(getattribute, (obj, name), {}, cont)
        if getattribute in _C_LOOKUPS:
            descr = find(vm, cls, name)
            value = MISSING if type(descr) is property else read_through_c(vm, obj, name)
            if value is not MISSING:
                return vm.give(value, cont)
            if descr is not MISSING:
                return descriptors.bind(vm, descr, obj, cls, cont)
            return descriptors.raise_attribute_error(vm, obj, name, cont)
        return load_generic(vm, obj, name, cont)
    descriptors.call_special(vm, getattribute, obj, (name,), descriptors.FallbackGetattr(obj, name, cont))


def read_through_c(vm: VM, obj: object, name: str) -> Any:
    """An attribute that only C code can find: of a threading.local it is in this thread's dict.  MISSING: not there."""
    if name == "__dict__":
        return dict_of_thread(vm, obj)
    if find(vm, threading.local, name) is not MISSING or find(vm, type(obj), "__getattr__") is not MISSING \
            or descriptors.is_data_descriptor(vm, find(vm, type(obj), name)):
        raise Break("SB005", f"the attribute {name!r} of a threading.local")
    return read_dict(vm, dict_of_thread(vm, obj), name)


def dict_of_thread(vm: VM, local: object) -> Any:
    """The stand-in of the attributes that a threading.local has in this thread."""
    own = _own_dict(vm.heap.original_of(local))
    return vm.heap.adopt(own, CallOf(Pinned(_own_dict), (vm.heap.source_of(local),)))


def _own_dict(local: object) -> dict[str, Any]:
    """A pure reader for guards."""
    return local.__dict__


class _Origin(type):
    def __getattribute__(cls, name: str) -> object:
        return _Origin  # which nothing else gives


# Names that `list[int]` answers itself; all others it reads from `list`.
_OF_ALIASES = frozenset(name for name in (*dir(types.GenericAlias), *dir(type), "__copy__", "__deepcopy__")
                        if getattr(types.GenericAlias(_Origin("", (), {}), int), name, None) is not _Origin)


def load_generic(vm: VM, obj: object, name: str, cont: Continuation | None, fallback: bool = True) -> None:
    """object.__getattribute__, then `__getattr__` where the caller is not __getattribute__ itself."""
    cls = type(obj)
    descr = find(vm, cls, name)
    if fallback and descr is not MISSING and type(descr) not in descriptors.NON_DATA \
            and find(vm, cls, "__getattr__") is not MISSING:
        cont = descriptors.FallbackGetattr(obj, name, cont)  # a getter may raise AttributeError
    if descr is not MISSING and type(descr) not in _PLAIN_FUNCTIONS and descriptors.is_data_descriptor(vm, descr):
        return descriptors.bind(vm, descr, obj, cls, cont)
    value = read_instance_dict(vm, obj, name)
    if value is not MISSING:
        return vm.give(value, cont)
    if descr is not MISSING:
        return descriptors.bind(vm, descr, obj, cls, cont)
    if fallback:
        hook = find(vm, cls, "__getattr__")
        if hook is _module_getattr:
            value = read_module_member(vm, obj, name)
            if value is MISSING and cont is not None and cont.takes_absence:
                return cont.absent(vm)
            if value is not MISSING and value is not UNSURE:
                return vm.give(value, cont)
        if hook is not MISSING:
            return descriptors.call_special(vm, hook, obj, (name,), descriptors.NamesAttribute(obj, name, cont))
    descriptors.raise_attribute_error(vm, obj, name, cont)


def read_module_member(vm: VM, module: torch.nn.Module, name: str) -> Any:
    """The result of nn.Module.__getattr__; UNSURE where its three dicts are not plain dicts."""
    own = instance_dict(module)
    for member in _MEMBER_DICTS:
        members = own.get(member, MISSING)  # type: ignore[union-attr]
        if type(members) is Box:
            members = members.force()
        if type(members) is not dict:
            return UNSURE
        value = read_dict(vm, members, name)
        if value is not MISSING:
            return value
    return MISSING


def read_dict(vm: VM, mapping: dict[Any, Any], key: object) -> Any:
    """One constant key of a dict that is a shadow or fresh; MISSING is guarded too."""
    value = dict.get(mapping, key, MISSING)
    if type(value) is Box:
        return value.force()
    if value is MISSING:
        tracker = vm.heap.by_standin.get(id(mapping))
        if tracker is not None and key not in tracker.initial:
            vm.heap.guard(tracker.source, Kind.ABSENT, key)
    return value


def read_instance_dict(vm: VM, obj: object, name: str) -> Any:
    if type(obj) in BOXED_LATER:
        box_attributes(vm.heap, obj)
    own = instance_dict(obj)
    if own is None:
        if type(obj).__dictoffset__:  # a dict that Python does not show: a TypeVar's, from 3.12 on
            if module_of(type(obj)) == "typing":  # what typing makes is never changed
                return getattr(obj, name, MISSING)
            raise Break("SB005", f"the attribute {name!r} of a {type(obj).__name__}")
        return MISSING
    value = dict.get(own, name, MISSING)  # the dict may be of a class of its own
    if type(value) is Box:
        return value.force()
    heap = vm.heap
    if id(obj) in heap.dicts.given:
        return read_dict(vm, own, name)
    tracker = heap.by_standin.get(id(obj))
    if tracker is not None and tracker.shape is not ShadowKind.OPAQUE:
        if value is MISSING and (tracker.initial_dict is None or name not in tracker.initial_dict):
            heap.guard(DictOf(tracker.source), Kind.ABSENT, name)
        return value
    if native_attributes.is_outside(vm, obj):  # an object that stands for itself: its attributes are read with guards
        base = DictOf(heap.source_of(obj))
        known = heap.known(own, base)
        if known is not None:  # it was taken as a value, or written to
            if type(known.standin) in UNREAD:
                raise unread(known.standin, f"the attribute {name!r}")
            return read_dict(vm, known.standin, name)
        if value is MISSING:
            heap.guard(base, Kind.ABSENT, name)
            return MISSING
        return heap.adopt(value, Key(base, name))
    return value


def is_empty_table(vm: VM, obj: object, name: str) -> bool:
    """Whether an attribute is an unseen empty OrderedDict (of hooks), guarded: for its truth it needs no stand-in."""
    heap = vm.heap
    tracker = heap.by_standin.get(id(obj))
    if tracker is None or tracker.shape is not ShadowKind.OBJECT:
        return False
    own = instance_dict(obj)
    box = None if own is None else own.get(name)
    if not is_unseen_table(box, heap) or not reads_plainly(vm, type(obj)):
        return False
    descr = find(vm, type(obj), name)
    if descr is not MISSING and (type(descr) not in _PLAIN_FUNCTIONS and descriptors.is_data_descriptor(vm, descr)):
        return False
    source = box.source()
    if heap.shapes.gives_up(box.raw, source):
        return False
    heap.guard(source, Kind.TYPE, collections.OrderedDict)
    heap.guard(source, Kind.LEN, 0)
    heap.glanced.append((box.raw, source))
    return True


def is_unseen_table(box: object, heap: Heap) -> TypeGuard[Box]:
    """Whether a place of an outside object holds an empty OrderedDict that nobody has looked at."""
    return type(box) is Box and not box.forced and type(box.raw) is collections.OrderedDict and not box.raw \
        and id(box.raw) not in heap.by_original and id(box.raw) not in heap.replayed.objects


def reads_plainly(vm: VM, cls: type) -> bool:
    """Whether attributes are looked up as object.__getattribute__ does it."""
    getattribute = find(vm, cls, "__getattribute__")
    return type(getattribute) is types.WrapperDescriptorType and getattribute not in _C_LOOKUPS


def tensor_class(vm: VM, fake: FakeTensor) -> type:
    """The type the program sees: Tensor, Parameter or a subclass, never FakeTensor."""
    tracker = vm.heap.by_standin.get(id(fake))
    if tracker is not None:
        return type(tracker.original)
    noted = vm.recorder.classes.get(id(fake))
    if noted is not None:
        return noted
    return torch.nn.Parameter if getattr(fake, "_is_param", False) else torch.Tensor


def load_tensor_attr(vm: VM, fake: FakeTensor, name: str, cont: Continuation | None) -> None:
    cls = tensor_class(vm, fake)
    vm.recorder.slots_used.add("__getattribute__")
    if "__getattribute__" in vm.modes.patched:
        cont = descriptors.FallbackGetattr(fake, name, cont)
        return vm.call(find(vm, cls, "__getattribute__"), (fake, name), {}, cont)
    load_tensor_member(vm, fake, name, cls, cont)


def load_tensor_member(vm: VM, fake: FakeTensor, name: str, cls: type, cont: Continuation | None) -> None:
    """As object.__getattribute__ does it."""
    own = vm.tensors.attributes.get(id(fake))
    if own is not None and name in own:
        return vm.give(own[name], cont)
    descr = find(vm, cls, name)
    tracker = vm.heap.by_standin.get(id(fake))
    if descr is MISSING or type(descr) in _PLAIN_FUNCTIONS or not descriptors.is_data_descriptor(vm, descr):
        if tracker is not None and tracker.initial_dict is not None and name in tracker.initial_dict:
            return vm.give(tracker.initial_dict[name].force(), cont)
        if tracker is None and (wrapper := vm.recorder.wrappers.behind.get(id(fake))) is not None:
            own = instance_dict(wrapper)
            if own is not None and name in own:
                return vm.give(read_wrapper(vm, fake, name, own[name]), cont)
        if tracker is not None:
            vm.heap.guard(DictOf(tracker.source), Kind.ABSENT, name)
        if descr is MISSING:
            hook = find(vm, cls, "__getattr__")
            if hook is not MISSING:
                return vm.call(hook, (fake, name), {}, descriptors.NamesAttribute(fake, name, cont))
            text = f"{cls.__name__!r} object has no attribute {name!r}"
            return descriptors.raise_attribute_error(vm, fake, name, cont, text)
    if id(fake) in vm.recorder.classes and type(descr) is property and find(vm, cls, "__getattr__") is not MISSING:
        cont = descriptors.FallbackGetattr(fake, name, cont)
    give_tensor_member(vm, fake, cls, name, descr, cont)


def give_tensor_member(vm: VM, fake: object, cls: type, name: str, descr: Any, cont: object = None) -> None:
    """The value of a tensor for an entry of its class."""
    if type(descr) is types.MemberDescriptorType and descr.__objclass__ is not torch._C.TensorBase:
        return vm.give(read_tensor_slot(vm, fake, descr), cont)
    if (vm.modes.active or concerned(vm, (fake,))) and name != "__class__" \
            and name not in tensor_bookkeeping.ADDRESSES and (
            type(descr) is types.GetSetDescriptorType and descr.__objclass__ is torch._C.TensorBase
            or type(descr) is property and torch_leaf(descr.fget)):
        return vm.give(vm.ask_modes(descr.__get__, (fake,)), cont)
    noted = tensor_bookkeeping.read(vm, fake, name) if descr is original(name) else tensor_bookkeeping.NOT_NOTED
    if noted is not tensor_bookkeeping.NOT_NOTED:
        return vm.give(noted, cont)
    if type(descr) in (types.GetSetDescriptorType, property, types.MemberDescriptorType):
        if name == "__class__":
            return vm.give(cls, cont)
        if type(descr) is property and type(descr.fget) is types.FunctionType and not torch_leaf(descr.fget):
            return vm.call(descr.fget, (fake,), {}, cont)
        return vm.give(vm.torch_attribute(tensor_bookkeeping.current_data(vm, fake, name), name, descr), cont)
    descriptors.bind(vm, descr, fake, cls, cont)


def read_wrapper(vm: VM, fake: FakeTensor, name: str, value: object) -> Any:
    """An attribute of a wrapper made inside: an inner tensor, or a constant that its class keeps beside them."""
    if is_a(value, torch.Tensor):
        return vm.recorder.wrappers.part(fake, name)
    if is_plain_record(vm, value):
        return value
    raise Break("SB017", f"the attribute {name!r} of a {tensor_class(vm, fake).__name__} made inside")


def is_plain_record(vm: VM, value: object) -> bool:
    """Whether a value is a constant, or an immutable record of constants that was made inside."""
    if type(value) in CONSTANT_TYPES or type(value) is tuple and is_constant_tuple(value):
        return True
    names = field_names(type(value))
    if names is None and not (tuple in mro_of(type(value)) and hasattr(type(value), "_fields")) \
            or vm.heap.tracker_of(value) is not None or id(type(value)) in vm.fresh:
        return False
    items = tuple.__iter__(cast("tuple[object, ...]", value)) if names is None \
        else record_arguments(value, names).values()
    return all(is_plain_record(vm, item) for item in items)


def read_tensor_slot(vm: VM, fake: object, descr: Any) -> Any:
    """A slot that a subclass adds; what the trace itself put there was found before."""
    tracker = vm.heap.by_standin.get(id(fake))
    if tracker is not None:
        try:
            raw = descr.__get__(tracker.original)
        except AttributeError:
            vm.heap.guard(tracker.source, Kind.SLOT_EMPTY, (descr.__name__, descr.__objclass__))
        else:
            return vm.heap.adopt(raw, Slot(tracker.source, descr.__name__, descr.__objclass__))
    elif (wrapper := vm.recorder.wrappers.behind.get(id(fake))) is not None:
        with contextlib.suppress(AttributeError):
            return read_wrapper(vm, fake, descr.__name__, descr.__get__(wrapper))  # type: ignore[arg-type]
    cls = tensor_class(vm, fake)
    raise Raised(AttributeError(f"{cls.__name__!r} object has no attribute {descr.__name__!r}",
                                name=descr.__name__, obj=fake))


def resolve(holder: object, name: str) -> None:
    """Register an operator; one that does not exist raises again at the read of the program."""
    if name.startswith("__") or name in holder.__dict__:
        return
    token = _hook.pause()
    try:
        getattr(holder, name, None)
    finally:
        _hook.resume(token)
