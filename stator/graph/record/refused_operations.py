"""Operations whose rule for fake tensors is missing, wrong or worded differently.   quantize_per_tensor(x)  ->  Break

In: a call of an operation on fakes.  Out: a Break where its rule gives another result than the kernel, the result of
torch's decomposition where C++ code reads values, and the exception that eager raises where the rule refuses the call.
"""

from __future__ import annotations

import keyword
import re
import types
import warnings
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses import fake_tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree

from stator.breaks import Break
from stator.graph.analysis.mutation import output_names, qualified_name, storage_of, tensors_in
from stator.graph.analysis.shared_memory import is_dense, refuses_writes
from stator.graph.metadata.input_layouts import CAPSULE
from stator.graph.record.input_recorder import GraphInput
from stator.shapes.symbolic_values import SYMBOLIC, hint_of, specialise

ATOMS = frozenset({int, float, complex, bool, str, type(None), type(...), torch.dtype, torch.device, torch.layout,
                   torch.memory_format, range})
PACKED = "packed sequences"  # a cause of breaks
_PACKING = frozenset({"_pack_padded_sequence", "_pad_packed_sequence"})
_NUMBER_TYPES = (torch._C.BoolType, torch._C.IntType, torch._C.FloatType, torch._C.NumberType)
_STORED = frozenset("_nnz indices _indices values _values crow_indices col_indices ccol_indices row_indices".split())
_BYTES = 1 << 26  # of memory that is spent on the text of an exception
_KNOWN = (torch.Tensor, torch.nn.Parameter)
_SPARE = 64  # elements behind an out=
_aten = torch.ops.aten
_COPYING_DROPOUTS: frozenset[Any] = frozenset({
    torch.native_dropout, _aten.native_dropout, _aten.native_dropout.default})
_DROPOUTS: dict[Any, tuple[str, ...]] = {
    torch.nn.functional.dropout: ("input", "p", "training", "inplace"),
    **dict.fromkeys((torch.dropout, _aten.dropout, _aten.dropout.default, *_COPYING_DROPOUTS), ("input", "p", "train"))}
FUSED = [getattr(torch, name) for name in dir(torch) if name.startswith("_fused_") and name.endswith("_")]
_FUSED = {id(each) for function in FUSED for each in (function, getattr(
    getattr(_aten, function.__name__), "tensor_lr", None))} - {id(None)}
Operator = Callable[..., object]
Arguments = tuple[object, ...]
Layout = tuple[object, ...]


def refuse_real_tensors(values: Iterable[Any]) -> None:
    """Break at values without a fake (a subclass, say) in a traced operation."""
    for value in values:
        cls = type(value)
        if cls is FakeTensor or cls in ATOMS:
            continue
        if cls is list or cls is tuple:
            refuse_real_tensors(value)
        elif issubclass(cls, torch.Tensor):
            raise Break("SB017", kind_of(value))
        elif cls is CAPSULE:  # whoever takes a tensor out of it empties it
            raise Break("SB005", "a capsule passed to a torch operation")


def fakes_of_a_trace(shape_env: object) -> fake_tensor.FakeTensorMode:
    """A mode of fake tensors that raises where torch would run a kernel on zeros for a number or a truth.

    Such a result is no fact of the arguments.  Rules of higher-order operators know no subclass of the mode.
    """
    mode = fake_tensor.FakeTensorMode(shape_env=shape_env, allow_non_fake_inputs=False)
    mode.can_run_unsafe_fallback = partial(_may_run_kernel, weakref.ref(mode))  # type: ignore[method-assign]
    return mode


def _may_run_kernel(mode: weakref.ref[fake_tensor.FakeTensorMode], func: OpOverload) -> bool:
    if any(isinstance(result.type, _NUMBER_TYPES) for result in func._schema.returns):
        return False
    return bool(fake_tensor.FakeTensorMode.can_run_unsafe_fallback(mode(), func))


def kind_of(tensor: torch.Tensor) -> str:
    """Name the kind of a tensor that has no fake."""
    with torch._C.DisableTorchFunction():
        if tensor.is_nested:
            return f"a nested tensor of layout {tensor.layout}"
        if type(tensor) is torch.Tensor and tensor.layout is not torch.strided:
            return f"a tensor of layout {tensor.layout}"
        return f"a tensor of type {type(tensor).__name__}"


def refuse_misread(target: object) -> None:
    """Break at an operation whose rule for fake tensors gives a result of another kind or size than the operation."""
    name = target if type(target) is str else getattr(target, "__name__", "")
    name, _, overload = name.partition(".")  # an operator is called `_nnz.default`
    if keyword.iskeyword(overload):
        raise Break("SB011", f"the operator {name}.{overload}")  # code of graphs cannot spell it
    overload_or_packet = type(target) is OpOverload or type(target) is OpOverloadPacket
    if not qualified_name(target).startswith("aten::") if overload_or_packet else type(target) is types.FunctionType:
        return  # of the same name, and with a rule of its own
    if name.startswith("quantize_"):
        raise Break("SB017", "a quantised tensor")  # its fake would be a plain one
    if name in _PACKING:
        raise Break("SB017", PACKED)  # their fake has the length of the batch
    if name in _STORED:
        raise Break("SB004", "how many elements a sparse tensor has")  # its fake has none


