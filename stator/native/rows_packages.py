"""Rows for C callables of torch, numpy and optree that are no tensor computation.

Readers of the state that each entry guards as a whole are pure; readers of other settings return an outside reference,
guarded by what they returned; setters are rules.  Functions over arrays run on stand-ins, by a rule.  What shows or
moves an array's memory is refused, as is everything that is not named here or in torch_ops.
"""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from stator.native import rows_declare as row

C: Any = torch._C
ENTRY_STATE = "each entry guards this state as a whole"
# Functions of pybind11 quote wrong arguments with repr() in their error message: that is a callback, too.
SETTING = "a setting of the process, guarded by its value"
GRAPH_STATE = "the change is recorded in the graph"
MODES = "the tracer's own mode is on the stack, and must not show"
ARRAY = "shows or moves the memory of an array"
ON_STANDINS = "runs on the memory of stand-ins"
# Methods of arrays that change their layout, show their address or write them out.
_REFUSED_METHODS = """resize setflags setfield __setstate__ tofile dump dumps __reduce__ __reduce_ex__ __dlpack__
    __dlpack_device__ __array_function__ __array_ufunc__ __getattribute__ __setattr__ __delattr__ __new__ __iter__
    __class_getitem__ __repr__ __str__ __format__ __len__ __setitem__ __delitem__ __getitem__ __release_buffer__
    __buffer__ to_device""".split()
# C functions of numpy that compute on arrays and change nothing else.
_FUNCTIONS = """array asarray asanyarray ascontiguousarray asfortranarray copyto arange zeros count_nonzero empty
    empty_like where lexsort putmask fromiter concatenate inner dot vdot c_einsum correlate correlate2
    datetime_data datetime_as_string compare_chararrays _vec_string _place bincount _monotonicity
    interp interp_complex ravel_multi_index unravel_index packbits unpackbits normalize_axis_index _unique_hash
    """.split()
# numpy's functions that write files, keep what they are given, or compare addresses, which stand-ins do not have.
_REFUSED_FUNCTIONS = "save savez savez_compressed savetxt shares_memory may_share_memory".split()
# numpy's Python functions that make arrays.
MAKERS = "ones full identity eye tri".split()
_DISPATCHING = ("numpy", "numpy.linalg", "numpy.fft", "numpy.lib.stride_tricks", "numpy.lib._function_base_impl",
                "numpy._core.fromnumeric", "numpy._core.numeric", "numpy._core.multiarray")
_numpy = row.optional_module("numpy")
_entries: dict[int, Any] = {}  # of the registry, kept so that an id stays that of one entry
_OPTREE_FUNCTIONS = """
    flatten flatten_with_path make_leaf make_none make_from_collection all_leaves is_leaf is_namedtuple
    is_namedtuple_class is_namedtuple_instance namedtuple_fields is_structseq is_structseq_class is_structseq_instance
    structseq_fields is_dict_insertion_ordered
    """.split()
_OPTREE_METHODS = """
    unflatten flatten_up_to broadcast_to_common_suffix transform compose traverse walk paths accessors entries entry
    children child one_level is_leaf is_one_level is_prefix is_suffix num_nodes num_leaves num_children none_is_leaf
    namespace type kind __len__ __eq__ __ne__ __lt__ __le__ __gt__ __ge__ __hash__
    """.split()
_declared = False

# Values.
row.pure(C, "Size", calls_back=True)
row.pure(torch.Size, "__new__ __add__ __radd__ __getitem__ __mul__ __rmul__", calls_back=True, fresh=None)
for name in torch.return_types.all_return_types if hasattr(torch.return_types, "all_return_types") else ():
    row.pure(name, "__new__", calls_back=True, fresh=None)
