"""Kernels of Inductor as data.   what its code calls  <->  a library or a binary, and how to launch it

In: a function of an extension module that Inductor has compiled for the CPU; or an autotuned Triton kernel, launched at
least once, so that one configuration is left.  Out: the bytes of the library; the binary, the text of the launcher and
the numbers of a launch.  From these, the function again, or a kernel that torch's own launcher starts.  Triton is not
imported.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.machinery
import importlib.util
import os
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from types import BuiltinFunctionType
from typing import NamedTuple, cast

import torch

from stator.artifacts.raw_steps import Thing
from stator.artifacts.value_writer import NotPortable
from stator.backends.inner_calls import kernel_address
from stator.host.value_kinds import is_a

_ADDRESS = "_TORCHINDUCTOR_PYOBJECT_TENSOR_DATA_PTR"  # read by a library when it is loaded
_COMPARED = ("co_code", "co_consts", "co_names", "co_varnames")
_HEURISTICS = "torch._inductor.runtime.triton_heuristics"


# ---------------------------------------------------------------------- libraries


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


# ---------------------------------------------------------------------- Triton


class Launch(NamedTuple):
    """One kernel: `launcher` is the text of a function that computes the grid and calls `runner`."""

    name: str
    device: int
    shared: int
    warps: int
    types: str  # of the arguments, a letter each
    scratch: int  # null pointers behind the arguments
    launcher: str


@dataclass(eq=False)
class LoadedKernel:
    """A kernel from data; Inductor's code calls `run`."""

    launch: Launch
    binary: bytes
    run: Callable[..., None]


def parts_of_kernel(value: Thing) -> tuple[Launch, bytes] | None:
    """The data of a kernel; None for any other object."""
    if type(value) is LoadedKernel:
        return value.launch, value.binary
    module: Thing = sys.modules.get(_HEURISTICS)
    if module is None or not is_a(value, module.CachingAutotuner):
        return None
    if not value.launchers:  # compiled, and not loaded before its first launch
        value.precompile()
    launcher = value.launchers[0]  # of a kernel that was not called yet: any configuration computes the same
    if torch.version.hip or launcher.config.pre_hook:
        raise NotPortable("a Triton kernel that torch launches by code of Triton")
    kernel: Thing = getattr(launcher.__globals__.get("runner"), "__self__", None)
    grid, device = module.GridExpr.from_meta(value.inductor_meta, launcher.config), value.triton_meta["device"] or 0
    if type(kernel).__name__ == "StaticallyLaunchedCudaKernel":
        text, binary = launcher_text(grid, launcher), binary_of(kernel, device, launcher.cache_hash)
    else:
        compiled: Thing = launcher.__globals__.get("bin")
        kernel = static_kernel(compiled)
        passed = [name for number, name in enumerate(kernel.arg_names) if number not in kernel.full_constexprs]
        names = _parameters(launcher)
        if len(passed) != len(kernel.arg_tys) or not {*passed} <= {*names}:
            raise NotPortable(f"a Triton kernel whose launcher takes {', '.join(names)} for {', '.join(passed)}")
        text, binary = _launcher_text(grid, names, ["stream", *passed]), bytes(compiled.asm["cubin"])
    scratch = sum(bool(getattr(kernel, name, False)) for name in ("has_global_scratch", "has_profile_scratch"))
    return Launch(kernel.name, device, kernel.shared, kernel.num_warps, kernel.arg_tys, scratch, text), binary


def static_kernel(compiled: Thing) -> Thing:
    """The data with which torch's own launcher starts a kernel that torch starts by Triton's launcher."""
    metadata: Thing = getattr(compiled, "metadata", None)
    for name, plain in (("launch_pdl", False), ("launch_cooperative_grid", False), ("num_ctas", 1)):
        if metadata is None or getattr(metadata, name, plain) != plain:
            raise NotPortable(f"a Triton kernel that torch launches by code of Triton, with {name}")
    for name in ("static_triton_launcher", "static_cuda_launcher"):  # before torch 2.12: the second
        with contextlib.suppress(ImportError):
            module: Thing = importlib.import_module(f"torch._inductor.runtime.{name}")
            break
    else:
        raise NotPortable("a Triton kernel that torch launches by code of Triton")
    compiled._cubin_path = getattr(compiled, "_cubin_path", "")
    try:
        return module.StaticallyLaunchedCudaKernel(compiled)
    except Exception as error:
        raise NotPortable(f"a Triton kernel that torch launches by code of Triton: {error}") from None


def _parameters(launcher: Thing) -> tuple[str, ...]:
    return tuple(launcher.__code__.co_varnames[:launcher.__code__.co_argcount])


def _launcher_text(grid: Thing, names: tuple[str, ...], passed: list[str]) -> str:
    return "\n".join([f"def launcher({', '.join(names)}):", *[f"    {line}" for line in grid.prefix],
                      f"    grid_0 = {grid.x_grid}", f"    grid_1 = {grid.y_grid}", f"    grid_2 = {grid.z_grid}",
                      f"    runner({', '.join(['grid_0', 'grid_1', 'grid_2', *passed])})"])


def launcher_text(grid: Thing, launcher: Thing) -> str:
    """The text that Inductor has executed to make a launcher; the code of both must be equal."""
    code, names = launcher.__code__, _parameters(launcher)
    numbers = {name: 1_000_003 + number for number, name in enumerate(names)}
    given: list[int] = []
    observed = type(launcher)(code, {"runner": lambda *args: given.extend(args[3:])})
    observed(*numbers.values())
    found = {number: name for name, number in numbers.items()}
    passed = [found.get(number, "?") for number in given]
    text = _launcher_text(grid, names, passed)
    if "?" not in passed:
        made = next(each for each in compile(text, "", "exec").co_consts if type(each) is type(code))
        if all(getattr(made, part) == getattr(code, part) for part in _COMPARED):
            return text
    raise NotPortable("a Triton kernel with a launcher of another form")


def binary_of(kernel: Thing, device: int, folder: str) -> bytes:
    """The binary of a kernel, from Triton's cache where torch has dropped it."""
    raw = getattr(kernel, "cubin_raw", None)
    if raw is not None:
        return bytes(raw)
    from torch._inductor.runtime.cache_dir_utils import triton_cache_dir

    path = kernel.cubin_path or os.path.join(triton_cache_dir(device), folder, f"{kernel.name}.cubin")
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        raise NotPortable(f"a Triton kernel whose binary {path} is gone") from None


def load_triton(launch: Launch, binary: bytes) -> LoadedKernel:
    """Load a binary on its device; the file is gone once it is loaded."""
    native: Thing = torch._C._StaticCudaLauncher  # type: ignore[attr-defined]
    torch.cuda.init()
    with tempfile.TemporaryDirectory(prefix="stator-kernel-") as folder, torch.cuda._DeviceGuard(launch.device):
        path = os.path.join(folder, "kernel.cubin")
        with open(path, "wb") as file:
            file.write(binary)
        function = native._load_kernel(path, launch.name, launch.shared, launch.device)[-3]  # behind it: two counts
    start, warps, shared = native._launch_kernel, launch.warps, launch.shared
    types, nothing = launch.types + "O" * launch.scratch, (None,) * launch.scratch

    def runner(x: int, y: int, z: int, stream: int, *args: object) -> None:
        start(function, x, y, z, warps, shared, types, args + nothing, stream)

    names: dict[str, Thing] = {"runner": runner}
    exec(launch.launcher, names)  # noqa: S102  Inductor's, under the signature of the file
    return LoadedKernel(launch, binary, names["launcher"])
