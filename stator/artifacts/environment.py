"""Facts about the process that no guard compares.   versions, settings, hardware  ->  a table

In: a call site.  Out: JSON with one row for each fact.  They cannot change while a process runs; an entry that another
process wrote is used only where all of them are equal.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import importlib
import os
import platform
import secrets
import sys
import types
from dataclasses import fields
from functools import cache

import numpy
import torch

from stator.artifacts.container import Json
from stator.artifacts.graph_functions import content_of
from stator.artifacts.raw_steps import Thing
from stator.artifacts.value_writer import NotPortable, ValueWriter, class_name
from stator.backends.registry import find_backend
from stator.host.own_code import OWN_FOLDER
from stator.host.value_kinds import is_a
from stator.settings.options import BackendFunction, Settings
from stator.settings.process_config import SETTINGS, config

FORMAT = 1
_UNSEEN = frozenset({"name", "recompile_limit", "isolate_recompiles", "strict", "audit", "start"})
_CONFIGS = {"aot_eager": ("torch._functorch.config",),
            "inductor": ("torch._functorch.config", "torch._inductor.config")}
_OBJECTS = ("options", "shapes", "shapes_spec", "backend", "regions", "guard_filter_fn")  # that may hold objects
# Settings of Inductor that change no code: where it keeps files, in how many processes it compiles, what it shows.
_IDLE = ("trace.", "cuda.cutlass_dir", "cutlass.cutlass_dir", "xpu.cutlass_dir", "worker_start_method",
         "compile_threads", "fx_graph_cache", "fx_graph_remote_cache", "autotune_local_cache", "autotune_remote_cache",
         "force_disable_caches")
_LOWERINGS = (("lowering", "lowerings"), ("lowering", "user_lowerings"), ("decomposition", "decompositions"))
_PLAIN = (bool, int, float, str, bytes, type(None), torch.dtype, torch.device)
_READ_LATE = ("show_progress", "capture_progress_seconds", "recompile_limit", "accumulated_recompile_limit",
              "fail_on_recompile_limit_hit", "error_on_recompile")


@cache
def stator_digest() -> str:
    """Content of all modules of Stator."""
    folder = OWN_FOLDER
    digest = hashlib.sha256()
    for place, folders, names in os.walk(folder):
        folders.sort()
        for name in sorted(names):
            if name.endswith((".py", ".so")) and "__pycache__" not in place:
                path = os.path.join(place, name)
                digest.update(os.path.relpath(path, folder).encode())
                with open(path, "rb") as file:
                    digest.update(file.read())
    return digest.hexdigest()[:32]


def process_facts() -> dict[str, Json]:
    """Versions and hardware."""
    found: dict[str, Json] = {
        "format": FORMAT, "python": sys.version, "optimize": sys.flags.optimize,
        "platform": " ".join([sys.platform, *platform.libc_ver()]),
        "machine": platform.machine(), "stator": stator_digest(), "torch": str(torch.__version__),
        "torch build": torch.version.git_version, "numpy": numpy.__version__,
        "processor": torch.backends.cpu.get_cpu_capability()}
    if torch.cuda.is_available():
        devices = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
        kinds = [f"{each.name} {each.major}.{each.minor}" for each in devices]
        found["GPU"] = kinds[0] if len(set(kinds)) == 1 else ", ".join(kinds)  # of one kind: their number is no fact
        found["cuda"] = torch.version.cuda
        found["driver"] = driver_version()
    if replaced := replaced_operators():
        found["kernels of the program"] = [*replaced, _process_token()]  # no name leads to their code
    return found


def replaced_operators() -> list[str]:
    """Operators of torch for which the program has put in kernels of its own; torch has a few in Python itself."""
    folder, found = os.path.dirname(torch.__file__), list[str]()
    for each in sorted(getattr(torch.library, "_impls", ())):
        space, _, rest = each.partition("/")
        name, _, key = rest.rpartition("/")
        if space == "aten" and key != "Meta":
            lines = torch._C._dispatch_dump(f"aten::{name}").splitlines()
            if any(line.startswith(key) and folder not in line for line in lines):
                found.append(each)
    return found


def own_lowerings() -> list[str]:
    """Operators for which the program has told Inductor how to compile them; it must have loaded Inductor for that."""
    tables = [getattr(sys.modules.get(f"torch._inductor.{module}"), name, {}) for module, name in _LOWERINGS]
    return sorted({str(key) for table in tables for key, function in table.items() if is_of_program(function)})


def is_of_program(function: Thing) -> bool:
    """Whether a function is that of the program, below wrappers of torch."""
    while type(function) is functools.partial:
        function = function.func
    module = str(getattr(function, "__module__", None)).partition(".")[0]
    return module not in ("torch", "None") and module not in sys.stdlib_module_names


@cache
def _process_token() -> str:
    return secrets.token_hex(8)


def driver_version() -> int | None:
    """Version of CUDA that the installed driver supports; None where there is no such driver (ROCm)."""
    version = ctypes.c_int()
    try:
        ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return version.value


def settings_facts(settings: Settings, values: ValueWriter) -> dict[str, Json]:
    """Settings of compile() and of the process that captures and backends read."""
    found = {each.name: values.value(getattr(settings, each.name)) for each in fields(settings)
             if each.name not in _UNSEEN and each.name not in _OBJECTS}
    found["backend"] = backend_name(settings.backend)
    for name, value in settings.options.items():
        if not is_plain(value):
            raise NotPortable(f"the option {name}, which is no plain value")
    found["options"] = values.value(dict(settings.options))
    found["regions"] = settings.regions if type(settings.regions) is str else [*map(region_name, settings.regions)]
    if settings.guard_filter_fn is not None:
        found["guard_filter_fn"] = content_of(settings.guard_filter_fn, False)
    found["shapes"] = values.value({name: repr(dim) for name, dim in settings.shapes.items()})
    if settings.shapes_spec is not None:
        found["shapes_spec"] = values.value(repr(settings.shapes_spec))
    found.update({f"config.{name}": values.value(getattr(config, name)) for name in SETTINGS
                  if name not in _READ_LATE and not name.startswith("artifact_")})
    for name in _CONFIGS.get(settings.backend if type(settings.backend) is str else "", ()):
        found[name] = config_digest(name)
    if settings.backend == "inductor":
        found["instructions of the processor"] = processor_digest()
        if own := own_lowerings():
            found["lowerings of the program"] = [*own, _process_token()]  # no name leads to their code
    return found


@cache
def processor_digest() -> str:
    """Inductor compiles for the instructions of this processor, all of them."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            found = next((line for line in file if line.startswith(("flags", "Features"))), "")
    except OSError:
        found = platform.processor()
    return hashlib.sha256(" ".join(sorted(found.split())).encode()).hexdigest()[:16]