row.pure(torch.Size, "numel __reduce__", fresh=None)
row.deep(torch.Size, "__repr__", formats=True)
row.deep(torch.Size, f"{row.COMPARISONS} __hash__", calls_back=True, compares=True)  # a tuple's, before Python 3.14
row.pure(C, "finfo iinfo device", calls_back=True)
for owner in (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, torch.finfo, torch.iinfo):
    row.pure(owner, f"__new__ {row.COMPARISONS}", calls_back=True)
    row.shell(owner, "__repr__ __str__ __hash__ __reduce__ to_real to_complex")
    row.attributes(owner, "*", row.NativeClass.PURE_SHELL)
row.special(torch.device, "__enter__ __exit__ __call__", why="sets the default device")
row.pure(torch.device, f"__new__ {row.COMPARISONS}", calls_back=True)
row.shell(torch.device, "__repr__ __str__ __hash__ __reduce__")
row.attributes(torch.device, "*", row.NativeClass.PURE_SHELL)
row.pure(C._VariableFunctionsClass, "can_cast promote_types result_type", why="types and metadata alone")
row.pure(C, "_infer_size _demangle", calls_back=True)
row.pure(C._nn, "_parse_to", calls_back=True, fresh=None, why="parses the arguments of Module.to")
row.shell(C, "_log_api_usage_once _log_api_usage_metadata", calls_back=True, why="does nothing without a logger")
row.outside(C, "_get_all_dtypes")

# State readers.
row.shell(C, "is_grad_enabled is_inference_mode_enabled is_autocast_enabled _is_any_autocast_enabled "
          "get_autocast_dtype is_autocast_cache_enabled get_default_dtype _get_deterministic_algorithms "
          "_get_deterministic_algorithms_warn_only _get_float32_matmul_precision "
          "_is_torch_function_enabled _is_torch_function_all_disabled", why=ENTRY_STATE)
row.shell(C, "_get_tracing_state _is_tracing _are_functorch_transforms_active", calls_back=True,
          why="nothing is traced by torch.jit")
row.shell(C, "_is_autocast_available _autocast_supported_devices _has_distributed _supported_qengines "
          "_is_flash_attention_available _is_ck_sdpa_available _llvm_enabled _show_config _cxx_flags "
          "_mps_is_available _get_cpu_capability _cuda_getCompiledVersion _cuda_isInBadFork "
          "_cuda_getArchFlags _mtia_isBuilt _has_cuda has_cudnn", calls_back=True,
          why="fixed when torch was built")
row.pure(C._cpu, "_get_cpu_capability _is_avx2_supported _is_avx512_supported _is_vnni_supported "
         "_is_amx_tile_supported _is_amx_fp16_supported", calls_back=True, why="fixed for this processor")
row.outside(C, "_get_accelerator _accelerator_getAccelerator _parallel_info "
            "_dispatch_has_kernel _get_backcompat_broadcast_warn _get_backcompat_keepdim_warn "
            "_get_blas_preferred_backend _get_blas_default_backend "
            "_get_cpu_allow_fp16_reduced_precision_reduction "
            "_get_cublas_allow_bf16_reduced_precision_reduction _get_cublas_allow_fp16_accumulation "
            "_get_cublas_allow_fp16_reduced_precision_reduction _get_cublas_allow_tf32 "
            "_get_cudnn_allow_tf32 _get_cudnn_benchmark _get_cudnn_deterministic _get_cudnn_enabled "
            "_get_cudnn_sdp_enabled _get_default_device _get_deterministic_fill_uninitialized_memory "
            "_get_fa3_sdp_enabled _get_flash_sdp_enabled _get_fp32_precision_getter "
            "_get_linalg_preferred_backend _get_math_sdp_allow_fp16_bf16_reduction _get_math_sdp_enabled "
            "_get_mem_efficient_sdp_enabled _get_miopen_immediate _get_mkldnn_deterministic "
            "_get_mkldnn_enabled _get_nnpack_enabled _get_onednn_allow_tf32 _get_overrideable_sdp_enabled "
            "_get_privateuse1_backend_name _get_qengine _get_rocm_fa_preferred_backend "
            "_get_sdp_priority_order _get_warnAlways _get_graph_executor_optimize "
            "_get_autograd_fallback_mode _is_fwd_grad_enabled _is_multithreading_enabled "
            "_is_view_replay_enabled _is_grad_layout_enforcement_enabled _is_xnnpack_enabled "
            "_check_sparse_tensor_invariants is_anomaly_enabled is_anomaly_check_nan_enabled "
            "get_num_threads get_num_interop_threads _cuda_getDeviceCount _cuda_getDevice "
            "_cuda_isCurrentStreamCapturing _xpu_isCurrentStreamCapturing _get_cudnn_depthwise_kernel "
            "_get_sm_carveout_experimental _get_dtensor_allow_implicit_replication", why=SETTING)
