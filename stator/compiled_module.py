"""A compiled nn.Module that is still a module.

In: a module and the entry that runs its `__call__`.  Out: an nn.Module whose attributes, parameters, hooks,
state_dict and mode are the original's own, under the original's names, and whose call is compiled.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import torch

from stator import marks
from stator.options import Settings

# Methods by which a module is changed in place and handed back: `m = m.to("cpu").eval()` must stay compiled.
FLUENT_METHODS = frozenset(
    (
        "apply bfloat16 cpu cuda double eval float half ipu mtia requires_grad_ share_memory to to_empty "
        "train type xpu"
    ).split()
)

# Everything else is read from the original.
OWN_ATTRIBUTES = frozenset(
    {
        "_orig_mod",
        "_stator_entry",
        "_stator_settings",
        "__deepcopy__",
        "__copy__",
        "__reduce__",
        "__reduce_ex__",
    }
)

# Set by stator.api, the only place that can compile again: (module, settings) -> CompiledModule.
Recompiler = Callable[[torch.nn.Module, Settings], "CompiledModule"]
_recompile: list[Recompiler] = []


class CompiledModule(torch.nn.Module):
    """What `stator.compile(module)` returns.

    It holds no state of its own beside the original and the entry. `__class__` is the original's, so that
    `isinstance` answers for it as for the original.
    """

    _orig_mod: torch.nn.Module
    _stator_entry: Callable[..., Any]
    _stator_settings: Settings

    def __init__(self, module: torch.nn.Module, entry: Callable[..., Any], settings: Settings) -> None:
        # nn.Module.__init__ would make a second set of parameters, buffers and hooks.
        own = marks.attributes_of(self)
        own["_orig_mod"] = module
        own["_stator_entry"] = entry
        own["_stator_settings"] = settings

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return object.__getattribute__(self, "_stator_entry")(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in OWN_ATTRIBUTES:
            return object.__getattribute__(self, name)
        original = object.__getattribute__(self, "_orig_mod")
        value = getattr(original, name)
        if name in FLUENT_METHODS and callable(value):
            return returning_self(self, original, value)
        return value

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*dir(self._orig_mod), "_orig_mod"})

    def __repr__(self) -> str:
        return f"Compiled{self._orig_mod!r}"

    # Python looks these up on the type; containers of modules define them.
    def __len__(self) -> int:
        return len(self._orig_mod)  # type: ignore[arg-type]

    def __bool__(self) -> bool:
        # Without this, __len__ would make modules that have none raise in `if module:`.
        return bool(self._orig_mod)

    def __getitem__(self, key: Any) -> Any:
        return self._orig_mod[key]  # type: ignore[index]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._orig_mod[key] = value  # type: ignore[index]

    def __delitem__(self, key: Any) -> None:
        del self._orig_mod[key]  # type: ignore[attr-defined]

    def __iter__(self) -> Iterator[Any]:
        return iter(self._orig_mod)  # type: ignore[call-overload,no-any-return]

    def __contains__(self, key: Any) -> bool:
        return key in self._orig_mod  # type: ignore[operator]

    def __deepcopy__(self, memo: dict[int, Any]) -> CompiledModule:
        return rebuild(copy.deepcopy(self._orig_mod, memo), self._stator_settings)

    def __copy__(self) -> CompiledModule:
        return rebuild(copy.copy(self._orig_mod), self._stator_settings)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return rebuild, (self._orig_mod, self._stator_settings)


def returning_self(
    compiled: CompiledModule, original: torch.nn.Module, method: Callable[..., Any]
) -> Callable[..., Any]:
    """The original's method, which hands back the compiled module where it would hand back the original."""

    def call(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        return compiled if result is original else result

    return call


def rebuild(module: torch.nn.Module, settings: Settings) -> CompiledModule:
    """Compile a copied or unpickled module with the settings of the one it came from."""
    return _recompile[0](module, settings)


def set_recompiler(recompiler: Recompiler) -> None:
    """Tell this module how to compile; called once, when `stator.api` is loaded."""
    _recompile[:] = [recompiler]
