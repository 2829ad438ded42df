"""The public functions.

In: the user's callables, modules and settings.  Out: compiled callables and modules that are used like the
originals. Arguments are checked here, at once; `stator.capture.miss`, which the first call loads, does the work.
"""

from __future__ import annotations

import functools
import inspect
import types
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

import torch

from stator import _core, report
from stator.backends.registry import check_settings, list_backends, register_backend
from stator.capture import first_call
from stator.capture.callables import dress, require_callable, set_recompiler, traceable
from stator.capture.compiled_module import CompiledModule
from stator.capture.first_call import tracer, with_tracer
from stator.errors import OptionTypeError, OptionValueError, describe_callable
from stator.host.lazy_imports import load as load_module
from stator.host.lazy_imports import take
from stator.host.printing import print
from stator.report import set_logs
from stator.report.explanation import Explanation
from stator.settings import marks
from stator.settings.marks import graph_break, is_compiling, skip_frame
from stator.settings.options import BackendFunction, Settings, build_settings, require_bool
from stator.settings.process_config import config
from stator.settings.stance import set_stance
from stator.shapes.named_dimensions import read_declarations

if TYPE_CHECKING:
    from stator.audit.search import Finding
    from stator.capture.call_site import CallSite

__all__ = ["CompiledModule", "allow_in_graph", "assume_constant_result", "bisect", "compile", "compile_in_place",
           "config", "disable", "error_on_graph_break", "explain", "graph_break", "is_compiled", "is_compiling",
           "list_backends", "load", "load_shape_profile", "print", "register_backend", "reset", "save", "set_logs",
           "set_stance", "shape_profile", "skip_frame", "substitute_in_graph", "why_not_cached"]

_SAVING = "stator.artifacts.entry_writer"
Model = TypeVar("Model")
Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def compile(model: Model, *, fullgraph: bool = ..., dynamic: bool | None = ...,
            backend: str | BackendFunction = ..., mode: str | None = ...,
            options: Mapping[str, object] | None = ..., disable: bool = ...,
            recompile_limit: int | None = ..., isolate_recompiles: bool = ...,
            name: str | None = ..., shapes_spec: object = ...) -> Model: ...


@overload
def compile(model: None = None, *, fullgraph: bool = ..., dynamic: bool | None = ...,
            backend: str | BackendFunction = ..., mode: str | None = ...,
            options: Mapping[str, object] | None = ..., disable: bool = ...,
            recompile_limit: int | None = ..., isolate_recompiles: bool = ...,
            name: str | None = ..., shapes_spec: object = ...) -> Callable[[Model], Model]: ...


def compile(model: object = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | BackendFunction = "inductor", mode: str | None = None,
            options: Mapping[str, object] | None = None, disable: bool = False,
            recompile_limit: int | None = None, isolate_recompiles: bool = False, name: str | None = None,
            shapes_spec: object = None) -> Any:
    """Compile a function, method, callable object, class, partial or nn.Module.

    Without `model`, returns the decorator with these settings. A module gives a `CompiledModule`. A class is
    changed in place: calls of its instances are compiled, and the class itself is returned. `docs/api.md`
    describes every argument.
    """
    limit = config.recompile_limit if recompile_limit is None else recompile_limit
    settings = build_settings(fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
                              recompile_limit=limit, isolate_recompiles=isolate_recompiles, name=name)
    require_bool("disable", disable)
    check_settings(settings)
    read_declarations(settings.shapes)  # refuses what is not understood, before the first call
    if shapes_spec is not None:
        settings = load_module("stator.shapes.torch_shapes").with_shapes_spec(settings, shapes_spec)
    decorate = functools.partial(_compile, settings=settings, disable=disable)
    return decorate if model is None else decorate(model)


def _compile(model: Any, settings: Settings, disable: bool) -> Any:
    if isinstance(model, (staticmethod, classmethod)):
        return type(model)(_compile(model.__func__, settings, disable))
    require_callable(model, "stator.compile")
    if disable:
        return model
    if type(model) is CompiledModule:
        model = model._orig_mod
    elif (mark := marks.compiled_mark(model)) is not None and not isinstance(model, types.MethodType):
        model = mark.original
    if isinstance(model, type):
        return _compile_class(model, settings)
    traced = traceable(model)
    entry = make_entry(traced, settings)
    if not isinstance(model, torch.nn.Module):
        return dress(model, traced, entry, settings)
    compiled = CompiledModule(model, entry, settings)
    marks.compiled(compiled, marks.Compiled(model, traced, settings))
    return compiled