row.special(C, "is_autocast_cpu_enabled get_autocast_cpu_dtype get_autocast_gpu_dtype "
            "is_autocast_xla_enabled get_autocast_xla_dtype is_autocast_ipu_enabled get_autocast_ipu_dtype",
            why="warns that it is deprecated")
row.impure(C, "_get_thread_name _storage_address _storage_id _data_address _storage_Use_Count")
row.shell(C._functorch, "maybe_current_level current_level get_dynamic_layer_stack_depth "
          "get_interpreter_stack peek_interpreter_stack", calls_back=True, why=ENTRY_STATE)
row.outside(C._functorch, "get_inplace_requires_grad_allowed get_single_level_autograd_function_allowed",
            calls_back=True, why=SETTING)
row.shell(C._functorch, "is_batchedtensor is_gradtrackingtensor is_functionaltensor "
          "is_functorch_wrapped_tensor is_legacy_batchedtensor is_dead_tensor_wrapper maybe_get_level "
          "maybe_get_bdim", calls_back=True, why="metadata of a tensor")
row.shell(C._autograd, "kineto_available _supported_activities", calls_back=True, why="fixed when torch was built")
row.outside(C._autograd, "_saved_tensors_hooks_is_enabled _profiler_enabled _profiler_type "
            "_get_current_graph_task_keep_graph", why=SETTING)

# State setters.
row.special(C, "_set_grad_enabled set_autocast_enabled set_autocast_dtype set_autocast_cpu_enabled "
            "set_autocast_cpu_dtype set_autocast_gpu_dtype set_autocast_cache_enabled "
            "autocast_increment_nesting autocast_decrement_nesting clear_autocast_cache _set_default_dtype "
            "_set_default_tensor_type _set_deterministic_algorithms _set_float32_matmul_precision "
            "_set_fwd_grad_enabled _set_multithreading_enabled _set_view_replay_enabled "
            "set_anomaly_enabled _set_sdp_use_cudnn _set_sdp_use_flash _set_sdp_use_math "
            "_set_sdp_use_mem_efficient _set_sdp_use_overrideable _set_mkldnn_enabled "
            "_set_mkldnn_deterministic _set_nnpack_enabled _set_sdp_use_fa3 _set_sdp_priority_order "
            "_enter_dual_level _exit_dual_level _InferenceMode _DisableAutocast", why=GRAPH_STATE)
row.special(C, "_has_torch_function _has_torch_function_unary _has_torch_function_variadic "
            "_is_torch_function_mode_enabled _len_torch_function_stack _get_function_stack_at "
            "_pop_torch_function_stack _push_on_torch_function_stack _len_torch_dispatch_stack "
            "_get_dispatch_stack_at _pop_torch_dispatch_stack _push_on_torch_dispatch_stack "
            "_get_dispatch_mode _set_dispatch_mode _unset_dispatch_mode _get_torch_function_state "
            "_set_torch_function_state _disabled_torch_function_impl _disabled_torch_dispatch_impl "
            "_skip_one_hop_torch_function _peek_should_skip_torch_function _set_skip_next_torch_function "
            "DisableTorchFunction DisableTorchFunctionSubclass _EnableTorchFunction _DisableTorchDispatch "
            "_DisableFuncTorch _EnablePythonDispatcher _DisablePythonDispatcher", why=MODES)
