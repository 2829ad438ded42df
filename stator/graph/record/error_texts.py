"""What an operation raises, in eager's words.   an exception of a rule for fake tensors  ->  the operation's own

In: a call that its rule for fake tensors refused.  Out: the exception that the operation itself raises on tensors of
the same sizes; the rules word some errors differently, and name symbols (`s79`) where eager names numbers.  The sizes
are in the text, so they become facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.analysis.mutation import storage_of
from stator.graph.analysis.shared_memory import is_dense, refuses_writes
from stator.graph.record.input_recorder import GraphInput
from stator.shapes.symbolic_values import SYMBOLIC, specialise

_BYTES = 1 << 26  # of memory that is spent on the text of an exception


class _NoCopy(Exception):
    """A tensor that is not made for real."""


def raised_by_eager(func: Any, args: Any, kwargs: Any, error: Exception, class_of: Callable[[Any], type],
                    inputs: Sequence[GraphInput]) -> Exception:
    """The operation's own exception; a Break where the operation does not agree that it fails.

    `class_of`: what the program takes a fake for, which is in the text too.  `inputs`: whose history fakes do not show.
    """
    with unset_fake_temporarily(), torch._C._DisablePythonDispatcher(), torch.random.fork_rng(devices=[]):
        try:
            real_args, real_kwargs = pytree.tree_map(lambda value: _real(value, class_of, inputs), (args, kwargs))
        except _NoCopy:
            return error
        try:
            func(*real_args, **real_kwargs)
        except Exception as raised:
            raised.__cause__ = raised.__context__ = None  # that of the rule, which eager never asked
            raised.__suppress_context__ = False
            fakes = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if type(leaf) is FakeTensor]
            if any(class_of(fake) not in _KNOWN for fake in fakes):
                _leave_unnamed(raised)
            return raised.with_traceback(None)
    name = getattr(func, "__name__", func)
    raise Break("SB017", f"the rule of {name} for fake tensors refuses what {name} accepts: {error}")


_KNOWN = (torch.Tensor, torch.nn.Parameter)


def _leave_unnamed(raised: Exception) -> None:
    """A tensor of a class of its own, which was not asked, is named as a stand-in is (see interp/frame)."""
    if type(raised) is TypeError and len(raised.args) == 1 and type(raised.args[0]) is str:
        raised.args = (re.sub(r"\bTensor\b", "FakeTensor", raised.args[0]),)


def _real(value: Any, class_of: Callable[[Any], type], inputs: Sequence[GraphInput]) -> Any:
    if type(value) in SYMBOLIC:
        return specialise(value, "the text of an exception")
    if not isinstance(value, torch.Tensor):
        return value
    if type(value) is not FakeTensor or value.device.type != "cpu" or value.layout is not torch.strided:
        raise _NoCopy
    cls = class_of(value)
    sizes = [specialise(size) for size in value.shape]
    strides = [specialise(stride) for stride in value.stride()]
    extent = sum(stride * max(size - 1, 0) for stride, size in zip(strides, sizes, strict=True)) + 1
    if extent * value.element_size() > _BYTES:
        raise _NoCopy
    made = _part_of_storage(value, sizes, strides, extent)
    if made is None:
        made = torch.empty_strided(sizes, strides, dtype=value.dtype).zero_()
    if cls is torch.nn.Parameter:
        return torch.nn.Parameter(made, requires_grad=value.requires_grad)
    if value.requires_grad:
        return _with_history(made, value, inputs)
    return made


def _with_history(made: torch.Tensor, value: FakeTensor, inputs: Sequence[GraphInput]) -> torch.Tensor:
    """A leaf, a view of a leaf, or a result: autograd refuses writes to the first two."""
    same = next((each.tensor for each in inputs if each.fake is value), None)
    behind = next(iter(inputs_behind(value, inputs)), None)
    with torch.enable_grad():
        if (value if same is None else same).is_leaf:
            return made.requires_grad_()
        refused = value._base is not None and value._base.is_leaf if behind is None else refuses_writes(behind.tensor)
        if refused or 0 in value.stride():
            return made.requires_grad_().view_as(made)
        return made.copy_(torch.zeros_like(made).requires_grad_())


def inputs_behind(value: FakeTensor, inputs: Sequence[GraphInput]) -> list[GraphInput]:
    """The inputs that a tensor is, or is a view of, and that autograd follows."""
    storage = storage_of(value)
    return [each for each in inputs if storage and is_dense(each.fake) and each.fake.requires_grad
            and storage_of(each.fake) == storage and not each.boxed]


def _part_of_storage(value: Any, sizes: list[int], strides: list[int], extent: int) -> torch.Tensor | None:
    """A view of a larger storage stays one: as_strided reaches beyond it. None where the tensor fills its storage."""
    length, offset = value.untyped_storage().nbytes(), value.storage_offset()
    length, offset = (specialise(each) if type(each) is torch.SymInt else each for each in (length, offset))
    count = length // value.element_size()
    if count == extent or offset + extent > count or length > _BYTES:
        return None
    return torch.zeros(count, dtype=value.dtype).as_strided(sizes, strides, offset)
