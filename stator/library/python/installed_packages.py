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


@rule(importlib.util.find_spec)
def _find_spec(vm: VM, name: Any, package: Any = None) -> Any:
    if type(name) is not str or type(package) not in (str, type(None)):
        raise Break("SB001", "importlib.util.find_spec of a name that is not a constant")
    parent = name.rpartition(".")[0]
    if parent and parent not in sys.modules:
        raise Break("SB006", f"importlib.util.find_spec({name!r}) imports {parent}")
    spec = vm.native_unhooked(importlib.util.find_spec, (name, package))
    return None if spec is None else vm.heap.adopt(spec, Pinned(spec))


@rule(importlib.metadata.version)
def _version(vm: VM, distribution_name: Any) -> Any:
    if type(distribution_name) not in (str, type(None)):
        raise Break("SB001", "importlib.metadata.version of a name that is not a constant")
    return vm.native_unhooked(importlib.metadata.version, (distribution_name,))


@rule(importlib.metadata.packages_distributions)
def _packages_distributions(vm: VM) -> Any:
    return vm.native_unhooked(importlib.metadata.packages_distributions, ())