row.special(C._functorch, "*", why="functorch's own stack of transforms")
row.special(C._autograd, "*", why="autograd's hooks and the profiler")
row.deny(C, "set_num_threads set_num_interop_threads init_num_threads set_flush_denormal _set_qengine "
         "_set_cudnn_enabled _set_cudnn_benchmark _set_cudnn_deterministic _set_cudnn_allow_tf32 "
         "_set_cublas_allow_tf32 _set_warnAlways _set_thread_name _set_fp32_precision_setter "
         "_set_tracing_state _set_value_trace _set_graph_executor_optimize _add_docstr _swap_tensor_impl "
         "_set_worker_pids _initExtension _set_deterministic_fill_uninitialized_memory", code="SB006",
         why="changes a setting of the process")
row.deny(C, "fork wait", code="SB018")
row.deny(C, "_cuda_synchronize _cuda_ipc_collect _cuda_emptyCache", code="SB018")

# Tensor objects: members of Tensor beside its computations (those are in torch_ops).
base = C.TensorBase
row.special(base, "__new__ _make_subclass _make_wrapper_subclass _dtensor__new__ as_subclass _fix_weakref "
            "_is_view _view_func _view_func_unsafe _rev_view_func_unsafe requires_grad_ retain_grad "
            "is_set_to __delitem__", why="the heap keeps track of tensor objects")
row.deny(base, "numpy tolist apply_ map_ map2_", code="SB003", why="takes the values out of the tensor")
row.impure(base, "data_ptr _use_count", why="shows an address or a count")
row.special(base, "untyped_storage", why="a storage is outside memory")
row.attributes(base, "grad grad_fn _grad _grad_fn grad_dtype is_leaf retains_grad requires_grad "
               "_backward_hooks _post_accumulate_grad_hooks _base output_nr volatile name",
               row.NativeClass.SPECIAL, why="autograd's bookkeeping, read from the original")
row.attributes(base, "_version _cdata _python_dispatch", row.NativeClass.IMPURE_READ, code="SB013",
               why="a counter or an address")
row.special(C._VariableFunctionsClass, "from_numpy frombuffer from_file _from_blob", why="memory of another library")
row.special(C, "_from_dlpack _to_dlpack _to_dlpack_versioned", why="memory of another library")
row.special(C._VariableFunctionsClass, "__new__")
row.deny(C._ImperativeEngine, "run_backward queue_callback", code="SB016")
row.special(C._ImperativeEngine, "is_checkpoint_valid", why="a fact of the backward pass around the call")
row.special(C, "Generator", why="random streams are graph state")
row.special.whole_type(C.Generator, why="random streams are graph state")
row.deny.whole_type(C.StorageBase, code="SB005", why="outside memory")
row.special.whole_type(C._FunctionBase, why="an autograd.Function in flight")


def _scalar_types(generic: type) -> list[type]:
    found: dict[type, None] = {}
    waiting = [generic]
    while waiting:
        owner = waiting.pop()
        if owner not in found and row.is_c_type(owner):
            found[owner] = None
            waiting += owner.__subclasses__()
    return list(found)


def _scalars(numpy: Any) -> None:
    for owner in _scalar_types(numpy.generic):
        row.deny(owner, "tofile dump", code="SB015")
        row.deny(owner, "setflags setfield __setstate__ __setitem__ resize fill put itemset", code="SB006")
        row.pure(owner, "*", calls_back=True)
        row.attributes(owner, "base data ctypes flat flags __array_interface__ __array_struct__",
                       row.NativeClass.IMPURE_READ, code="SB013", why="shows memory")
        row.attributes(owner, "*", row.NativeClass.PURE_SHELL)
        row.add(owner, row.owner_name(owner), row.NativeClass.PURE, {"calls_back": True, "fresh": True})


