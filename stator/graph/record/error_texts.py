"""What an operation raises, in eager's words.   an exception of a rule for fake tensors  ->  the operation's own

In: a call that its rule for fake tensors refused.  Out: the exception that the operation itself raises on tensors of
the same sizes; the rules word some errors differently, and name symbols (`s79`) where eager names numbers.  The sizes
are in the text, so they become facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
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


class NoCopy(Exception):
    """A tensor that is not made for real."""


def raised_by_eager(func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object],
                    error: Exception, class_of: Callable[[Any], type], inputs: Sequence[GraphInput]) -> Exception:
    """The operation's own exception; a Break where the operation does not agree that it fails.

    `class_of`: what the program takes a fake for, which is in the text too.  `inputs`: whose history fakes do not show.
    """
    with unset_fake_temporarily(), torch._C._DisablePythonDispatcher(), torch.random.fork_rng(devices=[]):
        try:
            raised = [_outcome(func, *pytree.tree_map(partial(_as_given, class_of, inputs, contents), (args, kwargs)))
                      for contents in (0, 1)]
        except NoCopy:
            return error
    failure = raised[0]
    if failure is None or raised[1] is None:  # of zeros or of ones: the values decide
        name = getattr(func, "__name__", func)
        raise Break("SB017", f"the rule of {name} for fake tensors refuses what {name} accepts: {error}")
    failure.__cause__ = failure.__context__ = None  # that of the rule, which eager never asked
    failure.__suppress_context__ = False
    fakes = [leaf for leaf in pytree.tree_leaves((args, kwargs)) if type(leaf) is FakeTensor]
    if any(class_of(fake) not in _KNOWN for fake in fakes):
        _leave_unnamed(failure)
    return failure.with_traceback(None)


def _outcome(func: Callable[..., object], args: Sequence[object], kwargs: dict[str, object]) -> Exception | None:
    try:
        func(*args, **kwargs)
    except Exception as error:
        return error
    return None


_KNOWN = (torch.Tensor, torch.nn.Parameter)


def _leave_unnamed(raised: Exception) -> None:
    """A tensor of a class of its own, which was not asked, is named as a stand-in is (see interp/frame)."""
    if type(raised) is TypeError and len(raised.args) == 1 and type(raised.args[0]) is str:
        raised.args = (re.sub(r"\bTensor\b", "FakeTensor", raised.args[0]),)


def extent_of(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements of memory a layout reaches over."""
    return 1 + sum(stride * (size - 1) for size, stride in zip(sizes, strides, strict=True)) if all(sizes) else 0


def real_copy(value: object, number_of: Callable[..., Any], contents: int, spare: int = 0) -> Any:
    """A filled tensor laid out as a fake, with spare memory behind it; the number of a symbol; or the value."""
    if type(value) in SYMBOLIC:
        return number_of(value, "the text of an exception")
    if not isinstance(value, torch.Tensor):
        return value
    if type(value) is not FakeTensor or value.layout is not torch.strided:
        raise NoCopy
    sizes, strides = list(map(number_of, value.shape)), list(map(number_of, value.stride()))
    extent = extent_of(sizes, strides)
    length, offset = number_of(value.untyped_storage().nbytes()), number_of(value.storage_offset())
    if extent * value.element_size() > _BYTES:
        raise NoCopy
    count = length // value.element_size()
    if spare:
        return torch.full((extent + spare,), contents, dtype=value.dtype, device="cpu").as_strided(sizes, strides)
    if count in (0, extent) or offset + extent > count or length > _BYTES:
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device="cpu").fill_(contents)
    # A view of a larger storage stays one: as_strided reaches beyond it.
    return torch.full((count,), contents, dtype=value.dtype, device="cpu").as_strided(sizes, strides, offset)


def _as_given(class_of: Callable[[Any], type], inputs: Sequence[GraphInput], contents: int, value: Any) -> Any:
    """A real copy that takes part in autograd as its fake does."""
    if type(value) is FakeTensor and value.device.type != "cpu":
        raise NoCopy
    made = real_copy(value, specialise, contents)
    if type(value) is not FakeTensor:
        return made
    if class_of(value) is torch.nn.Parameter:
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
        return made.copy_(made.clone().requires_grad_())


def inputs_behind(value: FakeTensor, inputs: Sequence[GraphInput]) -> list[GraphInput]:
    """The inputs that a tensor is, or is a view of, and that autograd follows."""
    storage = storage_of(value)
    return [each for each in inputs if storage and is_dense(each.fake) and each.fake.requires_grad
            and storage_of(each.fake) == storage and not each.boxed]
