"""Rules for questions about installed packages.   importlib.metadata.version("torch")  ->  "2.13.0"

What is installed does not change while a process runs: the questions are answered while tracing, without a guard
(docs/decisions/0003-installed-packages.md).
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from typing import Any

from stator.breaks import Break
from stator.interp.rule_registry import rule
from stator.interp.vm import VM
from stator.source import Pinned


def _names_of(args: Any, kwargs: Any) -> bool:
    return all(type(value) is str or value is None for value in (*args, *kwargs.values()))


@rule(importlib.util.find_spec)
def _find_spec(vm: VM, args: Any, kwargs: Any) -> Any:
    if not args or not _names_of(args, kwargs):
        raise Break("SB001", "importlib.util.find_spec of a name that is not a constant")
    parent = args[0].rpartition(".")[0]
    if parent and parent not in sys.modules:
        raise Break("SB006", f"importlib.util.find_spec({args[0]!r}) imports {parent}")
    spec = vm.native_unhooked(importlib.util.find_spec, args, kwargs)
    return None if spec is None else vm.heap.adopt(spec, Pinned(spec))


@rule(importlib.metadata.version)
def _version(vm: VM, args: Any, kwargs: Any) -> Any:
    if not _names_of(args, kwargs):
        raise Break("SB001", "importlib.metadata.version of a name that is not a constant")
    return vm.native_unhooked(importlib.metadata.version, args, kwargs)


@rule(importlib.metadata.packages_distributions)
def _packages_distributions(vm: VM, args: Any, kwargs: Any) -> Any:
    return vm.native_unhooked(importlib.metadata.packages_distributions, args, kwargs)