def backend_name(backend: str | BackendFunction) -> str:
    """The name of a backend of Stator or torch, which belong to their versions; others may read anything."""
    found = find_backend(backend)
    if found.takes_settings:
        return found.name
    function = found.function
    if type(function) is types.FunctionType and not function.__closure__ \
            and str(function.__globals__.get("__name__")).split(".")[0] == "torch":
        return f"{function.__module__}.{function.__qualname__}"
    raise NotPortable(f"the backend {found.name}, a function of the program, which may read anything")


def region_name(region: Thing) -> str:
    if is_a(region, type):
        return class_name(region)
    raise NotPortable("the option regions, which holds a module; classes of modules have names")


def is_plain(value: Thing) -> bool:
    """Whether a value has no more than its content."""
    if type(value) in (list, tuple):
        return all(map(is_plain, value))
    if type(value) is dict:
        return all(map(is_plain, value)) and all(map(is_plain, value.values()))
    return type(value) in _PLAIN


def config_digest(name: str) -> str:
    """Content of a module of settings; a pass of the program over graphs is a function that may read anything."""
    module = importlib.import_module(name)
    held = {key: value for key, value in module.get_config_copy().items() if not key.startswith(_IDLE)}
    for key, value in held.items():
        if not is_plain(value):
            raise NotPortable(f"{name}.{key}, which is no plain value")
    return hashlib.sha256(repr(sorted([(key, repr(value)) for key, value in held.items()])).encode()).hexdigest()


def first_difference(here: dict[str, Json], there: dict[str, Json]) -> str | None:
    """The first fact that differs, as a sentence."""
    for name in sorted({*here, *there}):
        if here.get(name) != there.get(name):
            return f"{name} is {here.get(name)!r}, and was {there.get(name)!r}"
    return None
