"""The table of backends.   a name or a callable, as the user gives it  ->  the `Backend` behind it

Installed packages add backends as entry points of group `torch_dynamo_backends`, loaded at first use.
"""

from __future__ import annotations

import functools
import importlib
import importlib.metadata
import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from types import ModuleType
from typing import Any, TypeVar

from stator.errors import BackendError, OptionTypeError, OptionValueError, describe_callable
from stator.settings.options import OWN_OPTIONS, BackendFunction, Settings, list_accepted

ENTRY_POINT_GROUP = "torch_dynamo_backends"
# Known without importing Inductor, which takes seconds; any other name is looked up there.
USUAL_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

Function = TypeVar("Function", bound=BackendFunction)


@dataclass(frozen=True)
class Backend:
    """One backend. `check` refuses settings before anything is captured; `prepare` is called when a capture begins.

    `takes_settings`: the function is Stator's own and takes `(gm, example_inputs, settings)`; all others take
    `(gm, example_inputs)`, and `mode=` and `options=` where those are given.
    """

    name: str
    given: BackendFunction | Named
    tags: tuple[str, ...] = ()
    check: Callable[[Settings], None] | None = None
    takes_settings: bool = False
    prepare: Callable[[], None] | None = None

    @property
    def function(self) -> BackendFunction:
        return self.given.load() if isinstance(self.given, Named) else self.given


class Named:
    """A function of this folder, whose module is imported when it is first needed."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name

    def load(self) -> Any:
        return getattr(importlib.import_module(f"stator.backends.{self.module}"), self.name)

    def __call__(self, *args: object) -> Any:
        return self.load()(*args)


def refuse_tuning(settings: Settings) -> None:
    for given, value in tuning_keywords(settings).items():
        raise OptionValueError(f"backend {settings.backend_name!r} takes no {given}, but {given}={value!r} is given; "
                               "modes and options are for the backend 'inductor'")


def refuse_unknown_keywords(function: BackendFunction, settings: Settings) -> None:
    """The check of users' backends, which get `mode=` and `options=` only if they have such parameters."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):
        return  # a callable without a signature: whether it takes the keywords shows when it is called
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return
    for keyword in tuning_keywords(settings):
        if keyword not in parameters:
            raise OptionValueError(f"{keyword}= is given, but the backend {settings.backend_name!r} has no parameter "
                                   f"{keyword!r}")


def check_inductor_settings(settings: Settings) -> None:
    if settings.mode is not None and settings.mode not in USUAL_MODES:
        modes: Mapping[str, object] = importlib.import_module("torch._inductor").list_mode_options()
        if settings.mode not in modes:
            raise OptionValueError(f"mode={settings.mode!r} is not accepted{list_accepted(settings.mode, modes)}")
    if settings.options:
        config = importlib.import_module("torch._inductor.config")
        known = config.get_config_copy()
        for key, value in settings.options.items():
            check_option(config, known, key, value)


def check_option(config: ModuleType, known: Mapping[str, Any], key: str, value: object) -> None:
    """Refuse an option that Inductor's config does not have, or has with another type."""
    attribute = key.replace("-", "_")
    if attribute not in known:
        raise OptionValueError(f"option {key!r} is not accepted{list_accepted(key, [*OWN_OPTIONS, *known])}")
    expected = config.get_type(attribute)
    # Unions and other generic annotations cannot be checked with isinstance; Inductor sees those as given.
    if isinstance(expected, type) and not isinstance(value, expected):
        raise OptionTypeError(f"option {key!r} is {value!r}, of type {type(value).__name__}; it takes "
                              f"{expected.__name__}")


def tuning_keywords(settings: Settings) -> dict[str, object]:
    mode = {} if settings.mode in (None, "default") else {"mode": settings.mode}
    return {**mode, **({"options": dict(settings.options)} if settings.options else {})}


