"""Replay output after the graph.   print(x), log.info(x), warnings.warn(x)  ->  sys.stdout.write('...'), log_at(...)

In: the effects that the trace has noted, in order.  Out: one statement of the residual for each, and the functions that
those statements call.
"""

from __future__ import annotations

import sys
import types
import warnings
from collections.abc import Callable
from typing import Any

from stator import _hook
from stator.emit.rebuild.deferred_texts import write_frozen, write_text
from stator.emit.rebuild.local_owners import Owners
from stator.emit.rebuild.values import Rebuilder
from stator.graph.state.quiet_logging import Heard
from stator.host.own_code import OWN_FOLDER
from stator.interp.frame import Unwound, add_place
from stator.interp.noted_effects import Converted, Logged, PlainCall, PolicySet, Printed, Warned
from stator.library.python.caches_and_locks import CacheUsed
from stator.library.python.printing_and_logging import Written
from stator.library.python.warning_filters import FiltersKept


def write_effect(build: Rebuilder, effect: object) -> str:
    return _WRITERS[type(effect)](build, effect)


def _print(build: Rebuilder, effect: Printed) -> str:
    stream = f"{build.writer.constant(sys, 'sys')}.{effect.stream}"
    written = [f"{stream}.write({write_text(build, piece)})" for piece in effect.pieces or (effect.text,)]
    return "; ".join(written + [f"{stream}.flush()"] * effect.flush)


def _warn(build: Rebuilder, effect: Warned) -> str:
    return (f"{build.writer.constant(warn_at, 'warn_at')}({build.value(effect.message)}, "
            f"{build.writer.constant(effect.category)}, {effect.filename!r}, {effect.line}, {effect.outward})")


def _convert(build: Rebuilder, effect: Converted) -> str:
    return (f"{build.writer.constant(warn_of_conversion, 'warn_of_conversion')}("
            f"{build.writer.constant(effect.message)}, {effect.filename!r}, {effect.line})")


def _log(build: Rebuilder, effect: Logged) -> str:
    args = ", ".join(write_frozen(build, arg) for arg in (effect.message, effect.args))
    logger = build.writer.constant(effect.logger, "logger")
    return (f"{build.writer.constant(log_at, 'log_at')}({logger}, {effect.level}, {args}, {effect.filename!r}, "
            f"{effect.line}, {effect.function!r}, {effect.outward}, {write_frozen(build, effect.extra)}, "
            f"{effect.exc_info!r})")


def _write_to_file(build: Rebuilder, effect: Written) -> str:
    stream = build.outside(effect.source)
    return f"{stream}.flush()" if effect.data is None else f"{stream}.write({build.value(effect.data)})"


def _add_place(build: Rebuilder, effect: Unwound) -> str:
    place = build.writer.constant(add_place)
    held = Owners(build).held(effect.held)
    return f"{place}({build.value(effect.exc)}, {build.writer.constant(effect.place, 'place')}, {held})"


def _make_call(build: Rebuilder, effect: PlainCall) -> str:
    given = [*map(build.value, effect.args), *(f"{name}={build.value(value)}" for name, value in effect.kwargs.items())]
    return f"{build.writer.constant(effect.function)}({', '.join(given)})"


def _keep_filters(build: Rebuilder, effect: FiltersKept) -> str:
    outcome = "" if effect.method is warnings.catch_warnings.__enter__ else ", None, None, None"
    return f"{build.writer.constant(effect.method)}({build.value(effect.manager)}{outcome})"


def write_cache_use(build: Rebuilder, effect: CacheUsed) -> str:
    """Call the wrapper of a cache again: it counts and orders its entries itself."""
    args = "".join(f"{build.value(arg)}, " for arg in effect.args)
    named = ", ".join(f"{name!r}: {build.value(arg)}" for name, arg in effect.kwargs.items())
    use = build.writer.constant(fail_in_cache if effect.failed else use_cache)
    wrapper = build.writer.constant(effect.wrapper, "cache")
    return f"{use}({wrapper}, ({args}), {{{named}}}, {build.value(effect.value)})"


_WRITERS: dict[type, Callable[[Rebuilder, Any], str]] = {
    Printed: _print, Warned: _warn, Converted: _convert, Logged: _log, Written: _write_to_file,
    CacheUsed: write_cache_use, Unwound: _add_place, PlainCall: _make_call, FiltersKept: _keep_filters,
    PolicySet: lambda build, effect: (
        f"{build.writer.constant(effect.setter, 'set_error_policy')}({effect.value!r})"),
}


def warn_of_conversion(convert: Callable[[], None], filename: str, line: int) -> None:
    with Heard(always=False) as warned:
        convert()
    for each in warned:
        warn_at(str(each.message), each.category, filename, line, 0)


def warn_at(message: str | Warning, category: type[Warning], filename: str, line: int, outward: int) -> None:
    """Warn as if from the user's line, with that module's own registry."""
    if outward:
        frame = frame_outside(outward)
        if frame is None:  # as warnings.warn does where the stack is shorter than its stacklevel
            return warnings.warn_explicit(message, category, "sys", 1, "sys")
        names = frame.f_globals
        registry = names.setdefault("__warningregistry__", {})
        return warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno,
                                      names.get("__name__", "<string>"), registry)
    module = next((m for m in list(sys.modules.values()) if getattr(m, "__file__", None) == filename), None)
    registry = None if module is None else module.__dict__.setdefault("__warningregistry__", {})
    # A module of None would say that Python is shutting down: then nothing is shown.
    name = filename.removesuffix(".py") if module is None else module.__name__
    warnings.warn_explicit(message, category, filename, line, name, registry)


def log_at(logger: Any, level: int, message: object, args: tuple[Any, ...], filename: str, line: int,
           function: str, outward: int, extra: object, exc_info: bool | None) -> None:
    if not logger.isEnabledFor(level):
        return
    if outward and (frame := frame_outside(outward)) is not None:
        filename, line, function = frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name
    logger.handle(logger.makeRecord(logger.name, level, filename, line, message, args, exc_info, function, extra))


def frame_outside(outward: int) -> Any:
    """The frame that many calls outside the compiled function, whose segment calls us; None where there is none."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        name = frame.f_code.co_filename
        if not name.startswith(OWN_FOLDER) and not name.startswith("<stator"):
            outward -= 1
            if not outward:
                return frame
        frame = frame.f_back
    return None


def use_cache(wrapper: Any, args: tuple[Any, ...], kwargs: dict[str, Any], value: object, failed: bool = False) -> None:
    """Call a cache; what it wraps returns `value`, or raises where it failed, without running."""
    code = wrapper.__wrapped__.__code__

    def intercepted(function: types.FunctionType, bound: tuple[Any, ...], closure: object = None) -> Any:
        if function.__code__ is not code:
            return _hook.RUN_ALL
        if failed:
            raise _Failed
        return value

    callback = _hook.exchange_callback(intercepted)
    _hook.enter()
    try:
        wrapper(*args, **kwargs)
    except _Failed:
        return
    finally:
        _hook.leave()
        _hook.exchange_callback(callback)


def fail_in_cache(wrapper: object, args: tuple[Any, ...], kwargs: dict[str, Any], value: object) -> None:
    use_cache(wrapper, args, kwargs, value, failed=True)


class _Failed(Exception):
    pass