def results_of_dropout(func: Operator, args: tuple[Any, ...], kwargs: dict[str, object]) -> object:
    """The result of a dropout that drops nothing, which rules for fakes get wrong; None where they are right.

    With symbols, torch's rule of dropout() gives a copy where the operator gives its very argument, and the rule of
    native_dropout() the argument where the operator gives a copy.
    """
    names = _DROPOUTS.get(func) if isinstance(func, Hashable) else None
    if names is None or len(args) > len(names):
        return None
    given: dict[str, object] = {"p": 0.5, "training": True, **dict(zip(names, args, strict=False)), **kwargs}
    tensor, rate, training = given.get("input"), given["p"], given.get(names[2], True)
    if not isinstance(tensor, FakeTensor) or type(training) is not bool or not isinstance(rate, (int, float)):
        return None
    if not 0 <= rate <= 1 or not tensor.dtype.is_floating_point:
        return None
    if func in _COPYING_DROPOUTS:
        return None if training else (tensor.clone(), torch.ones_like(tensor, dtype=torch.bool))
    return None if training and rate else tensor


def numbers_left_open(func: object, kwargs: dict[str, Any]) -> dict[str, Any]:
    """The arguments for fakes: C++ would make constants of the numbers of a fused kernel, which decide no layout."""
    if kwargs and id(func) in _FUSED and torch.SymFloat in map(type, kwargs.values()):
        return {name: 0.5 if type(value) is torch.SymFloat else value for name, value in kwargs.items()}
    return kwargs


def is_sparse(fake: torch.Tensor) -> bool:
    with torch._C.DisableTorchFunction():  # the tracer's own mode may be on
        return fake.layout is not torch.strided and not fake.is_nested


def takes_sparse(arguments: object) -> bool:
    with torch._C.DisableTorchFunction():
        return any(map(is_sparse, tensors_in(arguments)))


def no_compiler_may_have(args: object, kwargs: object, result: object) -> bool:
    """Whether an operation makes a sparse tensor, or takes one that autograd follows.

    AOTAutograd loses the history at coalesce(), to_dense(), softmax and others, and cannot keep a result for later.
    """
    with torch._C.DisableTorchFunction():  # the tracer's own mode is on
        return any(map(is_sparse, tensors_in(result))) or any(
            is_sparse(fake) and fake.requires_grad for fake in tensors_in((args, kwargs)))


def decomposed(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> Any:
    """The result; a break where the decomposition looks at values too."""
    try:
        with enable_python_dispatcher():
            return func(*args, **kwargs)
    except fake_tensor.DataDependentOutputException:
        raise Break("SB003", why) from None


class NoCopy(Exception):
    """A tensor that is not made for real."""


def raised_by_eager(func: Callable[..., object], args: tuple[object, ...], kwargs: dict[str, object],
                    error: Exception, class_of: Callable[[Any], type], inputs: Sequence[GraphInput]) -> Exception:
    """The operation's own exception; a Break where the operation accepts the call."""
    with fake_tensor.unset_fake_temporarily(), torch._C._DisablePythonDispatcher(), torch.random.fork_rng(devices=[]):
        try:
            raised = [_outcome(func, *pytree.tree_map(partial(_as_given, class_of, inputs, contents), (args, kwargs)))
                      for contents in (0, 1)]
        except NoCopy:
            if any(fake.layout is not torch.strided for fake in tensors_in((args, kwargs))):
                raise Break("SB017", f"an operation on a sparse tensor without elements: {error}") from None
            return error
    failure = raised[0]
    if failure is None or raised[1] is None:  # of zeros or of ones: the values decide
        name = getattr(func, "__name__", func)
        raise Break("SB017", f"the rule of {name} for fake tensors refuses what {name} accepts: {error}")
    failure.__cause__ = failure.__context__ = None  # that of the rule, which eager does not run
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


def _leave_unnamed(raised: Exception) -> None:
    """Name tensors of subclasses as stand-ins are named (see interp/frame)."""
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
    return _with_history(made, value, inputs) if value.requires_grad else made


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
        except Exception:  # of the kernel, and perhaps of the values: known when the graph runs
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
    with torch._C.DisableTorchFunction(), fake_tensor.unset_fake_temporarily(), torch.no_grad(), \
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
            behind = [each.as_strided((_SPARE,), (1,), extent_of(each.shape, each.stride())) for each in self.outputs]
            self.enlarged = any([bool((each != number).any()) for each in behind])


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
    mode = fake_tensor.FakeTensorMode()
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
