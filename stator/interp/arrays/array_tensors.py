"""Arrays as tensors, and functions of numpy in torch.

    torch.from_numpy(values)                   ->  an input of the graph on the memory of `values`
    np.sin  ->  torch.sin;  np.median  ->  torch._numpy's median

An array made inside the trace becomes a literal in the graph; where the tensor shares its memory, the array is a name
for that tensor.  Functions of which torch gives other values or guarantees less are left out.
"""

from __future__ import annotations

import operator
from typing import Any

import numpy
import torch
import torch._numpy as forms
from numpy import ndarray
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from stator.breaks import Break
from stator.heap.tracker import ShadowKind, VariableTracker
from stator.interp.frame import raising
from stator.interp.services import VM
from stator.interp.tensors import tensor_bookkeeping
from stator.source import CallOf, Pinned

_SAME_NAME = """add arccos arccosh arcsin arcsinh arctan arctan2 arctanh bitwise_and bitwise_not bitwise_or bitwise_xor
    ceil copysign cos cosh deg2rad divide exp exp2 expm1 float_power floor floor_divide fmax fmin fmod greater
    greater_equal hypot isfinite isinf isnan ldexp less less_equal log log10 log1p log2 logaddexp logaddexp2 logical_and
    logical_not logical_or logical_xor maximum minimum multiply negative nextafter not_equal rad2deg reciprocal
    remainder signbit sin sinh sqrt square subtract tan tanh trunc""".split()
# Those of which torch's form takes a Python number as the second operand and gives what a tensor would give.
TAKES_NUMBERS = frozenset(map(id, (numpy.add, numpy.subtract, numpy.multiply, numpy.divide, numpy.less,
                                   numpy.less_equal, numpy.greater, numpy.greater_equal, numpy.equal,
                                   numpy.not_equal, numpy.power, numpy.remainder, numpy.floor_divide, numpy.fmod)))
# Of integers, zero as a divisor is a warning in numpy and an error in torch; so are negative powers in numpy.
DIVIDES = frozenset(map(id, (numpy.floor_divide, numpy.remainder, numpy.fmod, numpy.power)))
NOT_COMPLEX = frozenset(map(id, (
    numpy.power, numpy.float_power, numpy.sign, numpy.rint, numpy.maximum, numpy.minimum, numpy.fmax, numpy.fmin,
    numpy.greater, numpy.greater_equal, numpy.less, numpy.less_equal)))
# Stems of special methods -> the ufunc of the operator
_STEMS: dict[str, Any] = {
    "add": numpy.add, "sub": numpy.subtract, "mul": numpy.multiply, "truediv": numpy.divide,
    "floordiv": numpy.floor_divide, "mod": numpy.remainder, "pow": numpy.power, "matmul": numpy.matmul,
    "lshift": numpy.left_shift, "rshift": numpy.right_shift, "and": numpy.bitwise_and, "or": numpy.bitwise_or,
    "xor": numpy.bitwise_xor}
_OTHERS: dict[str, Any] = {
    "lt": numpy.less, "le": numpy.less_equal, "eq": numpy.equal, "ne": numpy.not_equal, "gt": numpy.greater,
    "ge": numpy.greater_equal, "neg": numpy.negative, "pos": numpy.positive, "invert": numpy.invert}
_PLAIN: dict[str, Any] = {stem: getattr(operator, f"__{stem}__") for stem in _STEMS | _OTHERS}
_ASSIGNING: dict[str, Any] = {stem: getattr(operator, f"__i{stem}__") for stem in _STEMS}
OPERATORS: dict[Any, Any] = {abs: numpy.absolute, **{_PLAIN[stem]: each for stem, each in (_STEMS | _OTHERS).items()}}
IN_PLACE: dict[Any, Any] = {_ASSIGNING[stem]: _PLAIN[stem] for stem in _STEMS}
_FUNCTIONS = """atleast_1d atleast_2d atleast_3d concatenate vstack hstack dstack column_stack stack append array_split
    split hsplit vsplit dsplit kron vander corrcoef cov convolve correlate where expand_dims flip flipud fliplr rot90
    broadcast_to broadcast_arrays meshgrid tril triu isclose nan_to_num take take_along_axis clip repeat tile diagonal
    trace diag diagflat vdot tensordot dot inner outer cross einsum sort searchsorted moveaxis swapaxes rollaxis roll
    squeeze reshape transpose ravel diff angle sinc gradient round real imag iscomplex isreal isneginf isposinf i0 pad
    argmax argmin count_nonzero any all amax max amin min ptp sum prod mean std var cumsum cumprod average quantile
    percentile median copy empty_like full_like ones_like zeros_like fill_diagonal copyto""".split()
