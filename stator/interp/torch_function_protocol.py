"""The `__torch_function__` protocol.   torch.add(duck, 1), x + 1 with x of a tensor subclass  ->  its own handler

In: the arguments of a torch call.  Out: what the first handler answers, interpreted like any other Python; nothing
where no argument has one.  A tensor subclass is a fake whose class the recorder notes (`recorder.classes`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor
from torch.nested._internal.nested_tensor import NestedTensor

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import new_parameter
from stator.heap.raw_access import CONSTANT_TYPES, IDENTITY_TYPES
from stator.host import suspended_patches
from stator.host.value_kinds import is_a
from stator.interp.lookup import MISSING, ancestors, find
from stator.interp.services import VM
from stator.source import Pinned

HANDLER = "__torch_function__"
DISABLED: Any = torch._C._disabled_torch_function_impl
JAGGED: object = NestedTensor.__dict__[HANDLER]  # which runs on fakes
DEFAULT: Any = torch.Tensor.__dict__[HANDLER]
_SEQUENCES = (list, tuple)
PLAIN = frozenset({FakeTensor, dict, set, slice, *CONSTANT_TYPES, *IDENTITY_TYPES})
_SPACES = (torch, torch.nn.functional, torch.functional, torch.linalg, torch._C._nn)
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_OF_PROTOCOL = ("torch.overrides", "torch._C")  # has_torch_function and the like


def handling_class(vm: VM, value: object) -> type | None:
    """The class whose handler torch would call for a value."""
    cls: Any = type(value)
    if cls is FakeTensor:
        cls = vm.recorder.classes.get(id(value))
        if cls is None:
            return None
    elif cls in PLAIN or cls in _SEQUENCES or is_a(value, (type, torch.Tensor)):
        return None
    handler = find(vm, cls, HANDLER)
    return None if handler is MISSING or handler is DISABLED or handler == JAGGED else cls


def overriding(vm: VM, values: Iterable[Any]) -> list[Any]:
    """The arguments whose handlers are called: one of each class, in order, a subclass before its base."""
    found: list[tuple[type, Any]] = []
    if vm.modes.functions_off:
        return []
    for value in values:
        for each in value if type(value) in _SEQUENCES else (value,):
            kind = handling_class(vm, each)
            if kind is None or any(known is kind for known, _ in found):
                continue
            place = next((i for i, (known, _) in enumerate(found) if known in ancestors(vm, kind)), len(found))
            found.insert(place, (kind, each))
    return [each for _, each in found]


def concerned(vm: VM, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> bool:
    """Whether a tensor subclass among the arguments has a handler to be called."""
    classes = vm.recorder.classes
    if not classes or vm.modes.functions_off:
        return False
    for value in (*args, *kwargs.values()) if kwargs else args:
        for each in value if type(value) in _SEQUENCES else (value,):
            if type(each) is FakeTensor and id(each) in classes and handling_class(vm, each) is not None:
                return True
    return False


def only_defaults(vm: VM, objects: list[Any]) -> bool:
    """Whether no user-defined handler is called: then it does not matter which function torch would name."""
    return all(find(vm, handling_class(vm, each), HANDLER) is DEFAULT for each in objects)  # type: ignore[arg-type]


def ask_objects(vm: VM, function: Callable[..., Any], args: tuple[Any, ...], rest: tuple[Any, ...],
                objects: list[Any]) -> Any:
    """The answer of the first object that has one; NotImplemented where none has."""
    if type(function) is types.FunctionType and vm.heap.sources.get(id(function)) is None \
            and id(function) not in vm.fresh:
        vm.heap.sources[id(function)] = Pinned(function)
    kinds = tuple([handling_class(vm, each) for each in objects])
    for each in objects:
        handler = vm.sync(lambda: vm.load_attr(each, HANDLER))  # noqa: B023
        answer = vm.call_sync(handler, (function, kinds, args, *rest))
        if answer is not NotImplemented:
            return answer
    return NotImplemented


def own_method(vm: VM, value: object, name: str) -> Any:
    """A special method in place of Tensor's own, of a subclass or patched; None where there is none."""
    cls = vm.recorder.classes.get(id(value))
    if type(value) is FakeTensor:
        vm.recorder.slots_used.add(name)
    if cls is None:
        if name not in vm.modes.patched or type(value) is not FakeTensor:
            return None
        cls = vm.recorder.services.class_of(value)
    found = find(vm, cls, name)
    if found is None:
        raise Break("SB005", f"a tensor whose {name} is None")
    if found is suspended_patches.original(name) and type(found) is types.FunctionType and name in vm.modes.patched:
        return found  # which finds a patch by name
    return None if found is MISSING or found is suspended_patches.original(name) else found


