"""The C and C++ core under AddressSanitizer and UndefinedBehaviorSanitizer.   python tools/sanitize.py [pytest args]

In: the sources.  Out: pytest's exit status over the tests that exercise the core, run in a copy of the tree under
build/sanitize whose extension modules carry the sanitizers; any report of theirs ends the process with an error.

Leaks are left to tests/unit/entry/test_leaks.py and tests/unit/hook, which count references: at exit CPython itself
leaves memory behind, which LeakSanitizer cannot tell from ours, and ASan's own bookkeeping swells resident memory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COPY = ROOT / "build" / "sanitize"
PARTS = ["csrc", "tools", "stator", "tests", "setup.py", "pyproject.toml", "README.md", "LICENSE"]
FLAGS = "-fsanitize=address,undefined -fno-sanitize=vptr -fno-sanitize-recover=undefined"
TESTS = [
    "tests/unit/guards", "tests/unit/entry/test_binding.py", "tests/unit/entry/test_entry.py",
    "tests/unit/shapes", "tests/breaks/test_depth.py",
    "tests/lang/test_01_arithmetic.py", "tests/lang/test_16_closures.py", "tests/lang/test_30_generators.py",
    "tests/lang/test_34_try.py", "tests/lang/test_47_collections.py", "tests/lang/test_58_modules.py",
    "tests/resilience/test_lifetimes.py", "tests/resilience/test_many_threads.py",
]  # fmt: skip


def runtime_library(name: str) -> str:
    """The path of a sanitizer's runtime, which must be loaded before everything else."""
    found = subprocess.run(["gcc", f"-print-file-name={name}"], capture_output=True, text=True, check=True)
    path = found.stdout.strip()
    if not os.path.isabs(path):
        sys.exit(f"make sanitize needs {name}, which this gcc does not have (Debian: libasan and libubsan).")
    return path


def drop_stale(sources: Path, copy: Path) -> None:
    """Delete what an earlier copy holds and the sources no longer do: the build takes every file there is."""
    for path in copy.rglob("*"):
        if path.is_file() and not (sources / path.relative_to(copy)).exists():
            path.unlink()


def copy_tree() -> None:
    """The sources beside each other under build/sanitize; files keep their times, so that builds stay incremental."""
    for part in PARTS:
        source, target = ROOT / part, COPY / part
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        else:
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    drop_stale(ROOT / "csrc", COPY / "csrc")


def main(arguments: list[str]) -> int:
    preload = " ".join(runtime_library(name) for name in ("libasan.so", "libubsan.so"))
    copy_tree()
    print("[1/2] build    the core with ASan and UBSan", flush=True)
    building = dict(os.environ, STATOR_CFLAGS=f"{FLAGS} -g -O1 -fno-omit-frame-pointer", STATOR_LDFLAGS=FLAGS)
    subprocess.run([sys.executable, "setup.py", "-q", "build_ext", "--inplace"], cwd=COPY, env=building, check=True)
    print("[2/2] tests    of the core", flush=True)
    testing = dict(
        os.environ,
        LD_PRELOAD=preload,
        ASAN_OPTIONS="detect_leaks=0:abort_on_error=1:detect_odr_violation=0",
        UBSAN_OPTIONS="print_stacktrace=1:halt_on_error=1",
        PYTHONMALLOC="malloc",  # CPython's own arenas would hide the bounds of objects
        PYTHONPATH=str(COPY),
        OMP_NUM_THREADS="1",
        STATOR_THREAD_CALLS="100",
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *(arguments or TESTS)]
    return subprocess.run(command, cwd=COPY, env=testing).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