def _dtypes(numpy: Any) -> None:
    dtype = numpy.dtype
    row.pure(numpy, "dtype", calls_back=True)
    row.special(dtype, "__setstate__", why="changes a dtype in place")
    row.pure(dtype, "*", calls_back=True)
    row.attributes(dtype, "*", row.NativeClass.PURE_SHELL)
    for owner in dict.fromkeys(value for value in vars(numpy.dtypes).values() if row.is_c_type(value)):
        row.pure(owner, "*", calls_back=True)
        row.add(owner, row.owner_name(owner), row.NativeClass.PURE, {"calls_back": True, "fresh": True})
    row.pure(numpy, "promote_types result_type can_cast min_scalar_type", calls_back=True)


def array_callables() -> list[Any]:
    """The callables that run on arrays of the trace: methods of arrays, universal functions, functions."""
    found = [value for name, value in vars(_numpy.ndarray).items()
             if isinstance(value, (row.MethodDescriptor, row.SlotWrapper)) and name not in _REFUSED_METHODS]
    core = _numpy._core._multiarray_umath
    found += [vars(core)[name] for name in _FUNCTIONS if name in vars(core)]
    for name in ("numpy._core.umath", "numpy.linalg._umath_linalg", "numpy"):
        found += [value for value in vars(row.optional_module(name)).values() if isinstance(value, _numpy.ufunc)]
    found += [vars(_numpy.ufunc)[name] for name in ("reduce", "accumulate", "reduceat", "outer", "at")]
    for name in _DISPATCHING:
        found += [value for key, value in vars(row.optional_module(name)).items()
                  if isinstance(value, core._ArrayFunctionDispatcher) and key not in _REFUSED_FUNCTIONS]
    return list({id(value): value for value in found}.values())


def _arrays(numpy: Any) -> None:
    for function in array_callables():
        if id(function) not in row.ROWS and isinstance(function, row.C_CALLABLES):
            row.add(function, f"numpy.{function.__qualname__}", row.NativeClass.SPECIAL, {"why": ON_STANDINS})
    row.deny.whole_type(numpy.ndarray, code="SB005", why=ARRAY)
    row.deny(numpy, "ndarray nditer flatiter broadcast", code="SB005", why=ARRAY)
    row.special.whole_type(numpy.ufunc, why=ON_STANDINS)
    for owner in (numpy.nditer, numpy.flatiter, numpy.broadcast, numpy.busdaycalendar):
        row.deny.whole_type(owner, code="SB005", why=ARRAY)
    row.deny(numpy, "*", code="SB005", why=ARRAY)


def _chance(numpy: Any) -> None:
    row.impure(numpy.random, "*")
    for owner in (value for value in vars(numpy.random).values() if row.is_c_type(value)):
        row.impure.whole_type(owner, why="its state advances")


if hasattr(_numpy, "ndarray"):
    _scalars(_numpy)
    _dtypes(_numpy)
    _arrays(_numpy)
    _chance(_numpy)


def registered(*names: str) -> tuple[Any, ...]:
    """Classes registered with optree, and the order of dicts in the namespaces of these names."""
    entries = list(sys.modules["optree.registry"]._NODETYPE_REGISTRY.values())
    for entry in entries:
        _entries.setdefault(id(entry), entry)
    ordered = sys.modules["optree._C"].is_dict_insertion_ordered
    return *map(id, entries), *[ordered(name) for name in ("", *names)]


_FACTS: dict[str, Any] = {"calls_back": True, "fresh": True, "depends": registered}


def declare_once() -> bool:
    """Declare the rows if optree is there and has none yet; whether that was done."""
    global _declared
    functions = sys.modules.get("optree._C")
    if _declared or functions is None:
        return False
    _declared = True
    _add(functions, "optree", _OPTREE_FUNCTIONS)
    _add(functions.PyTreeSpec, "optree.PyTreeSpec", _OPTREE_METHODS)
    return True


def _add(owner: types.ModuleType | type, place: str, names: list[str]) -> None:
    for name in names:
        entry = vars(owner).get(name)
        value = row.underlying(row.underlying(entry.fget) if isinstance(entry, property) else entry)
        if isinstance(value, row.C_CALLABLES) and id(value) not in row.ROWS:
            row.add(value, f"{place}.{name}", row.NativeClass.PURE_DEEP, _FACTS)