_LINALG = "cholesky det inv matrix_power norm pinv slogdet solve".split()
_FFT = """fft ifft fft2 ifft2 fftn ifftn rfft irfft rfft2 irfft2 rfftn irfftn hfft ihfft fftshift ifftshift""".split()
# Of these the result does not depend on the contents.
METADATA = frozenset(id(getattr(numpy, name)) for name in "shape ndim size iscomplexobj isrealobj result_type".split())
_METHODS = """clip repeat round squeeze swapaxes ravel diagonal dot trace searchsorted argmax argmin any all max min sum
    prod mean var std cumsum cumprod take conj conjugate astype copy flatten view fill sort transpose reshape""".split()
# The same methods of scalars, which are the graph's where it holds them
SCALAR_METHODS = [getattr(numpy.generic, name) for name in _METHODS
                  if name not in ("fill", "sort", "view") and hasattr(numpy.generic, name)]
REFLECTED: dict[int, Any] = {id(getattr(numpy.ndarray, f"__r{stem}__")): _PLAIN[stem] for stem in _STEMS}
# Which write to their first argument; of the others, only `out` may change.
WRITES = frozenset(map(id, (numpy.fill_diagonal, numpy.copyto, numpy.ndarray.fill, numpy.ndarray.sort)))
# numpy's ufunc -> what its `reduce` is
REDUCTIONS: dict[int, Any] = {id(ufunc): form for ufunc, form in (
    (numpy.add, forms.sum), (numpy.multiply, forms.prod), (numpy.maximum, forms.max), (numpy.minimum, forms.min),
    (numpy.logical_and, forms.all), (numpy.logical_or, forms.any))}
LITERAL_LIMIT = 4096  # elements of an array of the trace that become a literal in the graph
NUMPY_DTYPES = {torch.from_numpy(numpy.zeros(0, name)).dtype: numpy.dtype(name) for name in (
    "bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32", "float64",
    "complex64", "complex128")}
_TORCH_DTYPES = {theirs: ours for ours, theirs in NUMPY_DTYPES.items()}


def sign(x: torch.Tensor) -> torch.Tensor:
    """torch's sign of a NaN is 0."""
    return torch.sign(x) if not x.is_floating_point() else torch.where(torch.isnan(x), x, torch.sign(x))


# numpy's ufunc -> the function of tensors that have the types of its loop
UFUNCS: dict[int, Any] = {id(getattr(numpy, name)): getattr(torch, name) for name in _SAME_NAME}
UFUNCS |= {id(ufunc): form for ufunc, form in (
    (numpy.absolute, lambda x: x.clone() if x.dtype == torch.bool else torch.abs(x)), (numpy.fabs, torch.abs),
    (numpy.matmul, lambda x, y: forms.matmul(forms.ndarray(x), forms.ndarray(y)).tensor), (numpy.sign, sign),
    (numpy.cbrt, lambda x: torch.copysign(torch.pow(torch.abs(x), 1 / 3), x)), (numpy.positive, lambda x: x.clone()),
    (numpy.conjugate, torch.conj_physical), (numpy.degrees, torch.rad2deg), (numpy.radians, torch.deg2rad),
    (numpy.equal, torch.eq), (numpy.left_shift, torch.bitwise_left_shift), (numpy.power, torch.pow),
    (numpy.right_shift, torch.bitwise_right_shift), (numpy.rint, torch.round))}

