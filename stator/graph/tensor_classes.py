"""Which classes of tensors are traced as the plain ones they are but for what they add.   class  ->  yes or no

A subclass of Parameter inherits a disabled `__torch_function__`: operations on it are those of a plain tensor, and
give plain tensors.  What it adds (attributes, methods, properties) is read from the class like any other; a class that
replaces something of Tensor's, or has special methods of its own, is left to eager.
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


def acts_as_parameter(cls: Any) -> bool:
    """Whether a subclass of Parameter only adds to it; asked again by a guard, for a class may change."""
    mro = type.__dict__["__mro__"].__get__(cls)
    if type(cls) is not type(torch.nn.Parameter) or torch.nn.Parameter not in mro:
        return False
    added = [name for base in mro if base not in _BASES for name in type.__dict__["__dict__"].__get__(base)]
    return not any(name not in _HARMLESS and (name.startswith("__") or hasattr(torch.nn.Parameter, name))
                   for name in added)
