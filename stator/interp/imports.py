"""What an import statement would run.   import colorsys, not loaded yet  ->  harmless: it is installed; or a break

A module that is loaded is only looked up.  To load one runs its code: of the standard library and of an installed
package this may happen while tracing, since the program itself loads it in this very call and nobody can tell the
moment; code of the user's own may do anything, so it breaks, at that import.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import sysconfig
import types
from typing import Any

from stator.breaks import Break
from stator.guards.guard import Kind
from stator.host.value_kinds import is_a
from stator.interp.services import VM
from stator.source import Key, Pinned

_INSTALLED = tuple({os.path.realpath(sysconfig.get_path(name)) + os.sep
                    for name in ("stdlib", "platstdlib", "purelib", "platlib")})


def refuse_loading(vm: VM, namespace: dict[str, Any], name: str, fromlist: Any, level: int) -> None:
    """Break where an import would run code of the user's own, or find what only the trace has put there."""
    modules = vm.heap.by_original.get(id(sys.modules))
    if modules is not None and id(modules) in vm.heap.changes.written:
        raise Break("SB006", "an import after the program has changed sys.modules")
    full = absolute_name(namespace, name, level)
    wanted = [full]
    if fromlist and is_a(sys.modules.get(full), types.ModuleType):
        own = sys.modules[full].__dict__
        wanted += [f"{full}.{part}" for part in fromlist if "__path__" in own and part not in own and part != "*"]
    for module in wanted:
        if module not in sys.modules and not is_installed(module.partition(".")[0]):
            vm.heap.guard(Pinned(sys.modules), Kind.ABSENT, module)  # once it is loaded, the next call goes on
            raise Break("SB006", f"the import of {module}, which is not loaded yet")


def guard_registered(vm: VM, *names: str) -> None:
    """Guard what sys.modules has under these names: a module, None, or nothing."""
    for name in names:
        if name in sys.modules:
            vm.heap.guard(Key(Pinned(sys.modules), name), Kind.ID, sys.modules[name])
        else:
            vm.heap.guard(Pinned(sys.modules), Kind.ABSENT, name)


def parents_of(name: str) -> list[str]:
    """The packages around a module, the outermost first."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts))]


def absolute_name(namespace: dict[str, Any], name: str, level: int) -> str:
    if not level:
        return name
    package = namespace.get("__package__") or namespace.get("__name__", "").rpartition(".")[0]
    parent = package.rsplit(".", level - 1)[0] if level > 1 else package
    return f"{parent}.{name}" if name else parent


def is_installed(package: str) -> bool:
    """Whether a top-level package comes with Python or was installed, and does not belong to the program."""
    module = sys.modules.get(package)
    if module is not None:
        origin = getattr(module, "__file__", None)
    else:
        spec = importlib.machinery.PathFinder.find_spec(package)
        if spec is None:
            return True  # built in, frozen, or nowhere: the import fails without running anything
        origin = spec.origin or next(iter(spec.submodule_search_locations or ()), None)
    return origin is None or os.path.realpath(origin).startswith(_INSTALLED)