# numpy's function -> the same of torch._numpy, on its arrays
FUNCTIONS: dict[int, Any] = {id(getattr(numpy, name)): getattr(forms, name) for name in _FUNCTIONS}
FUNCTIONS |= {id(getattr(numpy.linalg, name)): getattr(forms.linalg, name) for name in _LINALG}
FUNCTIONS |= {id(getattr(numpy.fft, name)): getattr(forms.fft, name) for name in _FFT}
FUNCTIONS |= {id(numpy.array): forms.array, id(numpy.asarray): forms.asarray, id(numpy.asanyarray): forms.asarray,
              id(numpy.ascontiguousarray): forms.ascontiguousarray}

FUNCTIONS |= {id(getattr(numpy.ndarray, name)): getattr(forms.ndarray, name) for name in _METHODS}
FUNCTIONS |= {id(method): FUNCTIONS[id(getattr(numpy.ndarray, method.__name__))] for method in SCALAR_METHODS}
# The methods behind operators -> the operator
SLOTS: dict[int, Any] = {id(numpy.ndarray.__abs__): abs}
SLOTS |= {id(getattr(numpy.ndarray, f"__{stem}__")): function for stem, function in _PLAIN.items()}
SLOTS |= {id(getattr(numpy.ndarray, f"__i{stem}__")): function for stem, function in _ASSIGNING.items()}


def shared_tensor(vm: VM, array: Any) -> Any:
    """A tensor on the memory of an array: an input of the graph, or what the array has become."""
    memory = vm.heap.arrays
    if memory.is_backed(array):
        tensor = tensor_of(vm, array, writes=True)
        _require_whole_storage(vm, tensor)
        return _beside(vm, tensor)
    tracker = vm.heap.by_standin.get(id(array))
    if tracker is None:
        return _literal(vm, array, shared=True)
    if not tracker.original.flags.writeable:
        raise Break("SB015", "a tensor on the memory of a read-only array, of which torch warns")
    if vm.heap.faces.has_changed(tracker):
        raise Break("SB006", "a tensor on the memory of an array that was changed")
    seen = id(array) in memory.inputs
    fake = _input(vm, tracker)
    vm.heap.faces.tie(tracker)
    return _beside(vm, own_face(vm, fake)) if seen else fake


