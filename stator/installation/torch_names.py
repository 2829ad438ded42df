"""Functions in the place of torch._dynamo's.   torch._dynamo.reset(); torch._dynamo.optimize("eager")(f)

In: the module torch._dynamo, now or when somebody first loads it.  Out: its functions that are about compiling,
answered by Stator.  Others stay torch's: marks on functions and tensors are read where they lie (settings/torch_marks,
shapes/policy).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.abc
import importlib.util
import sys
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Sequence
from importlib.machinery import ModuleSpec
from typing import Any

from stator import api
from stator.installation import torch_records
from stator.settings import marks
from stator.settings.options import require_bool
from stator.settings.stance import set_stance as stance_of

_MODULE = "torch._dynamo"
# About torch's tracer: each warns once, and does what it does there.
_OF_THE_TRACER = ("allow_c_slot", "bytecode_debugger", "disable_nested_graph_breaks", "override_cudagraphs",
                  "override_optimization_hint", "patch_dynamo_config", "replay", "reset_recompile_user_contexts",
                  "set_recursion_limit", "step_unsupported")
FOR_DEBUGGING = frozenset({"eager", "eager_noexcept", "aot_eager", "aot_eager_decomp_partition"})
_originals: dict[str, Any] = {}  # torch's own functions, while Stator's are in their place
_by_torch = threading.local()  # `active`: this thread has torch compile


def replace() -> None:
    """Replace the functions of torch._dynamo, now or once it is loaded."""
    if _MODULE in sys.modules:
        _replace_in(sys.modules[_MODULE])
    elif _after_import not in sys.meta_path:
        sys.meta_path.insert(0, _after_import)
    torch_records.start()


def put_back() -> None:
    """torch._dynamo is torch's own again."""
    if _after_import in sys.meta_path:
        sys.meta_path.remove(_after_import)
    module: Any = sys.modules.get(_MODULE)
    for name, original in _originals.items():
        setattr(module, name, original)
    _originals.clear()
    torch_records.stop()


def _replace_in(module: types.ModuleType) -> None:
    for name, function in _FUNCTIONS.items():
        if hasattr(module, name) and name not in _originals:
            _originals[name] = getattr(module, name)
            setattr(module, name, function)
    for name in _OF_THE_TRACER:
        if callable(original := getattr(module, name, None)) and name not in _originals:
            _originals[name] = original
            setattr(module, name, saying_so(name, original))
    if "reset" not in _originals:
        _originals["reset"] = module.reset
        module.reset = resetting(module.reset)  # type: ignore[attr-defined]