def make_entry(traced: Any, settings: Settings) -> Any:
    """The compiled form; in audit mode, one call in n is also made eagerly."""
    entry = first_call.make_entry(traced, settings)
    if config.verify_correctness and not settings.audit:
        settings = replace(settings, audit=1)
    if not settings.audit:
        return entry
    first_call.opened(entry)
    return load_module("stator.audit").audited(entry, traced, settings)


def _compile_class(cls: type, settings: Settings) -> type:
    # nn.Module.__call__ goes through this name, and must stay what it is for hooks and in-place compilation.
    is_module = issubclass(cls, torch.nn.Module) and cls.__call__ is torch.nn.Module.__call__
    attribute = "_call_impl" if is_module else "__call__"
    call = inspect.getattr_static(cls, attribute, None)
    if (mark := marks.compiled_mark(call)) is not None:
        call = mark.original
    if not isinstance(call, types.FunctionType):
        raise OptionTypeError(f"stator.compile({describe_callable(cls)}) is not accepted: compiling a class compiles "
                              "the calls of its instances, and it has no __call__ written in Python")
    setattr(cls, attribute, dress(call, call, make_entry(call, settings), settings))
    return cls


set_recompiler(functools.partial(_compile, disable=False))


def compile_in_place(module: torch.nn.Module, **settings: Any) -> None:
    """Compile the calls of this very module, which keeps its type and identity, as `nn.Module.compile` does.

    Takes the keyword arguments of `compile`; `disable=True` takes the compilation back. Copies and pickles of
    the module are not compiled.
    """
    if not isinstance(module, torch.nn.Module):
        raise OptionTypeError(f"stator.compile_in_place({module!r}) is not accepted; use an nn.Module")
    target = module._orig_mod if type(module) is CompiledModule else module
    if settings.get("disable") is True:
        compile(target, **settings)
        target._compiled_call_impl = None
    else:
        target._compiled_call_impl = compile(target._call_impl, **settings)


def is_compiled(obj: object) -> bool:
    """Whether a call of `obj` runs compiled code: made by `compile`, or a module compiled in place."""
    places = [obj]
    if isinstance(obj, torch.nn.Module):
        places += [obj._compiled_call_impl, inspect.getattr_static(type(obj), "_call_impl")]
    else:
        places.append(inspect.getattr_static(type(obj), "__call__", None))
    return any(marks.compiled_mark(place) is not None for place in places)


def entry_of(compiled: object) -> _core.CompiledFunction:
    entry: object = compiled._compiled_call_impl if isinstance(compiled, torch.nn.Module) \
        and type(compiled) is not CompiledModule else compiled
    entry = getattr(entry, "_stator_entry", entry)
    if not hasattr(entry, "_stator_site"):
        raise OptionTypeError(f"{compiled!r} is not accepted; use the result of stator.compile")
    return cast(_core.CompiledFunction, entry)


def site_of(compiled: object) -> CallSite:
    """The call site behind a compiled callable or module, made if it was not called yet."""
    return first_call.opened(entry_of(compiled))


def save(compiled: Callable[..., Any], path: str) -> int:
    """Write what was captured of a compiled callable to a file; the number of entries in it.

    A capture that no other process could use is left out, with a `NotCached` event; `why_not_cached` names its reason.
    """
    return int(load_module(_SAVING).save(site_of(compiled), path))


def load(path: str, model: Model, **settings: Any) -> Model:
    """Compile a function or module as `compile` does; it uses the captures of a file where their guards accept a call.

    A file that may not be trusted, or does not fit this process, is left aside with an event; calls are captured then.
    """
    compiled = compile(model, **settings)
    load_module("stator.artifacts.entry_files").use_file(entry_of(compiled)._stator_site, path)
    return compiled


def why_not_cached(compiled: Callable[..., Any]) -> str | None:
    """The first fact that keeps a capture from being stored, or a stored one from being used; None: nothing does."""
    why = load_module(_SAVING).why_not_cached(site_of(compiled))
    return None if why is None else str(why)


def reset() -> None:
    """Forget everything that was captured; compiled callables stay usable and capture again."""
    if first_call.has_entries():
        tracer().reset()


def shape_profile() -> str:
    """Export the changing sizes that every place has met, as JSON."""
    return str(tracer().shape_profile())