def beside(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor with another storage on the same memory, as of torch.from_numpy; a compiler's own tensors have one."""
    real = not torch._C._len_torch_dispatch_stack() and not torch._is_functional_tensor(tensor)
    return torch.from_numpy(tensor.data.numpy()) if real and type(tensor.data) is torch.Tensor else tensor.data


def _beside(vm: VM, fake: torch.Tensor) -> torch.Tensor:
    """Record it for `x.data`, whose writes pass version counters as these do."""
    made: torch.Tensor = own_face(vm, fake)
    node = vm.recorder.node_of(made)
    node.target, node.args = beside, node.args[:1]
    return made


def _require_whole_storage(vm: VM, fake: Any) -> None:
    """Break at a tensor on part of a storage: torch.from_numpy gives that part a storage of its own, at offset 0."""
    tensor_bookkeeping.guard_offsets(vm)
    tensor_bookkeeping.guard_storage_sizes(vm)
    offset = vm.torch_call(torch.Tensor.storage_offset, (fake,), None)
    if offset != 0 or tensor_bookkeeping.storage_size(fake) != fake.numel() * fake.itemsize:
        raise Break("SB003", "a tensor on the memory of an array that is part of a tensor's storage")


def _input(vm: VM, tracker: VariableTracker) -> Any:
    """The graph's input on the memory of an outside array, as it was at the start."""
    inputs = vm.heap.arrays.inputs
    fake = inputs.get(id(tracker.standin))
    if fake is None:
        source = CallOf(Pinned(torch.from_numpy), (tracker.source,))
        fake = inputs[id(tracker.standin)] = vm.heap.adopt(real_tensor(tracker.original), source)
    elif vm.recorder.is_written(fake):
        raise Break("SB006", "a second tensor on the memory of an array that tensor operations have changed")
    return fake


def real_tensor(array: numpy.ndarray) -> torch.Tensor:
    """A real tensor on an array's memory, whatever modes the trace is in."""
    with _disable_current_modes(), torch._C.DisableTorchFunction():
        return raising(torch.from_numpy, array)


def _literal(vm: VM, array: Any, shared: bool) -> Any:
    """A tensor with the contents of an array of the trace; with `shared`, it is the array's contents from now on."""
    memory = vm.heap.arrays
    memory.expose(array)
    outside = vm.heap.by_standin.get(id(memory.root_of(array))) is not None
    if array.size > LITERAL_LIMIT or shared and (outside or not memory.owns_alone(array) or not array.flags.writeable):
        raise Break("SB003", "a tensor on the memory of an array that was made inside")
    with torch._C.DisableTorchFunction():
        dtype = real_tensor(array.copy()).dtype
    if shared and not array.flags.c_contiguous:
        raise Break("SB003", "a tensor on the memory of an array that is not contiguous")
    values = array.tolist()
    made = vm.torch_call(torch.tensor, (values,), {"dtype": dtype})
    if made.shape != array.shape:  # an empty array of several dimensions
        made = vm.torch_call(torch.Tensor.reshape, (made, array.shape), None)
    if shared:
        memory.back(array, own_face(vm, made))
        refill(array)
    return made


def copied_tensor(vm: VM, array: Any) -> Any:
    memory = vm.heap.arrays
    tracker = vm.heap.by_standin.get(id(array))
    if memory.is_backed(array):
        source = tensor_of(vm, array)
    elif tracker is None or not tracker.original.flags.writeable or vm.heap.faces.has_changed(tracker):
        return _literal(vm, array, shared=False)
    else:
        source = _input(vm, tracker)
    return vm.torch_call(torch.clone, (source,), {"memory_format": torch.contiguous_format})


def from_array(vm: VM, function: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """torch.tensor, torch.as_tensor or torch.asarray of an array; the latter two share its memory where they can."""
    array = args[0] if args else kwargs["data"]
    dtype, device = kwargs.get("dtype"), kwargs.get("device")
    shares = function is not torch.tensor and dtype in (None, torch_dtype(array.dtype)) \
        and (device is None or torch.device(device).type == "cpu")
    return from_copy(vm, shared_tensor(vm, array) if shares else copied_tensor(vm, array), args, kwargs)


def from_copy(vm: VM, made: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Convert a new tensor as the keywords of torch.tensor want it."""
    rest = {key: value for key, value in kwargs.items() if value is not None and key not in ("data", "requires_grad")}
    if len(args) > 1 or set(rest) - {"dtype", "device"} or vm.torch_state.devices:
        raise Break("SB005", "an array as a tensor, with more arguments than a dtype and a device")
    rest = {"dtype": rest.get("dtype", made.dtype), "device": torch.device(rest.get("device", "cpu"))}
    if made.dtype is not rest["dtype"] or rest["device"].type != "cpu":
        made = vm.torch_call(torch.Tensor.to, (made,), rest)
    if kwargs.get("requires_grad"):
        tensor_bookkeeping.set_requires_grad(vm, made, True)
    return made


def torch_dtype(dtype: Any) -> torch.dtype:
    found = _TORCH_DTYPES.get(dtype)
    if found is None:
        raise Break("SB003", f"an array of {dtype} as a tensor")
    return found


def new_array(vm: VM, fake: FakeTensor, like: object = None) -> ndarray:
    """An array of which the layout is known, and whose contents are those of a tensor."""
    if like is not None:
        fake = _laid_out(vm, fake, like)
    dtype = NUMPY_DTYPES[fake.dtype]
    itemsize = dtype.itemsize
    size = 1 + sum((extent - 1) * stride for extent, stride in zip(fake.shape, fake.stride(), strict=True)) \
        if fake.numel() else 0
    memory = numpy.zeros(size, dtype)
    array = numpy.ndarray(tuple(fake.shape), dtype, memory, 0, tuple(stride * itemsize for stride in fake.stride()))
    refill(array)
    vm.heap.arrays.back(array, fake)
    return array


def own_face(vm: VM, fake: FakeTensor) -> Any:
    """Another tensor on the same memory: it stays there when the first one moves, and counts its own writes."""
    return vm.torch_attribute(fake, "data", torch.Tensor.data)


def refill(array: numpy.ndarray) -> None:
    """Contents that mean nothing, but that numpy can work with: indexes in range, matrices that have an inverse."""
    if array.dtype.kind not in "fc":
        array[...] = 0
    elif array.ndim > 1 and array.shape[-1] == array.shape[-2]:
        array[...] = numpy.eye(array.shape[-1])
    else:
        array[...] = 1


def _laid_out(vm: VM, fake: Any, like: Any) -> Any:
    """The tensor in the layout that numpy gives its result, strides of single items included."""
    if not like.size:
        return fake
    strides = tuple(stride // like.itemsize for stride in like.strides)
    if any(size != 1 and mine != theirs for size, mine, theirs in zip(like.shape, fake.stride(), strides, strict=True)):
        order = [] if like.flags.c_contiguous else sorted(range(like.ndim), key=lambda dim: -abs(like.strides[dim]))
        fake = vm.torch_call(torch.permute, (fake, order), None) if order else fake
        fake = vm.torch_call(torch.Tensor.contiguous, (fake,), None)
        fake = vm.torch_call(torch.permute, (fake, [order.index(i) for i in range(like.ndim)]), None) if order else fake
    return fake if fake.stride() == strides else vm.torch_call(torch.as_strided, (fake, like.shape, strides), None)


def feed(vm: VM, array: object) -> None:
    """Make an outside array whose contents change from call to call an input of the graph."""
    memory = vm.heap.arrays
    root = memory.root_of(array)
    tracker = vm.heap.by_standin.get(id(root))
    if tracker is None or tracker.shape is not ShadowKind.ARRAY or tracker.exposed or id(root) in memory.backed \
            or not vm.heap.trace_numpy or not vm.heap.shapes.feeds_numpy(tracker.source):
        return
    original = tracker.original
    if original.flags.writeable and original.dtype in _TORCH_DTYPES and min(original.strides, default=0) >= 0 \
            and not any(stride % original.itemsize for stride in original.strides):
        memory.back(root, _input(vm, tracker))


def tensor_of(vm: VM, array: numpy.ndarray, writes: bool = False) -> Any:
    """The tensor with the contents of an array; with `writes`, an alias that bypasses version counters."""
    fake = _contents(vm, array, writes)
    return vm.torch_attribute(fake, "data", torch._C.TensorBase.data) if writes else fake


def _contents(vm: VM, array: object, writes: bool) -> Any:
    memory = vm.heap.arrays
    view = memory.views.get(id(array))
    if view is not None:
        if view.version is not None and (writes or view.version != vm.recorder.version_of(view.whole)):
            raise Break("SB006", "a view that torch has no form for, of memory that is written to")
        return view.fake
    root = memory.root_of(array)
    if id(root) in memory.backed:
        if root is not array:
            raise Break("SB003", "a view of an array that has become the memory of a tensor")
        return memory.backed[id(array)][1]
    tracker = vm.heap.by_standin.get(id(array))
    if tracker is None:
        return _literal(vm, array, shared=writes)
    if vm.heap.faces.has_changed(tracker) or not tracker.original.flags.writeable:
        if writes:
            raise Break("SB006", "a tensor's values written to an array that was changed")
        return _literal(vm, array, shared=False)
    fake = _input(vm, tracker)
    if writes:
        fake = own_face(vm, fake)
        memory.back(array, fake)
    else:
        vm.heap.faces.tie(tracker)
    return fake


def index_key(vm: VM, key: object) -> Any:
    if type(key) is numpy.ndarray:
        return copied_tensor(vm, key)
    if type(key) is tuple and any(type(part) is numpy.ndarray for part in key):
        return tuple(index_key(vm, part) for part in key)
    return key
