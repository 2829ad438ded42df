"""Whether the core fits the interpreter and torch.   built for torch 2.13.0, run with 2.15.0  ->  one ImportError

In: the version of torch that the build wrote into `stator._hook`, and the version file of the torch to be imported.
Out: nothing, an ImportError of one sentence, or a warning about a torch that no test has seen.
"""

from __future__ import annotations

import importlib.util
import re
import sys
import warnings
from pathlib import Path

try:
    from stator import _hook
except ImportError:  # not built for this Python: stator.code is of use without it
    BUILT_FOR = None
else:
    BUILT_FOR = getattr(_hook, "TORCH_VERSION", None)

NEWEST_TESTED_TORCH = (2, 15)


def installed_torch() -> str | None:
    """The version of torch, without importing it; None without one."""
    if (torch := sys.modules.get("torch")) is not None:
        return str(getattr(torch, "__version__", "")) or None
    spec = importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec is not None and spec.origin else None
    found = re.search(r"^__version__ = ['\"]([^'\"]+)", file.read_text(), re.MULTILINE) \
        if file is not None and file.exists() else None
    return found.group(1) if found else None


def problem(built_for: str | None, installed: str | None, abi_flags: str) -> str | None:
    """Why Stator cannot be imported, or None; the C++ interfaces of two releases of torch differ."""
    if "t" in abi_flags:
        return "Stator needs CPython with the GIL, and this is a free-threaded build."
    if built_for is None or installed is None or built_for.partition("+")[0] == installed.partition("+")[0]:
        return None
    return f"This Stator was built for torch {built_for}, and torch {installed} is installed: build it again with " \
           "`pip install --force-reinstall --no-deps .` in its sources."


def newer_than_tested(installed: str | None) -> bool:
    numbers = re.match(r"(\d+)\.(\d+)", installed or "")
    return numbers is not None and tuple(map(int, numbers.groups())) > NEWEST_TESTED_TORCH


def check() -> None:
    installed = installed_torch()
    if found := problem(BUILT_FOR, installed, sys.abiflags):
        raise ImportError(found)
    if newer_than_tested(installed):
        warnings.warn(f"Stator is tested with torch up to {'.'.join(map(str, NEWEST_TESTED_TORCH))}; "
                      f"torch {installed} is newer.", stacklevel=2)


check()
