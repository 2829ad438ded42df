"""The `__torch_function__` protocol for objects of the program.   torch.add(duck, 1)  ->  the duck's own handler

In: the arguments of a torch call.  Out: what the first handler answers, interpreted like any other Python; nothing
where no argument has one.  Tensor subclasses from outside have no fake, and break before they come here.
"""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.heap.shells import CONSTANT_TYPES, IDENTITY_TYPES
from stator.interp.frame import Raised
from stator.interp.lookup import MISSING, find
from stator.kinds import is_a

_SEQUENCES = (list, tuple)
PLAIN = frozenset({FakeTensor, dict, set, slice, *CONSTANT_TYPES, *IDENTITY_TYPES})


def overriding(vm: Any, values: Any) -> list[Any]:
    """The arguments that want to be asked: one of each class, in order, a subclass before its base."""
    found: list[Any] = []
    for value in values:
        cls = type(value)
        if cls in PLAIN or is_a(value, (type, torch.Tensor)):
            continue
        for each in value if cls in _SEQUENCES else (value,):
            kind = type(each)
            if kind in PLAIN or kind in _SEQUENCES or is_a(each, (type, torch.Tensor)):
                continue
            if find(vm, kind, "__torch_function__") is MISSING:
                continue
            if not any(type(known) is kind for known in found):
                place = next((i for i, known in enumerate(found) if type(known) in kind.__mro__), len(found))
                found.insert(place, each)
    return found


def ask(vm: Any, function: Any, args: Any, kwargs: Any, objects: list[Any]) -> Any:
    """The answer of the first object that has one."""
    if getattr(function, "__module__", None) == operator.add.__module__:  # torch would name a method of Tensor
        raise Break("SB005", f"an operator on a tensor and a {type(objects[0]).__name__}")
    types = tuple([type(each) for each in objects])
    for each in objects:
        bound: list[Any] = []
        vm.sync(lambda each=each: vm.load_attr(each, "__torch_function__"), bound)  # type: ignore[misc]
        answer = vm.call_sync(bound[0], (function, types, tuple(args), dict(kwargs or {})))
        if answer is not NotImplemented:
            return answer
    name = f"{getattr(function, '__module__', '')}.{getattr(function, '__name__', function)}"
    raise Raised(TypeError(f"no implementation found for '{name}' on types that implement __torch_function__: "
                           f"[{', '.join(kind.__name__ for kind in types)}]"))