def load_shape_profile(text: str) -> None:
    """Start from what another process has learned: places that exist, and those that are made later."""
    tracer().load_shape_profile(text)


def _checked(settings: Mapping[str, Any]) -> Settings:
    checked = build_settings(**settings)
    check_settings(checked)
    return checked


def explain(fn: Callable[..., Any], **settings: object) -> Callable[..., Any]:
    """`explain(fn)(*args, **kwargs)` captures that call and returns what was captured and what was not.

    Takes the keyword arguments of `compile`; the backend is "eager" unless one is given.
    """
    require_callable(fn, "stator.explain")
    checked = _checked({key: value for key, value in {"backend": "eager", **settings}.items() if key != "disable"})
    mark = marks.compiled_mark(fn)
    traced = mark.traced if mark is not None else traceable(fn)

    def explain_call(*args: object, **kwargs: object) -> Explanation:
        probe = report.BreakProbe()
        value, log, installed = tracer().explained_call(traced, checked, args, kwargs, probe)
        guards = [guard for tag in installed for guard in tag.guards]
        residuals = [tag.residual.source for tag in installed if tag.residual is not None]
        return report.build_explanation(log, guards, residuals, probe.costs(), value)

    return about_compiling(explain_call)


def bisect(fn: Callable[..., Any], directory: str | None = "stator_repro", **settings: object) -> Callable[..., Any]:
    """`bisect(fn)(*args, **kwargs)` finds the smallest graph, operation, guard or effect that makes compiled and eager
    differ on that call, and writes a script of its own that shows it; None where they do not differ.

    `fn` is a compiled callable, whose entries are looked at as they are, or one to be compiled with the keyword
    arguments of `compile`. The program's state is the same afterwards. With `directory=None` no script is written.
    """
    require_callable(fn, "stator.bisect")
    mark = marks.compiled_mark(fn)
    traced, known = mark.traced if mark is not None else traceable(fn), None if settings else mark
    checked = _checked(settings) if known is None else known.settings
    site = None if known is None else getattr(getattr(fn, "_stator_entry", fn), "_stator_site", None)
    entry = None if site is None else site.compiled

    def bisect_call(*args: object, **kwargs: object) -> Finding | None:
        return load_module("stator.audit").bisect_call(entry, traced, checked, args, kwargs, directory)

    return about_compiling(bisect_call)


class DisabledRegion(marks.DisabledContext):
    """Result of `disable()`: a decorator, and a context in which this thread captures nothing."""

    def __init__(self, recursive: bool, reason: str | None) -> None:
        self.recursive, self.reason = recursive, reason

    def __call__(self, fn: Any) -> Any:
        return _disable(fn, self.recursive, self.reason)


