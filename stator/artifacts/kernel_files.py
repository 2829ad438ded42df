"""Kernels that Inductor has compiled for the CPU, as bytes.   a function of an extension module  <->  the file

In: a function that Inductor's code calls.  Out: the bytes of its library; from the bytes, the function again.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import tempfile
from types import BuiltinFunctionType
from typing import cast

from stator.backends.inner_calls import kernel_address

_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"  # read by a library when it is loaded


def library_of(function: object) -> bytes | None:
    """The library of a kernel; None for any other function."""
    module: object = getattr(function, "__self__", None)
    if type(function) is not BuiltinFunctionType or not str(function.__module__).endswith(".kernel"):
        return None
    known = getattr(module, "library", None)
    if type(known) is bytes:
        return known
    with open(str(getattr(module, "__file__", "")), "rb") as file:
        return file.read()


def load_kernel(library: bytes, name: str) -> BuiltinFunctionType:
    """The kernel of a library; the file is gone once it is loaded."""
    os.environ[_ADDRESS] = kernel_address()
    with tempfile.TemporaryDirectory(prefix="stator-kernel-") as folder:
        path = os.path.join(folder, f"{name}.so")
        with open(path, "wb") as file:
            file.write(library)
        loader = importlib.machinery.ExtensionFileLoader(f"{name}.kernel", path)
        spec = importlib.util.spec_from_loader(loader.name, loader)
        assert spec is not None
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    vars(module)["library"] = library  # for whoever stores it again
    return cast(BuiltinFunctionType, vars(module)["kernel"])