def refuse_patched(vm: VM, name: str) -> None:
    """Break where C code finds a special method of a tensor by itself, and the program has replaced it."""
    vm.recorder.slots_used.add(name)
    if name in vm.modes.patched:
        raise Break("SB005", f"a tensor used through Tensor.{name}, which was replaced")


def refuse_patched_call(vm: VM, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """The same for an operation that C code begins: it knows the operation, not the slot it came through."""
    name = getattr(function, "__name__", "")
    for slot in (name,) if suspended_patches.is_special(name) else (f"__{name}__", f"__r{name}__"):
        if suspended_patches.original(slot) is not suspended_patches.ABSENT:
            refuse_patched(vm, slot)


def note_slot(vm: VM, cls: type, name: str) -> None:
    """The trace has written a member of Tensor."""
    if cls in suspended_patches.TENSOR_CLASSES:
        patched, own = vm.modes.patched, find(vm, cls, name) is suspended_patches.original(name)
        (patched.difference_update if own else patched.update)(suspended_patches.slots_behind(name))


def guard_slots(vm: VM) -> None:
    """Guard the special methods through which operators and C code have used tensors."""
    names = set()
    for used in vm.recorder.slots_used:
        if type(used) is str:
            names.add(used)
        else:
            stem, on_left, in_place = used
            names.add(f"__{stem}__" if on_left else f"__r{stem}__")
            if in_place and on_left:
                names.add(f"__i{stem}__")
    classes = [torch.Tensor]
    if any(is_a(each.tensor, torch.nn.Parameter) for each in vm.recorder.inputs) \
            or any(node.target is new_parameter for node in vm.recorder.graph.nodes):
        classes.append(torch.nn.Parameter)
    for name in sorted(names.union(*map(suspended_patches.names_used_by, names))):
        for cls in classes:
            find(vm, cls, name)


def guard_names(vm: VM, graph: Any) -> None:
    """Guard the names by which FX or a user-defined backend runs a graph."""
    for node in graph.nodes:
        name = node.target if type(node.target) is str else getattr(node.target, "__name__", "")
        if node.op == "call_method":
            find(vm, torch.Tensor, name)
        elif node.op == "call_function":
            for module in _SPACES:
                if vars(module).get(name) is node.target:
                    vm.heap.scope(vars(module)).read(name)


def finds_patches(vm: VM, leaf: types.FunctionType) -> bool:
    """Whether a torch function written in Python calls patched names and is interpreted; else they are guarded."""
    methods, functions = _names_in(leaf)
    if suspended_patches.NOW.patches:
        names = methods.union([name for _, name in functions], leaf.__code__.co_names)
        return any(name in names for _, name, _ in suspended_patches.NOW.patches)
    if not vm.recorder.backend.in_order:
        vm.recorder.slots_used |= methods
        for module, name in functions:
            vm.heap.scope(vars(module)).read(name)
    return False


@functools.cache
def _names_in(leaf: types.FunctionType) -> tuple[frozenset[str], tuple[tuple[types.ModuleType, str], ...]]:
    """The methods of Tensor and the functions of torch that a function of torch may call, itself or through others."""
    methods: set[str] = set()
    functions: dict[tuple[types.ModuleType, str], None] = {}
    pending: list[Any] = [leaf]
    for each in pending:  # grows
        names = each.__code__.co_names
        methods.update([name for name in names if name in vars(torch._C.TensorBase)])
        found = {(module, name): value for name in names for module in _SPACES
                 if type(value := vars(module).get(name)) in _FUNCTIONS and value.__module__ not in _OF_PROTOCOL}
        functions |= dict.fromkeys(found)
        inner = [getattr(each, "__wrapped__", None), *[cell.cell_contents for cell in each.__closure__ or ()]]
        pending += [value for value in (*found.values(), *inner)
                    if type(value) is types.FunctionType and value not in pending]
    return frozenset(methods), tuple(functions)
