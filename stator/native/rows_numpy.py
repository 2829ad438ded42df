"""Rows for numpy: dtypes and scalars are values; arrays are outside memory.

In: numpy, where it is installed. Out: rows. Arithmetic of scalars (np.float32, np.int64 ...) is pure. What computes
on arrays runs on stand-ins, by a rule of the interpreter; what shows or moves an array's memory, or writes it
somewhere, is refused.
"""

from __future__ import annotations

from typing import Any

from stator.native.rows_declare import (
    C_CALLABLES,
    ROWS,
    MethodDescriptor,
    NativeClass,
    SlotWrapper,
    add,
    attribute_slots,
    attributes,
    deny,
    impure,
    is_c_type,
    optional_module,
    owner_name,
    pure,
    special,
)

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


def _scalar_types(generic: type) -> list[type]:
    """numpy.generic and every C type below it, each once."""
    found: dict[type, None] = {}
    waiting = [generic]
    while waiting:
        owner = waiting.pop()
        if owner not in found and is_c_type(owner):
            found[owner] = None
            waiting += owner.__subclasses__()
    return list(found)


def _scalars(numpy: Any) -> None:
    for owner in _scalar_types(numpy.generic):
        attribute_slots(owner)
        deny(owner, "tofile dump", code="SB015")
        deny(owner, "setflags setfield __setstate__ __setitem__ resize fill put itemset", code="SB006")
        pure(owner, "*", calls_back=True)
        attributes(owner, "base data ctypes flat flags __array_interface__ __array_struct__",
                   NativeClass.IMPURE_READ, code="SB013", why="shows memory")  # fmt: skip
        attributes(owner, "*", NativeClass.PURE_SHELL)
        add(owner, owner_name(owner), NativeClass.PURE, {"calls_back": True, "fresh": True})


def _dtypes(numpy: Any) -> None:
    dtype = numpy.dtype
    attribute_slots(dtype)
    pure(numpy, "dtype", calls_back=True)
    special(dtype, "__setstate__", why="changes a dtype in place")
    pure(dtype, "*", calls_back=True)
    attributes(dtype, "*", NativeClass.PURE_SHELL)
    for owner in dict.fromkeys(value for value in vars(numpy.dtypes).values() if is_c_type(value)):
        attribute_slots(owner)
        pure(owner, "*", calls_back=True)
        add(owner, owner_name(owner), NativeClass.PURE, {"calls_back": True, "fresh": True})
    pure(numpy, "promote_types result_type can_cast min_scalar_type", calls_back=True)


def array_callables() -> list[Any]:
    """The callables that run on arrays of the trace: methods of arrays, universal functions, functions."""
    found = [value for name, value in vars(_numpy.ndarray).items()
             if isinstance(value, (MethodDescriptor, SlotWrapper)) and name not in _REFUSED_METHODS]
    core = _numpy._core._multiarray_umath
    found += [vars(core)[name] for name in _FUNCTIONS if name in vars(core)]
    for name in ("numpy._core.umath", "numpy.linalg._umath_linalg", "numpy"):
        found += [value for value in vars(optional_module(name)).values() if isinstance(value, _numpy.ufunc)]
    found += [value for name, value in vars(_numpy.ufunc).items()
              if isinstance(value, MethodDescriptor) and name in ("reduce", "accumulate", "reduceat", "outer", "at")]
    for name in _DISPATCHING:
        found += [value for key, value in vars(optional_module(name)).items()
                  if isinstance(value, core._ArrayFunctionDispatcher) and key not in _REFUSED_FUNCTIONS]
    return list({id(value): value for value in found}.values())


def _arrays(numpy: Any) -> None:
    for function in array_callables():
        if id(function) not in ROWS and isinstance(function, C_CALLABLES):
            add(function, f"numpy.{function.__qualname__}", NativeClass.SPECIAL, {"why": ON_STANDINS})
    deny.whole_type(numpy.ndarray, code="SB005", why=ARRAY)
    deny(numpy, "ndarray nditer flatiter broadcast", code="SB005", why=ARRAY)
    special.whole_type(numpy.ufunc, why=ON_STANDINS)
    for owner in (numpy.nditer, numpy.flatiter, numpy.broadcast, numpy.busdaycalendar):
        deny.whole_type(owner, code="SB005", why=ARRAY)
    deny(numpy, "*", code="SB005", why=ARRAY)


def _chance(numpy: Any) -> None:
    impure(numpy.random, "*")
    for owner in (value for value in vars(numpy.random).values() if is_c_type(value)):
        impure.whole_type(owner, why="its state advances")


_numpy = optional_module("numpy")
if hasattr(_numpy, "ndarray"):
    _scalars(_numpy)
    _dtypes(_numpy)
    _arrays(_numpy)
    _chance(_numpy)
