"""An operation by torch's own Python code for it.   istft, whose C++ code looks at a window's values  ->  its shape

In: an operation on fakes that C++ code could not do, because it decides something by looking at values.  Out: the
result of torch's decomposition, where there is one that does not look; the graph has the operation itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import DataDependentOutputException

from stator.breaks import Break


def decomposed(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], why: str) -> Any:
    """The result; a break where the decomposition looks at values too."""
    try:
        with enable_python_dispatcher():
            return func(*args, **kwargs)
    except DataDependentOutputException:
        raise Break("SB003", why) from None