def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Keep a function out of graphs: a call, a decorator with or without arguments, or a context.

    With `recursive`, what the function calls is left alone too; without, only the function itself. Functions
    are wrapped, modules and classes are marked in place. `reason` is shown when a graph breaks there.
    """
    require_bool("recursive", recursive)
    if reason is not None and not isinstance(reason, str):
        raise OptionTypeError(f"reason={reason!r} is not accepted; use None or a str")
    return DisabledRegion(recursive, reason) if fn is None else _disable(fn, recursive, reason)


def _disable(fn: Callable[..., Any], recursive: bool, reason: str | None) -> Any:
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(_disable(fn.__func__, recursive, reason))
    require_callable(fn, "stator.disable")
    if (mark := marks.compiled_mark(fn)) is not None:
        fn = mark.original
    if isinstance(fn, torch.nn.Module):
        marks.disable(fn, recursive, reason)
        fn._compiled_call_impl = _disable(fn._call_impl, True, reason) if recursive else None
        return fn
    if isinstance(fn, type):
        for name in ("__new__", "__init__", "__call__"):  # what making and calling an instance enters
            member = fn.__dict__.get(name)
            member = member.__func__ if isinstance(member, staticmethod) else member
            if isinstance(member, types.FunctionType):
                marks.disable(member, recursive, reason)
    if isinstance(fn, type) or not recursive:
        marks.disable(fn, recursive, reason)
        return fn

    @functools.wraps(fn)
    def run_disabled(*args: object, **kwargs: object) -> Any:
        with marks.DisabledBlock():
            return fn(*args, **kwargs)

    marks.disable(run_disabled, recursive, reason)
    return run_disabled


def error_on_graph_break(value: bool = True) -> marks.ErrorOnGraphBreak:
    """A context and a decorator: graph breaks in it are errors (True) or allowed (False), whatever `fullgraph` is.

    Regions nest, and reach the code that they call, captured or not. They decide while code is captured: entries
    that exist already run as they are.
    """
    require_bool("value", value)
    return marks.ErrorOnGraphBreak(value)


def allow_in_graph(fn: Callable[..., Any]) -> Callable[..., Any]:
    """Put calls of `fn` into the graph as they are, without looking inside; a list of functions is accepted.

    `fn` must take and return what a graph can hold, and depend on nothing else: nothing in it is guarded.
    """
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    require_callable(fn, "stator.allow_in_graph")
    if marks.is_disabled(fn):
        raise OptionValueError(f"{describe_callable(fn)} is marked with stator.disable and cannot be in a graph")
    marks.allow_in_graph(fn)
    return fn


def assume_constant_result(fn: Function) -> Function:
    """Call `fn` once while tracing and take its result for a constant; nothing in it is guarded."""
    require_callable(fn, "stator.assume_constant_result")
    marks.assume_constant_result(fn)
    return fn


def substitute_in_graph(original: Callable[..., Any], *, can_constant_fold_through: bool = False,
                        skip_signature_check: bool = False) -> Callable[[Function], Function]:
    """A decorator: capture the decorated Python function wherever the program calls `original`.

    The two must take the same parameters. `can_constant_fold_through` says that with constant arguments the
    result is a constant.
    """
    require_callable(original, "stator.substitute_in_graph")
    if isinstance(original, type):
        raise OptionTypeError(f"stator.substitute_in_graph({describe_callable(original)}) is not accepted: a class "
                              "cannot be substituted; use a function")
    require_bool("can_constant_fold_through", can_constant_fold_through)
    require_bool("skip_signature_check", skip_signature_check)

    def decorate(replacement: Function) -> Function:
        if not isinstance(replacement, types.FunctionType):
            raise OptionTypeError(f"the substitute of {describe_callable(original)} is {replacement!r}; use a Python "
                                  "function")
        if not skip_signature_check:
            require_same_parameters(original, replacement)
        known = marks.substitute(original)
        if known is not None and known.replacement is not replacement:
            raise OptionValueError(f"{describe_callable(original)} already has the substitute "
                                   f"{describe_callable(known.replacement)}")
        marks.substitute_in_graph(original, marks.Substitute(replacement, can_constant_fold_through))
        return replacement

    return decorate


def require_same_parameters(original: Callable[..., Any], replacement: Callable[..., Any]) -> None:
    """Raise unless both can be called alike; `(*args, **kwargs)` and no signature fit everything."""
    try:
        wanted = inspect.signature(original)
    except ValueError:
        return  # most builtins do not say what they take
    given = inspect.signature(replacement)
    wanted_outline, given_outline = parameter_outline(wanted), parameter_outline(given)
    anything = parameter_outline(inspect.signature(lambda *args, **kwargs: None))
    if wanted_outline != given_outline and anything not in (wanted_outline, given_outline):
        raise OptionTypeError(f"the substitute {describe_callable(replacement)}{given} does not take the parameters of "
                              f"{describe_callable(original)}{wanted}; make them equal, or give "
                              "skip_signature_check=True")


def parameter_outline(signature: inspect.Signature) -> tuple[tuple[str, ...], frozenset[str], dict[str, Any]]:
    """Positional names in order, keyword-only names, defaults."""
    kinds, parameters = inspect.Parameter, signature.parameters.values()
    positional = (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)
    return (tuple(each.name for each in parameters if each.kind in positional),
            frozenset(each.name for each in parameters if each.kind is kinds.KEYWORD_ONLY),
            {each.name: each.default for each in parameters if each.default is not kinds.empty})


def makes_compiled(function: Callable[..., Any]) -> None:
    """Register a function that compiles others: captured code calls it for real."""
    with_tracer(lambda: load_module("stator.library.torch.compiler_functions").makes_compiled(function))


take()
makes_compiled(compile)
report.follow_environment()


def about_compiling(fn: Function) -> Function:
    """Disable a function that calls the compiler: it is no part of a captured program."""
    marks.disable(fn, recursive=True, reason="it is about compiling")
    return fn


for _own in (compile, compile_in_place, load, save, why_not_cached, reset, explain, bisect, _disable, allow_in_graph,
             assume_constant_result, substitute_in_graph, register_backend, list_backends, set_logs, shape_profile,
             load_shape_profile, torch.compile):
    about_compiling(_own)
