"""Callables of every kind, as the one kind that `capture` takes.

In: any callable.  Out: a Python function or a bound method that does the same when it is called; around the
compiled entry, an object that binds, prints and inspects like the original.
"""

from __future__ import annotations

import copyreg
import functools
import inspect
import types
from collections.abc import Callable
from typing import Any, TypeGuard

from stator import _core
from stator.errors import OptionTypeError
from stator.settings import marks
from stator.settings.options import Settings


def traceable(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The Python function or bound method that does what calling `fn` does."""
    if isinstance(fn, types.FunctionType):
        return fn
    if isinstance(fn, types.MethodType):
        mark = marks.compiled_mark(fn)
        function = fn.__func__ if mark is None else mark.traced
        return types.MethodType(function, fn.__self__) if is_function(function) else forward_call(fn)
    if type(fn) is functools.partial:
        return apply_partial(fn)
    call = inspect.getattr_static(type(fn), "__call__", None)
    mark = marks.compiled_mark(call)
    if mark is not None:
        call = mark.traced
    return types.MethodType(call, fn) if is_function(call) else forward_call(fn)


def is_function(value: object) -> TypeGuard[types.FunctionType]:
    """Whether it has Python bytecode; what is neither this nor a method is called from a function."""
    return isinstance(value, types.FunctionType)


def forward_call(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls `fn`: for builtins, and for callables whose `__call__` is not plain Python."""

    def call(*args: object, **kwargs: object) -> Any:
        return fn(*args, **kwargs)

    return call


def apply_partial(partial: functools.partial[Any]) -> Callable[..., Any]:
    """A function that does what the partial does; its parts are closure variables, which guards can name."""
    function = partial.func
    bound = partial.args
    defaults = partial.keywords

    def call(*args: object, **kwargs: object) -> Any:
        return function(*bound, *args, **{**defaults, **kwargs})

    return call


class CompiledCallable:
    """The compiled form of a callable that is not a plain function; it does not bind as a method, like the original."""

    def __init__(self, original: Callable[..., Any], entry: Callable[..., Any]) -> None:
        self._stator_entry = entry
        self.__wrapped__ = original
        call: object = type(original).__call__ if callable(original) else None
        # Of an object whose class has a Python `__call__`: the class may get another one, or the object another class.
        self._stator_method = call if is_function(call) or marks.compiled_mark(call) is not None else None

    def __call__(self, *args: object, **kwargs: object) -> Any:
        if self._stator_method is not None and type(self.__wrapped__).__call__ is not self._stator_method:
            self._follow_class()
        return self._stator_entry(*args, **kwargs)

    def _follow_class(self) -> None:
        """Compile the `__call__` that the object has now."""
        mark = marks.compiled_mark(self)
        assert mark is not None
        again = compile_again(self.__wrapped__, mark.settings)
        fresh = marks.compiled_mark(again)
        assert fresh is not None
        self._stator_entry, self._stator_method = again._stator_entry, again._stator_method
        marks.compiled(self, fresh)

    def __getattr__(self, name: str) -> Any:
        # Reached while unpickling too, when __wrapped__ does not exist yet.
        if name in ("__wrapped__", "_stator_entry", "_stator_method"):
            raise AttributeError(name)
        owner = self.__wrapped__ if name != "save" or hasattr(self.__wrapped__, name) else self._stator_entry
        return getattr(owner, name)

    def __reduce_ex__(self, protocol: object) -> tuple[Any, ...]:
        mark = marks.compiled_mark(self)
        assert mark is not None
        return compile_again, (self.__wrapped__, mark.settings)

    def __repr__(self) -> str:
        return f"<compiled {self.__wrapped__!r}>"


# Set by stator.api, the only place that can compile: (callable, settings) -> its compiled form.
_recompile: list[Callable[[Any, Settings], Any]] = []


def compile_again(original: Callable[..., Any], settings: Settings) -> Any:
    """The compiled form of a copied or unpickled callable: a bound method of a copied object is the copy's."""
    return _recompile[0](original, settings)


def set_recompiler(recompiler: Callable[[Any, Settings], Any]) -> None:
    """Set the function that compiles; called once, when `stator.api` is loaded."""
    _recompile[:] = [recompiler]


# As functions are copied and pickled: the copy is the function itself, the pickle its name.
copyreg.pickle(_core.CompiledFunction, lambda entry: str(entry.fn.__qualname__))  # type: ignore[arg-type]


def dress(original: Callable[..., Any], traced: Callable[..., Any], entry: Callable[..., Any],
          settings: Settings) -> Callable[..., Any]:
    """The public object of an entry: it looks and binds like `original`, and is known as compiled."""
    public = functools.update_wrapper(entry, original) if isinstance(original, types.FunctionType) \
        else CompiledCallable(original, entry)
    marks.compiled(public, marks.Compiled(original, traced, settings))
    return public


def require_callable(fn: object, api: str) -> None:
    if not callable(fn):
        raise OptionTypeError(f"{api}({fn!r}) is not accepted: {type(fn).__name__} is not callable; use a function, a "
                              "method, a class, a callable object or an nn.Module")
