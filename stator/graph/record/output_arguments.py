"""Compare an operator that is given out= with its rule for fakes.   mse_loss(x, y, out=r)  ->  r is enlarged

In: a call with out=, before it runs on fakes.  Out: a Break where its rule for fakes leaves out= another layout than
the kernel does, and the reason why no compiler may have the call: compilers compute a new tensor and copy it to out=.
The kernel is observed twice, on tensors of the same layouts; each out= holds one number,
first with memory behind it, then in a storage that cannot be resized.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.analysis.mutation import output_names, tensors_in
from stator.graph.record.error_texts import NoCopy, extent_of, real_copy
from stator.shapes.symbolic_values import hint_of

_SPARE = 64  # elements behind an out=
Operator = Callable[..., object]
Arguments = tuple[object, ...]
Layout = tuple[object, ...]


def check_outputs(func: Operator, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    """Why no compiler may have the call; empty where one may."""
    names = output_names(func)
    if next(tensors_in([value for key, value in kwargs.items() if key in names]), None) is None:
        return ""
    name, dtypes = getattr(func, "__name__", func), {each.dtype for each in tensors_in(args)}
    with _unseen():
        try:
            first = _Trial(func, args, kwargs, 0)
            second = _Trial(func, args, kwargs, 1, first.kept)
        except Exception:  # of the kernel, and perhaps of the values: the graph will tell
            return f"{name} with an out=, which was not observed"
        if first.foreseen not in (None, first.layouts):
            raise Break("SB017", f"{name}, whose rule for fake tensors gives out= another layout")
        if first.enlarged or second.enlarged:  # it writes behind out=, and raises where an array shares the memory
            raise Break("SB017", f"{name}, which enlarges its out= for a while")
        if len(first.outputs) == 1 and first.outputs[0].dtype not in dtypes:
            return f"{name} with an out= of another dtype, to which compilers cast"
        same = all(bool(((left == right) | (left != left) & (right != right)).all())
                   for left, right in zip(first.outputs, second.outputs, strict=True))
        return "" if same else f"{name}, which reads what its out= held"


@contextmanager
def _unseen() -> Iterator[None]:
    """Leave modes, random streams, warnings and flags of torch's warnings as they are."""
    always = torch.is_warn_always_enabled()
    with torch._C.DisableTorchFunction(), unset_fake_temporarily(), torch.no_grad(), \
            torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.set_warn_always(True)  # a warning that is given once is not used up
        try:
            yield
        finally:
            torch.set_warn_always(always)


class _Trial:
    """One call of the kernel, and of its rule for fakes."""

    def __init__(self, func: Operator, args: Arguments, kwargs: dict[str, Any], number: int,
                 fixed: bool = False) -> None:
        names = output_names(func)
        given = {name: pytree.tree_map(lambda each, spare=_SPARE * (name in names): _real(each, spare, number), value)
                 for name, value in kwargs.items() if name != "generator"}
        args = pytree.tree_map(_real, args)
        self.outputs = list(tensors_in([given[name] for name in given if name in names]))
        self.foreseen = None if number else _foreseen(func, args, given, names)
        before = [each.shape for each in self.outputs]
        for each in self.outputs if fixed else ():
            each.untyped_storage().resize_(extent_of(each.shape, each.stride()) * each.itemsize)
            each.reshape(-1)[:0].view(torch.uint8).numpy()  # its storage is no longer resized
        torch.default_generator.manual_seed(0)
        self.enlarged = False
        with torch._C._DisablePythonDispatcher():
            try:
                func(*args, **given)
            except RuntimeError:
                if not fixed:
                    raise
                self.enlarged = True
        self.kept = [each.shape for each in self.outputs] == before
        self.layouts = list(map(_layout, self.outputs))
        if self.kept and not fixed:
            self.enlarged = any([bool((_behind(each) != number).any()) for each in self.outputs])


def _real(value: object, spare: int = 0, number: int = 0) -> object:
    made = real_copy(value, _hint, number, spare)
    if not spare and isinstance(made, torch.Tensor) and made.dtype.is_floating_point and made.ndim > 1 \
            and made.size(-1) == made.size(-2):
        made.copy_(torch.eye(made.size(-1), device="cpu"))  # matrices have an inverse
    return made


def _hint(value: object, what: str = "") -> object:
    if (known := hint_of(value)) is None:
        raise NoCopy
    return known


def _foreseen(func: Operator, args: Arguments, kwargs: dict[str, object], names: set[str]) -> list[Layout] | None:
    """The layouts that the rule for fakes gives out=; None where it raises: the trace will meet that."""
    mode = FakeTensorMode()
    args, kwargs = pytree.tree_map_only(torch.Tensor, mode.from_tensor, (args, kwargs))
    try:
        with mode:
            func(*args, **kwargs)
    except Exception:
        return None
    return [_layout(each) for each in tensors_in([kwargs[name] for name in kwargs if name in names])]


def _layout(tensor: torch.Tensor) -> Layout:
    """Strides of single items count for nothing."""
    strides = [stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size != 1]
    return tensor.dtype, tensor.shape, strides if tensor.numel() else []


def _behind(output: torch.Tensor) -> torch.Tensor:
    return output.as_strided((_SPARE,), (1,), extent_of(output.shape, output.stride()))
