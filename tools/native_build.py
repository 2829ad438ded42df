"""Compile and link the two extension modules, and only what changed.

In: sources under csrc/, the torch that is installed.  Out: `stator._hook` (C, CPython's internals) and
`stator._core` (C++, torch's headers), each where setuptools wants it.

setuptools compiles an extension's files one after the other and all of them again when one has changed; a
file that includes torch's headers takes half a minute, so here every object has its own dependency file, and
objects are compiled in parallel. Objects live in build/objects/<python>-<torch>/, whatever the command.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from setuptools import Extension
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent.parent
WARNINGS = ["-Wall", "-Wextra", "-Wno-unused-parameter", "-Wno-missing-field-initializers"]
# Where an installed Stator finds torch's libraries; a wheel holds no path of the machine that built it.
BESIDE_STATOR = "$ORIGIN/../torch/lib"


class Compilation(NamedTuple):
    """One source file, the object it becomes, and the command that does it."""

    source: Path
    target: Path
    command: list[str]


def extensions(torch_folder: str, torch_version: str) -> list[Extension]:
    """The extension modules that the sources in csrc/ make; a module without sources is an error."""
    hook = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc" / "hook").glob("*.c"))
    core = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "csrc").rglob("*.cpp"))
    if not hook or not core:
        sys.exit("Stator's sources are incomplete: csrc/ must hold hook/*.c and *.cpp.")
    include = sysconfig.get_paths()["include"]
    torch_include = os.path.join(torch_folder, "include")
    torch_lib = os.path.join(torch_folder, "lib")
    return [
        Extension(
            "stator._hook",
            hook,
            include_dirs=["csrc", include, os.path.join(include, "internal")],
            define_macros=[("Py_BUILD_CORE_MODULE", "1"), ("STATOR_TORCH_VERSION", f'"{torch_version}"')],
            extra_compile_args=["-std=gnu11", "-O2", *WARNINGS],
        ),
        Extension(
            "stator._core",
            core,
            language="c++",
            include_dirs=[
                "csrc",
                include,
                torch_include,
                os.path.join(torch_include, "torch", "csrc", "api", "include"),
            ],
            define_macros=[("TORCH_API_INCLUDE_EXTENSION_H", "1"), ("TORCH_EXTENSION_NAME", "_core")],
            extra_compile_args=[
                f"-std={cxx_standard(torch_folder)}",
                "-O2",
                "-fvisibility=hidden",
                *WARNINGS,
            ],
            libraries=["torch_python", "torch", "torch_cpu", "c10"],
            library_dirs=[torch_lib],
            runtime_library_dirs=[torch_lib],
        ),
    ]


def cxx_standard(torch_folder: str) -> str:
    """The C++ standard that this torch compiles its own extensions with."""
    text = Path(torch_folder, "utils", "cpp_extension.py").read_text(encoding="utf-8")
    return "c++20" if "-std=c++20" in text else "c++17"


def out_of_date(target: Path, command: list[str], inputs: list[Path]) -> bool:
    """Whether `target` must be made again: it is older than an input, or was made by another command."""
    recorded = target.with_suffix(target.suffix + ".command")
    if not target.exists() or not recorded.exists() or recorded.read_text() != shlex.join(command):
        return True
    made = target.stat().st_mtime_ns
    return any(not path.exists() or path.stat().st_mtime_ns > made for path in inputs)


def make(target: Path, command: list[str]) -> None:
    """Run the command that makes `target`, and remember it; the compiler's own messages pass through."""
    target.parent.mkdir(parents=True, exist_ok=True)
    recorded = target.with_suffix(target.suffix + ".command")
    recorded.unlink(missing_ok=True)
    finished = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if finished.stdout or finished.stderr:
        print(finished.stdout + finished.stderr, file=sys.stderr, flush=True)
    if finished.returncode:
        raise SystemExit(f"Stator could not be built: {shlex.join(command)} failed.")
    recorded.write_text(shlex.join(command))


def included_files(target: Path) -> list[Path]:
    """The files that went into an object, from the dependency file its compiler wrote."""
    listing = target.with_suffix(".d")
    if not listing.exists():
        return []
    _, _, names = listing.read_text().replace("\\\n", " ").partition(": ")
    return [ROOT / name for name in names.split()]


class NativeBuild(build_ext):
    """setuptools' build_ext with parallel, incremental compilation."""

    torch_version = ""
    compilers: dict[str, str] = {}

    def build_extensions(self) -> None:
        plans = [(ext, [self.compilation(ext, source) for source in ext.sources]) for ext in self.extensions]
        waiting = [
            step
            for _, steps in plans
            for step in steps
            if out_of_date(step.target, step.command, [step.source, *included_files(step.target)])
        ]
        workers = int(os.environ.get("MAX_JOBS", "0")) or os.cpu_count() or 1
        with ThreadPoolExecutor(workers) as pool:
            labels = [f"{number}/{len(waiting)}" for number in range(1, len(waiting) + 1)]
            list(pool.map(self.compile, labels, waiting))
        for ext, steps in plans:
            self.link(ext, [step.target for step in steps])

    def objects_folder(self) -> Path:
        key = f"{sysconfig.get_config_var('SOABI')}-torch-{self.torch_version}"
        return ROOT / "build" / "objects" / key

    def compilation(self, ext: Extension, source: str) -> Compilation:
        target = self.objects_folder() / (source + ".o")
        # System headers (-isystem) raise no warnings of ours and stay out of the dependency file; a changed
        # torch or Python changes the folder's name instead.
        includes = [
            flag
            for folder in ext.include_dirs
            for flag in (["-I", folder] if folder == "csrc" else ["-isystem", folder])
        ]
        macros = [f"-D{name}={value}" for name, value in ext.define_macros]
        command = [
            *shlex.split(self.compilers["C++" if ext.language == "c++" else "C"]),
            *includes,
            *macros,
            *ext.extra_compile_args,
            *shlex.split(os.environ.get("STATOR_CFLAGS", "")),
            "-DNDEBUG",
            "-fPIC",
            "-MMD",
            "-c",
            source,
            "-o",
            str(target),
        ]
        return Compilation(ROOT / source, target, command)

    def compile(self, label: str, step: Compilation) -> None:
        print(f"  compiling {label} {step.source.relative_to(ROOT)}", file=sys.stderr, flush=True)
        make(step.target, step.command)

    def link(self, ext: Extension, objects: list[Path]) -> None:
        target = self.objects_folder() / (ext.name + ".so")
        command = [
            *shlex.split(self.compilers["C++" if ext.language == "c++" else "C"]),
            "-shared",
            *map(str, objects),
            *(f"-L{folder}" for folder in ext.library_dirs),
            *(f"-Wl,-rpath,{folder if self.inplace else BESIDE_STATOR}" for folder in ext.runtime_library_dirs),
            *(f"-l{name}" for name in ext.libraries),
            *shlex.split(os.environ.get("STATOR_LDFLAGS", "")),
            "-o",
            str(target),
        ]
        if out_of_date(target, command, objects):
            print(f"  linking {ext.name}", file=sys.stderr, flush=True)
            make(target, command)
        wanted = ROOT / self.get_ext_fullpath(ext.name)
        wanted.parent.mkdir(parents=True, exist_ok=True)
        self.copy_file(str(target), str(wanted))
