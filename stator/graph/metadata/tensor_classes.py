"""Which classes of tensors are traced as the plain ones they are but for what they add.   class  ->  yes or no

A subclass of Parameter inherits a disabled `__torch_function__`: operations on it are those of a plain tensor, and
give plain tensors.  What it adds (attributes, methods, properties) is read from the class like any other.

Of other subclasses without a `__torch_dispatch__` the fake is that of a plain tensor, too, and the class is noted
beside it: what their `__torch_function__` and their special methods do is interpreted (see
interp/torch_function_protocol).  With a `__torch_dispatch__`, it has to be a wrapper that compilers can take apart
(see wrappers).
"""

from __future__ import annotations

from typing import Any

import torch

PLAIN_CLASSES = frozenset({torch.Tensor, torch.nn.Parameter, torch.nn.Buffer})
_BASES = frozenset({torch.nn.Parameter, torch.Tensor, torch._C.TensorBase, object})
_HARMLESS = frozenset("""
    __module__ __doc__ __new__ __init__ __dict__ __weakref__ __annotations__ __qualname__ __init_subclass__
    __firstlineno__ __static_attributes__ __annotate__ __annotations_cache__ __parameters__ __orig_bases__
    """.split())


def acts_as_parameter(cls: type) -> bool:
    """Whether a subclass of Parameter only adds to it; asked again by a guard, for a class may change."""
    mro = type.__dict__["__mro__"].__get__(cls)
    if type(cls) is not type(torch.nn.Parameter) or torch.nn.Parameter not in mro:
        return False
    added = [name for base in mro if base not in _BASES for name in type.__dict__["__dict__"].__get__(base)]
    return not any(name not in _HARMLESS and (name.startswith("__") or hasattr(torch.nn.Parameter, name))
                   for name in added)


def acts_above_dispatch(cls: type) -> bool:
    """Whether a subclass is a plain tensor to torch's dispatcher, and all it changes can be interpreted."""
    return _own_dispatch(cls) is None and _is_spoken(cls)


def acts_as_wrapper(cls: type) -> bool:
    """Whether a subclass is a wrapper that compilers can take apart, and all else it changes can be interpreted."""
    return _own_dispatch(cls) is not None and _is_spoken(cls) \
        and hasattr(cls, "__tensor_flatten__") and hasattr(cls, "__tensor_unflatten__")


def _own_dispatch(cls: type) -> Any:
    for base in type.__dict__["__mro__"].__get__(cls):
        found = type.__dict__["__dict__"].__get__(base).get("__torch_dispatch__")
        if found is not None:
            return None if found is torch._C._disabled_torch_dispatch_impl else found
    return None


def _is_spoken(cls: type) -> bool:
    entries = [type.__dict__["__dict__"].__get__(base) for base in type.__dict__["__mro__"].__get__(cls)
               if base not in _BASES]
    return not any(name in own for own in entries for name in _UNSPOKEN) \
        and all(own.get("__hash__", torch.Tensor.__hash__) is torch.Tensor.__hash__ for own in entries)


# What C code asks of an object behind the interpreter's back.
_UNSPOKEN = frozenset("""
    __getattribute__ __del__ __index__ __int__ __float__ __complex__ __array__
    __array_wrap__ __dlpack__ __delattr__ __delitem__ __round__ __divmod__ __rdivmod__
    """.split())
