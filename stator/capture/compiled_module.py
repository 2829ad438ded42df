"""A compiled nn.Module that is still a module.   a module, the entry of its `__call__`  ->  an nn.Module

Attributes, parameters, hooks, state_dict and mode are the original's own, under the original's names.  Two attributes
are its own, as libraries expect: `forward`, which is compiled, and `_orig_mod`.  Both can be assigned.
"""

from __future__ import annotations

import copy
import functools
import operator
import sys
import weakref
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from stator.capture.callables import compile_again
from stator.capture.checkpoint_keys import loading_torchs_keys
from stator.settings import marks
from stator.settings.options import Settings

# Methods by which a module is changed in place and handed back: `m = m.to("cpu").eval()` must stay compiled.
FLUENT_METHODS = frozenset("apply bfloat16 cpu cuda double eval float half ipu mtia requires_grad_ share_memory to "
                           "to_empty train type xpu".split())
# Everything else is read from the original.
OWN_ATTRIBUTES = frozenset("_orig_mod _stator_call _stator_entry _stator_settings dynamo_ctx __deepcopy__ __copy__ "
                           "__reduce__ __reduce_ex__".split())

_TORCHS = "torch._dynamo.eval_frame"
_installed: list[bool] = []  # not empty: torch.compile is Stator's
_seen_as: weakref.WeakKeyDictionary[type, type] = weakref.WeakKeyDictionary()


def _forwarded(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda self, *args: function(self._orig_mod, *args)


class CompiledModule(torch.nn.Module):
    """The result of `stator.compile(module)`; `__class__` is the original's, so that `isinstance` answers as for it."""

    _orig_mod: torch.nn.Module
    _stator_call: Callable[..., Any]  # the entry, or an assigned `forward`
    _stator_entry: Callable[..., Any]
    _stator_settings: Settings

    def __init__(self, module: torch.nn.Module, entry: Callable[..., Any], settings: Settings) -> None:
        # nn.Module.__init__ would make a second set of parameters, buffers and hooks.
        own = marks.attributes_of(self)
        own["_orig_mod"] = module
        own["_stator_entry"] = own["_stator_call"] = entry
        own["_stator_settings"] = settings

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return object.__getattribute__(self, "_stator_call")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in OWN_ATTRIBUTES:
            return object.__getattribute__(self, name)
        original = object.__getattribute__(self, "_orig_mod")
        if name == "__class__" and _installed:
            return class_of_torchs_kind(original.__class__)
        if name == "save" and not hasattr(original, name):
            return marks.attributes_of(self)["_stator_entry"].save
        value = getattr(original, name)
        if name == "forward":
            own = marks.attributes_of(self)
            call = own["_stator_call"]
            # Under the name and with the signature of the original; an assigned one is as it is.
            return functools.wraps(value)(lambda *a, **k: call(*a, **k)) if call is own["_stator_entry"] else call
        if name == "load_state_dict" or name == "_load_from_state_dict":
            return loading_torchs_keys(value, name == "load_state_dict")
        if name in FLUENT_METHODS and callable(value):
            return returning_self(self, original, value)
        return value

    @property
    def dynamo_ctx(self) -> Callable[[Callable[..., Any]], Any]:
        """Compiles a function with the settings of this module: what Lightning does with its steps."""
        settings = self._stator_settings
        return lambda fn: compile_again(fn, settings)

    def __setattr__(self, name: str, value: Any) -> None:
        own = marks.attributes_of(self)
        if name == "forward":
            own["_stator_call"] = value
        elif name != "_orig_mod":
            setattr(self._orig_mod, name, value)
        elif value is not self._orig_mod and value is not self:
            other = compile_again(value, self._stator_settings)
            own.update(marks.attributes_of(other))
            if (mark := marks.compiled_mark(other)) is not None:
                marks.compiled(self, mark)

    def __delattr__(self, name: str) -> None:
        own = marks.attributes_of(self)
        if name == "forward" and own["_stator_call"] is not own["_stator_entry"]:
            own["_stator_call"] = own["_stator_entry"]
        else:
            delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), "_orig_mod"})

    def __repr__(self) -> str:
        return f"Compiled{self._orig_mod!r}"

    # Python looks these up on the type; containers of modules define them.
    __len__ = _forwarded(len)
    __bool__ = _forwarded(bool)  # without it, __len__ would make modules that have none raise in `if module:`
    __getitem__ = _forwarded(operator.getitem)
    __setitem__ = _forwarded(operator.setitem)
    __delitem__ = _forwarded(operator.delitem)
    __iter__ = _forwarded(iter)
    __contains__ = _forwarded(operator.contains)
    __hash__ = _forwarded(hash)  # tables keyed by modules, as `fully_shard` keeps one, find the original as well
    __eq__ = _forwarded(lambda original, other: getattr(other, "_orig_mod", other) is original)

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        copied, settings = copy.deepcopy(self._orig_mod, memo), self._stator_settings
        if isinstance(settings.regions, tuple):  # modules that were copied
            settings = replace(settings, regions=tuple([memo.get(id(each), each) for each in settings.regions]))
        return compile_again(copied, settings)

    def __copy__(self) -> CompiledModule:
        return compile_again(copy.copy(self._orig_mod), self._stator_settings)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        return compile_again, (self._orig_mod, self._stator_settings)


def returning_self(compiled: torch.nn.Module, original: object, method: Callable[..., Any]) -> Callable[..., Any]:
    """The original's method, which hands back the compiled module where it would hand back the original."""

    def call(*args: object, **kwargs: object) -> Any:
        return compiled if (result := method(*args, **kwargs)) is original else result

    return call


class _NoSubclass:
    """Stands before the ancestors of a class, whose `__init_subclass__` is not to be called."""

    def __init_subclass__(cls) -> None:
        pass


def class_of_torchs_kind(original: type) -> type:
    """The class that a compiled module shows: the original's and, where it is loaded, torch's OptimizedModule."""
    optimized = getattr(sys.modules.get(_TORCHS), "OptimizedModule", None)
    if not isinstance(optimized, type) or issubclass(original, optimized):
        return original
    known = _seen_as.get(original)
    if known is None:
        place = original.__mro__.index(torch.nn.Module)
        ancestors = [_NoSubclass, *original.__mro__[:place], optimized, *original.__mro__[place:]]
        told = type("Ancestry", (type,), {"mro": lambda cls: [cls, *ancestors]})
        try:
            known = told(original.__name__, (), {"__module__": original.__module__,
                                                 "__qualname__": original.__qualname__, "__doc__": original.__doc__})
        except TypeError:  # a layout of its own: a module that is a dict, too
            known = original
        _seen_as[original] = known
    return known


def pose_as_torchs(installed: bool) -> None:
    """Whether compiled modules pass as torch's kind, too; as long as torch.compile is Stator's."""
    _installed[:] = [True] if installed else []