_backends = {name: Backend(name, Named(module, f"compile_{name}"), (), refuse_tuning, True) for name, module in (
    ("eager", "eager"), ("eager_noexcept", "eager"), ("aot_eager", "aot"), ("aot_eager_decomp_partition", "aot"))}
_backends["cudagraphs"] = Backend("cudagraphs", Named("cuda_graphs", "compile_cuda_graphs"), (), refuse_tuning, True)
_backends["inductor"] = Backend("inductor", Named("inductor", "compile_inductor"), (), check_inductor_settings, True,
                                Named("inductor", "wake_workers"))


def register_backend(fn: Function | None = None, name: str | None = None,
                     tags: Iterable[str] = () ) -> Function | Callable[[Function], Function]:
    """Make a backend known by a name, its `__name__` by default; as a call or as a decorator."""
    if fn is None:
        return functools.partial(_register, name=name, tags=tuple(tags))
    return _register(fn, name, tuple(tags))


def _register(fn: Function, name: str | None, tags: tuple[str, ...]) -> Function:
    if not callable(fn):
        raise OptionTypeError(f"register_backend({fn!r}) is not accepted; use a callable (graph_module, "
                              "example_inputs) -> callable")
    name = name if name is not None else getattr(fn, "__name__", None)
    if not isinstance(name, str) or not name:
        raise OptionTypeError(f"the backend {fn!r} has no __name__; give name=")
    known = _backends.get(name)
    if known is not None and known.function is not fn:
        raise OptionValueError(f"a backend {name!r} is already registered ({describe_callable(known.function)}); "
                               "give another name=")
    _backends[name] = Backend(name, fn, tags, functools.partial(refuse_unknown_keywords, fn))
    return fn


def list_backends(exclude_tags: Collection[str] | None = ("debug", "experimental")) -> list[str]:
    """The names that `backend=` accepts."""
    excluded = frozenset(exclude_tags or ())
    named = {name for name, backend in _backends.items() if not excluded.intersection(backend.tags)}
    return sorted(named | set(_entry_points()) - set(_backends))


def find_backend(backend: str | BackendFunction) -> Backend:
    if not isinstance(backend, str):
        name = getattr(backend, "__name__", None) or type(backend).__name__
        return Backend(name, backend, check=functools.partial(refuse_unknown_keywords, backend))
    if backend not in _backends and backend in _entry_points():
        _load_entry_point(backend)
    if backend not in _backends:
        _take_from_torch(backend)
    if backend not in _backends:
        names = list_accepted(backend, list_backends(exclude_tags=None))
        raise OptionValueError(f"there is no backend {backend!r}{names}; a callable (graph_module, example_inputs) -> "
                               "callable is accepted too")
    return _backends[backend]


def check_settings(settings: Settings) -> None:
    """Raise if the backend does not exist or refuses the mode or the options."""
    backend = find_backend(settings.backend)
    if backend.check is not None and tuning_keywords(settings):
        backend.check(settings)


def prepare_backend(settings: Settings) -> None:
    """A graph for this backend is being captured: what takes time and needs no graph may begin."""
    backend = find_backend(settings.backend)
    if backend.prepare is not None:
        backend.prepare()


def _take_from_torch(name: str) -> None:
    """A backend that only torch has: one of its own, or one registered with `torch._dynamo.register_backend`."""
    registry = importlib.import_module("torch._dynamo.backends.registry")
    if name in registry.list_backends(exclude_tags=()):
        _register(registry.lookup_backend(name), name, ())


@functools.cache
def _entry_points() -> dict[str, importlib.metadata.EntryPoint]:
    return {point.name: point for point in importlib.metadata.entry_points(group=ENTRY_POINT_GROUP)}


def _load_entry_point(name: str) -> None:
    point = _entry_points()[name]
    try:
        function = point.load()
    except Exception as error:
        raise BackendError(name, f"its entry point {point.value!r} cannot be loaded: {error}") from error
    _register(function, name, ())
