"""Which torch callables are tensor computations: leaves that the recorder puts into the graph.

    torch.add, torch.Tensor.add, Tensor.T, F.layer_norm, torch.ops.aten.add.Tensor   ->  torch_leaf: True
    torch.is_grad_enabled, Tensor.backward, torch.nn.Linear, F.sigmoid's wrappers    ->  torch_leaf: False

Functions that torch lets one override are leaves even when they are written in Python, and so is metadata (`size`).
"""

from __future__ import annotations

import functools
import types
from collections.abc import Iterator
from typing import Any

import torch
import torch.overrides
from torch import fx

from stator.graph.analysis.mutation import tags_of

_TensorBase: Any = torch._C.TensorBase
_OVERLOAD_TYPES = (torch._ops.OpOverload, torch._ops.OpOverloadPacket)
_C_FUNCTIONS = (types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType)
_C_GETTERS = (types.GetSetDescriptorType, types.MemberDescriptorType)

# Members of Tensor that are no computation on its values: the object protocol, autograd's bookkeeping, memory
# addresses, other libraries, and Python methods that interpret well.
_TENSOR_NOT_LEAF = frozenset("""
    __new__ __init__ __init_subclass__ __subclasshook__ __class__ __dict__ __weakref__ __getattribute__ __setattr__
    __delattr__ __dir__ __hash__ __repr__ __str__ __format__ __reduce__ __reduce_ex__ __setstate__ __deepcopy__ __iter__
    __contains__ __reversed__ __torch_function__ __torch_dispatch__ __array__ __array_wrap__ __cuda_array_interface__
    __dlpack__ __dlpack_device__ __delitem__ _reduce_ex_internal _typed_storage _make_subclass _make_wrapper_subclass
    _dtensor__new__ _fix_weakref _view_func _view_func_unsafe _rev_view_func_unsafe _use_count _python_dispatch
    _clear_non_serializable_cached_data backward register_hook register_post_accumulate_grad_hook retain_grad reinforce
    requires_grad_ grad grad_fn _grad _grad_fn grad_dtype is_leaf retains_grad _backward_hooks
    _post_accumulate_grad_hooks _base _version _cdata output_nr volatile name requires_grad numpy tolist apply_ map_
    map2_ data_ptr storage untyped_storage storage_type is_shared share_memory_ is_set_to module_load as_subclass
    _is_view
""".split())
# Functions of torch's C namespaces that compute no tensor from tensors: types and settings (see rows_packages), and
# memory that another library owns.
_FUNCTION_NOT_LEAF = frozenset("""
    can_cast promote_types result_type _parse_to from_numpy frombuffer from_file _from_blob to_dlpack from_dlpack
    is_vulkan_available _nnpack_available _use_cudnn_ctc_loss _use_miopen_ctc_loss _use_cudnn_rnn_flatten_weight
    _cufft_clear_plan_cache _cufft_get_plan_cache_max_size _cufft_get_plan_cache_size _cufft_set_plan_cache_max_size
    _has_compatible_shallow_copy_type _debug_has_internal_overlap _print _propagate_xla_data cudnn_is_acceptable
    autocast get_device_module typename is_tensor is_storage sym_int sym_float sym_max sym_min sym_not sym_sum sym_ite
    _sym_sqrt
""".split())
_LEAVES: dict[int, Any] = {}  # holds the objects, so that an id cannot come to mean another one
_RANDOM = frozenset("manual_seed set_rng_state rand randn randint randperm normal bernoulli multinomial poisson "
                    "dropout alpha_dropout".split())
_RANDOM_STEMS = ("rand", "dropout", "feature_", "rrelu", "scaled_dot", "gumbel", "uniform", "normal", "exponential",
                 "geometric", "cauchy", "log_normal")


def _overridable() -> Iterator[Any]:
    """torch's own list: C and Python functions, and the attributes of Tensor."""
    for namespace, functions in torch.overrides.get_overridable_functions().items():
        if isinstance(namespace, _C_GETTERS):
            if namespace.__name__ not in _TENSOR_NOT_LEAF:
                yield namespace
            continue
        refused = _TENSOR_NOT_LEAF if namespace is torch.Tensor else _FUNCTION_NOT_LEAF
        for function in functions:
            if isinstance(function, (types.FunctionType, *_C_FUNCTIONS)) and function.__name__ not in refused:
                yield function


def _c_functions() -> Iterator[Any]:
    """The C functions over aten operators, factories among them, that torch does not list as overridable."""
    namespaces: list[Any] = [torch._C._VariableFunctionsClass, torch._C._nn, torch._C._fft, torch._C._linalg]
    namespaces += [torch._C._special, torch._C._nested, torch._C._sparse]
    for namespace in namespaces:
        for name in vars(namespace):
            function = getattr(namespace, name)
            if isinstance(function, types.BuiltinFunctionType) and name not in _FUNCTION_NOT_LEAF \
                    and not name.startswith(("__", "_test_", "_foobar")):
                yield function
    yield torch.tensor  # lives in torch._C, beside functions that are no computation


def _tensor_members() -> Iterator[Any]:
    """The C methods and attributes of Tensor; a Python class below it may override some of them."""
    for owner in (_TensorBase, torch.Tensor):
        for name, member in vars(owner).items():
            if name not in _TENSOR_NOT_LEAF and isinstance(member, (*_C_FUNCTIONS, *_C_GETTERS)):
                yield member


for _member in (*_overridable(), *_c_functions(), *_tensor_members()):
    _LEAVES[id(_member)] = _member


def torch_leaf(fn: object) -> bool:
    """Whether a call (or, for an attribute of Tensor, a read) of `fn` is a tensor computation."""
    return id(fn) in _LEAVES or type(fn) in _OVERLOAD_TYPES


def leaves() -> list[Any]:
    return list(_LEAVES.values())


def draws_random_numbers(target: object) -> bool:
    """Whether a node's target may advance a random stream: by its tag, or by name for composite functions."""
    if isinstance(target, torch._ops.OpOverload):
        # Operators of TorchScript, which the dispatcher does not know, have no tags.
        return torch.Tag.nondeterministic_seeded in target.tags or not torch._C._dispatch_has_kernel(target.name())
    return _names_a_draw(target if isinstance(target, str) else getattr(target, "__name__", ""))


def draws_inside(module: fx.GraphModule) -> bool:
    """Whether a node of a graph, or of the graphs inside it, may advance a random stream."""
    return any(draws_random_numbers(node.target) for each in module.modules() if isinstance(each, fx.GraphModule)
               for node in each.graph.nodes if node.op.startswith("call_"))


@functools.cache
def _names_a_draw(name: str) -> bool:
    stem = name.strip("_")
    if stem in _RANDOM or stem.startswith(_RANDOM_STEMS):
        return True
    return name.isidentifier() and not name.startswith("__") and torch.Tag.nondeterministic_seeded in tags_of(name)
