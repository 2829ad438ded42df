"""Calls of outside caches, made again.   scale(4), a miss  ->  use_cache(scale, (4,), {}, 8)

In: a `CacheUsed` effect.  Out: a statement that calls the wrapper, so that it counts and orders its entries as it
does; where it asks for the result, it is handed the one that the trace has worked out.
"""

from __future__ import annotations

import types
from typing import Any

from stator import _hook
from stator.emit.services import Rebuilder


def write_cache_use(build: Rebuilder, effect: Any) -> str:
    args = "".join(f"{build.value(arg)}, " for arg in effect.args)
    named = ", ".join(f"{name!r}: {build.value(arg)}" for name, arg in effect.kwargs.items())
    use = build.writer.constant(fail_in_cache if effect.failed else use_cache)
    wrapper = build.writer.constant(effect.wrapper, "cache")
    return f"{use}({wrapper}, ({args}), {{{named}}}, {build.value(effect.value)})"


def use_cache(wrapper: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: object) -> None:
    """Call a cache; what it wraps answers `value` without running."""
    _call(wrapper, args, kwargs, lambda: value)


def fail_in_cache(wrapper: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: object) -> None:
    """Call a cache that has no result; what it wraps raises without running."""
    def fail() -> Any:
        raise _Failed
    try:
        _call(wrapper, args, kwargs, fail)
    except _Failed:
        return


class _Failed(Exception):
    pass


def _call(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any], answer: Any) -> None:
    code = wrapper.__wrapped__.__code__

    def intercepted(function: types.FunctionType, bound: tuple[Any, ...], closure: object = None) -> Any:
        return answer() if function.__code__ is code else _hook.RUN_ALL

    asked_before = _hook.exchange_callback(intercepted)
    _hook.enter()
    try:
        wrapper(*args, **kwargs)
    finally:
        _hook.leave()
        _hook.exchange_callback(asked_before)
