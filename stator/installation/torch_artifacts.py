"""torch's functions that save compiled code, answered by Stator.   aot_compile, load_compiled_function, caches

In: `torch.compile(f, fullgraph=True).aot_compile((args, kwargs))`, `torch.compiler.save_cache_artifacts()`.
Out: an object that saves itself; torch's bundle of caches, with the entries that Stator has captured.
"""

from __future__ import annotations

import functools
import importlib
import io
import types
from collections.abc import Callable, Mapping
from typing import Any

from stator import _core, api
from stator.capture import first_call
from stator.capture.callables import CompiledCallable
from stator.errors import OptionTypeError, OptionValueError, RecompileForbidden
from stator.host import shown_names
from stator.host.lazy_imports import load
from stator.settings import marks
from stator.settings.options import Settings, build_settings

_CACHES = "stator.artifacts.cache_artifacts"
_FILES = "stator.artifacts.entry_files"


class _Captured(Exception):
    """A call ends before it runs: its entry is there."""


class AotCompiledFunction:
    """A function with the captures it was given; a call that none of them accepts is an error."""

    def __init__(self, entry: _core.CompiledFunction, original: Callable[..., object]) -> None:
        self._entry, self.__wrapped__ = entry, original
        site = first_call.opened(entry)
        entry.miss.__setstate__((functools.partial(_stored_or_error, site), (), {}, None))

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self._entry(*args, **kwargs)

    def save_compiled_function(self, path: str, external_data: object = None) -> int:
        """Write the captures to a file; `torch.compiler.load_compiled_function` and `stator.load` read it."""
        if external_data:
            raise OptionValueError("external_data= is not accepted: Stator's files hold no parameters and buffers")
        if not (saved := api.save(self._entry, path)):
            raise OptionValueError(f"nothing can be saved: {api.why_not_cached(self._entry)}")
        return saved

    def disable_guard_check(self) -> None:
        raise OptionValueError("disable_guard_check() is not accepted: a call that breaks an assumption of the capture "
                               "would return a wrong result; use options={'guard_filter_fn': ...}")


def _stored_or_error(site: Any, compiled: object, bound: tuple[object, ...], args: object, kwargs: object) -> object:
    if first_call.take_stored(site, bound):
        return _core.RETRY
    reason = shown_names.names.missed(load("stator.capture.recompiles").nearest_miss(site, bound))
    raise RecompileForbidden(f"no capture of {site.name} fits this call{reason}; give aot_compile() such inputs too")


def capture_only(entry: _core.CompiledFunction, args: tuple[object, ...], kwargs: Mapping[str, object]) -> None:
    """Install the entry for a call, which is not made."""
    site, tracer = first_call.opened(entry), first_call.tracer()

    def captured(*call: object) -> object:
        answer = tracer.on_miss(site, *call)
        if answer is _core.RETRY:
            raise _Captured
        return answer

    before = entry.miss.__reduce__()[2]
    entry.miss.__setstate__((captured, (), {}, None))
    try:
        entry(*args, **kwargs)
    except _Captured:
        pass
    else:
        raise OptionValueError(f"{site.name} cannot be compiled ahead of time: the call runs eagerly")
    finally:
        entry.miss.__setstate__(before)


def aot_compile(original: Callable[..., object], settings: Settings,
                example_inputs: tuple[tuple[object, ...], dict[str, object]]) -> AotCompiledFunction:
    """Capture a function for example inputs, without a call of it, as torch's `aot_compile` does.

    Of a bound method the function is captured: the result takes the object as its first argument, as torch's does.
    """
    if not settings.fullgraph:
        raise OptionValueError("aot_compile() needs torch.compile(..., fullgraph=True): code after a graph break is "
                               "captured when a call reaches it")
    try:
        args, kwargs = example_inputs
    except (TypeError, ValueError):
        raise OptionTypeError(f"aot_compile({example_inputs!r}) is not accepted; use ((args...), {{kwargs}})") from None
    if isinstance(original, types.MethodType):
        args = original.__self__, *args
        original = original.__func__
    entry = first_call.make_entry(original, settings)
    with load("stator.backends.aot_wrappers").ahead_of_time():
        capture_only(entry, args, kwargs)
    return AotCompiledFunction(entry, original)


def add_aot_compile(compiled: Any) -> Any:
    """Give a compiled function or bound method the method `aot_compile`."""
    mark = marks.compiled_mark(compiled)
    if mark is not None and (type(compiled) is _core.CompiledFunction or
                             type(compiled) is CompiledCallable and type(mark.traced) is types.MethodType):
        compiled.aot_compile = functools.partial(aot_compile, mark.traced, mark.settings)
    return compiled


def load_compiled_function(original: Callable[..., object]) -> Callable[..., object]:
    """torch's own function, which reads Stator's files too: the function is found by its name."""

    @functools.wraps(original)
    def read(file: io.IOBase, *, f_globals: dict[str, object] | None = None,
             external_data: dict[str, object] | None = None) -> object:
        start, files = file.tell(), load(_FILES)
        container = files.container_in(file.read())
        if container is None:
            file.seek(start)
            return original(file, f_globals=f_globals, external_data=external_data)
        return _loaded(files, container, f_globals)

    return read


def _loaded(files: Any, container: Any, f_globals: dict[str, object] | None) -> AotCompiledFunction:
    module, name = container.manifest["function"]
    first, *rest = name.split(".")
    function = (f_globals or {}).get(first, vars(importlib.import_module(module)).get(first))
    for each in rest:  # a method, by its class
        function = getattr(function, each, None)
    if (mark := marks.compiled_mark(function)) is not None:
        function = mark.traced
    if not isinstance(function, types.FunctionType):
        raise OptionValueError(f"{module}.{name} is not found by its name; use f_globals= or stator.load(path, fn)")
    entry = first_call.make_entry(function, build_settings(**container.manifest["compile"]))
    why = files.attach(first_call.opened(entry), container)
    if why is not None:
        raise OptionValueError(f"the file does not fit this process: {why}")
    return AotCompiledFunction(entry, function)


def saving_caches(original: Callable[[], object]) -> Callable[[], object]:
    """torch.compiler.save_cache_artifacts, with the entries of Stator."""

    @functools.wraps(original)
    def save_cache_artifacts() -> object:
        load(_CACHES).record_captures()
        return original()

    return save_cache_artifacts


def loading_caches(original: Callable[[bytes], object]) -> Callable[[bytes], object]:
    """torch.compiler.load_cache_artifacts, which knows the entries of Stator."""

    @functools.wraps(original)
    def load_cache_artifacts(serialized_artifacts: bytes) -> object:
        load(_CACHES)
        return original(serialized_artifacts)

    return load_cache_artifacts