class _AfterImport(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds torch._dynamo as others do, and replaces its functions when it is loaded."""

    loader: Any = None

    def find_spec(self, fullname: str, path: Sequence[str] | None,
                  target: types.ModuleType | None = None) -> ModuleSpec | None:
        if fullname != _MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(fullname)
        if spec is not None:
            self.loader, spec.loader = spec.loader, self
        return spec

    def create_module(self, spec: ModuleSpec) -> types.ModuleType | None:
        module: types.ModuleType | None = self.loader.create_module(spec)
        return module

    def exec_module(self, module: types.ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self.loader
        module.__loader__ = self.loader
        self.loader.exec_module(module)
        _replace_in(module)


_after_import = _AfterImport()


# ---------------------------------------------------------------------- functions


def resetting(original: Callable[[], None]) -> Callable[[], None]:
    """torch's own reset(), which forgets Stator's entries too."""

    @functools.wraps(original)
    def reset() -> None:
        original()
        api.reset()

    return reset


def saying_so(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """A function of torch that Stator does not implement; the first call warns."""
    said: list[bool] = []

    @functools.wraps(original)
    def call(*args: object, **kwargs: object) -> Any:
        if not said:
            said.append(True)
            warnings.warn(f"stator: torch._dynamo.{name} is about torch's own tracer and has no effect on Stator",
                          stacklevel=2)
        return original(*args, **kwargs)

    return call


@contextlib.contextmanager
def compiled_by_torch() -> Iterator[None]:
    """While torch.compile's own code compiles, which calls optimize() by its name in the module."""
    before, _by_torch.active = getattr(_by_torch, "active", False), True
    try:
        yield
    finally:
        _by_torch.active = before


def set_stance(stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: object = None) -> Any:
    """torch.compiler.set_stance; skip_guard_eval_unsafe asks to leave out checks that cost next to nothing here.

    Stator's first call under "aot_eager_then_compile" compiles nothing: it runs its original, which costs less.
    """
    stance = "eager_then_compile" if stance == "aot_eager_then_compile" else stance
    return stance_of(stance, force_backend=force_backend)


class Optimizer:
    """The result of optimize(): a decorator; as a context it says that it compiles nothing."""

    def __init__(self, decorate: Callable[[Any], Any]) -> None:
        self.decorate = decorate

    def __call__(self, fn: Callable[..., object]) -> Callable[..., object]:
        return self.decorate(fn)  # type: ignore[no-any-return]

    def __enter__(self) -> None:
        warnings.warn("stator: torch._dynamo.optimize() in a with statement has no effect on Stator; compile the "
                      "function that is called there", stacklevel=2)

    def __exit__(self, *exc_info: object) -> None:
        pass


def optimize(backend: Any = "inductor", *, nopython: bool = False, guard_export_fn: object = None,
             guard_fail_fn: object = None, guard_filter_fn: Any = None, disable: bool = False,
             dynamic: bool | None = None, error_on_graph_break: bool | None = None, recompile_limit: int | None = None,
             isolate_recompiles: bool = False, **others: object) -> Callable[[Any], Any]:
    """The decorator that torch.compile is made of there."""
    if getattr(_by_torch, "active", False):
        return _originals["optimize"](  # type: ignore[no-any-return]
            backend, nopython=nopython, disable=disable, dynamic=dynamic, guard_filter_fn=guard_filter_fn, **others)
    ignored = {"guard_export_fn": guard_export_fn, **others}
    for name, value in ignored.items():
        if value is not None:
            warnings.warn(f"stator: torch._dynamo.optimize({name}=...) has no effect on Stator", stacklevel=2)
    given = {"guard_filter_fn": guard_filter_fn, "guard_fail_fn": guard_fail_fn}
    options = {name: value for name, value in given.items() if value is not None}
    decorate: Callable[[Any], Any] = api.compile(
        fullgraph=nopython, dynamic=dynamic, backend=backend, options=options, disable=disable,
        recompile_limit=recompile_limit, isolate_recompiles=isolate_recompiles)
    if error_on_graph_break is None:
        return Optimizer(decorate)
    return Optimizer(lambda fn: region_of_errors(error_on_graph_break)(decorate(fn)))


def optimize_assert(backend: object, **others: Any) -> Callable[[Any], Any]:
    """optimize() without graph breaks."""
    return optimize(backend, nopython=True, **{name: value for name, value in others.items() if name == "dynamic"})


def run(fn: Callable[..., Any] | None = None) -> Any:
    """Make no new entry: a call that none accepts runs eagerly."""
    if fn is None:
        return run

    @functools.wraps(fn)
    def run_only(*args: object, **kwargs: object) -> Any:
        if marks.is_compiling():  # part of the function that is being captured
            return fn(*args, **kwargs)
        with stance_of("eager_on_recompile"):
            return fn(*args, **kwargs)

    return run_only


def explain(fn: Callable[..., Any], *args: object, **kwargs: object) -> Any:
    """torch's form, with the call's arguments at once too."""
    explained = api.explain(fn)
    return explained(*args, **kwargs) if args or kwargs else explained


def region_of_errors(error_on_graph_break: bool) -> marks.ErrorOnGraphBreak:
    """torch.compiler's error_on_graph_break: False allows what `fullgraph` allows, and no more."""
    require_bool("error_on_graph_break", error_on_graph_break)
    return marks.ErrorOnGraphBreak(error_on_graph_break or None)


def list_backends(exclude_tags: Sequence[str] | None = ("debug", "experimental")) -> list[str]:
    """Stator's names, without those that torch tags "debug" where these are excluded."""
    found = api.list_backends(exclude_tags=exclude_tags)
    return [name for name in found if not ("debug" in (exclude_tags or ()) and name in FOR_DEBUGGING)]


_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "optimize": optimize, "optimize_assert": optimize_assert, "run": run, "explain": explain, "set_stance": set_stance,
    "list_backends": list_backends, "error_on_graph_break": region_of_errors, "skip_frame": marks.skip_frame,
}
