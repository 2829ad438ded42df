"""Compile csrc/hook/*.c for the running interpreter.   (folder, defines)  ->  the loaded extension module"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

HOOK = Path(__file__).resolve().parents[3] / "csrc" / "hook"
FLAGS = [
    "-shared",
    "-fPIC",
    "-O2",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-missing-field-initializers",
    "-fvisibility=hidden",
    "-DPy_BUILD_CORE_MODULE",
]


def compile_command(target: Path, *defines: str) -> list[str]:
    include = sysconfig.get_path("include")
    extra = [f"-D{define}" for define in defines]
    sources = sorted(map(str, HOOK.glob("*.c")))
    compiler = os.environ.get("CC", "gcc")
    return [compiler, *FLAGS, *extra, f"-I{include}", *sources, "-o", str(target)]


def compile_hook(folder: Path, *defines: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"_hook{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(compile_command(target, *defines), check=True)
    return target


def load_hook(path: Path) -> ModuleType:
    """Load one copy of the extension; each file has its own state, so two copies are two hooks."""
    spec = importlib.util.spec_from_file_location("_hook", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
