"""See collectives in the code of a tensor subclass.   a product of DTensors  ->  whether ranks communicate in it"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode, is_traceable_wrapper_subclass_type

_NAMESPACES = frozenset({"_c10d_functional", "_c10d_functional_autograd", "c10d", "_dtensor"})


class _Watch(TorchDispatchMode):
    def __init__(self, found: list[str]) -> None:
        super().__init__()
        self.found = found

    def __torch_dispatch__(self, func: OpOverload, types: Sequence[type], args: tuple[object, ...] = (),
                           kwargs: dict[str, object] | None = None) -> object:
        if any(map(is_traceable_wrapper_subclass_type, types)):
            return NotImplemented  # first the class takes its operation apart
        if func.namespace in _NAMESPACES and "wait_tensor" not in func.__name__:
            self.found.append(func.__name__)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def collectives_seen(watched: bool = True) -> Iterator[list[str]]:
    """Names of the collectives that start meanwhile."""
    found: list[str] = []
    with _Watch(found) if watched else contextlib.nullcontext():
        yield found
