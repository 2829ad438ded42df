"""`stator.contract`: declare a contract, or derive one from calls.

In: a callable, entries of `varies` and `fixed`, or calls that must not be compiled again.  Out: the compiled callable.
The modules that compare misses are loaded with the tracer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, TypeVar

import torch

from stator import api
from stator.contracts.patterns import PRESETS, Fact, Pattern, read_patterns
from stator.errors import OptionValueError, describe_callable
from stator.host.lazy_imports import load
from stator.settings import marks

Fn = TypeVar("Fn", bound=Callable[..., Any])


@dataclass(frozen=True)
class Contract:
    """Facts that may vary, facts that are fixed, and the reaction to another change."""

    varies: tuple[Pattern, ...]
    fixed: tuple[Pattern, ...]
    warns: bool
    of_module: bool

    def allows(self, fact: Fact) -> bool:
        return any(pattern.covers(fact) for pattern in self.varies)

    def fixes(self, fact: Fact) -> bool:
        return any(pattern.covers(fact) for pattern in self.fixed)

    @property
    def entries(self) -> tuple[str, ...]:
        """`varies` as the user wrote it."""
        return tuple(dict.fromkeys(pattern.shown for pattern in self.varies))

    def with_facts(self, facts: Iterable[Fact]) -> Contract:
        return replace(self, varies=(*self.varies, *(Pattern(fact.text, fact.text) for fact in facts)))


class Contracts:
    """Type of `stator.contract`."""

    presets: Mapping[str, tuple[str, ...]] = MappingProxyType(PRESETS)

    def __call__(self, fn: Fn, varies: Iterable[str] = (), fixed: Iterable[str] = (), *, on_violation: str = "raise",
                 **settings: object) -> Fn:
        """Compile a callable whose calls are compiled again only for what `varies`.

        Sizes and numbers in `varies` are symbols from the first call on.  A call that would be compiled for another
        fact raises `ContractViolation`, or warns with `on_violation="warn"`.  `settings` are those of `compile`; a
        callable that is compiled already keeps its own.
        """
        if on_violation not in ("raise", "warn"):
            raise OptionValueError(f"on_violation={on_violation!r} is not accepted; use 'raise' or 'warn'")
        of_module = isinstance(fn, torch.nn.Module)
        contract = Contract(read_patterns("varies", varies, of_module), read_patterns("fixed", fixed, of_module),
                            on_violation == "warn", of_module)
        check_names(fn, contract)
        if api.is_compiled(fn):
            if settings:
                raise OptionValueError(f"stator.contract({describe_callable(fn)}, {next(iter(settings))}=...) is not "
                                       "accepted: it is compiled already; give its settings to stator.compile")
            compiled = fn
        else:
            if contract.varies and settings.get("dynamic") is False:
                raise OptionValueError("dynamic=False is not accepted beside varies=: every size is a constant there")
            compile_any: Callable[..., Fn] = api.compile
            compiled = compile_any(fn, **settings)
        load("stator.contracts.miss_check").Governor(contract, api.site_of(compiled))
        return compiled

    def from_calls(self, fn: Fn, calls: Iterable[object], fixed: Iterable[str] = (), *, on_violation: str = "raise",
                   **settings: object) -> Fn:
        """Declare the contract that these calls keep: a fact that differs between them, and is read, varies.

        A call is a tuple of arguments, or a pair of such a tuple and a dict of keyword arguments.  The calls are
        captured, and not run.
        """
        return self(fn, self.varying(fn, calls), fixed, on_violation=on_violation, **settings)

    def varying(self, fn: Callable[..., object], calls: Iterable[object]) -> list[str]:
        """Entries of `varies` under which these calls are compiled as seldom as possible."""
        start = Contract((), (), False, isinstance(fn, torch.nn.Module))
        found: Contract = load("stator.contracts.recorded_calls").widened(fn, start, calls)
        return list(found.entries)


def check_names(fn: Callable[..., Any], contract: Contract) -> None:
    """Refuse entries about values that the callable does not have."""
    for pattern in contract.varies:
        if any(pattern.text == other.text and not pattern.glob for other in contract.fixed):
            raise OptionValueError(f"{pattern.shown!r} is in varies and in fixed")
    mark = marks.compiled_mark(fn)
    original = mark.original if mark is not None else fn
    target = original.forward if isinstance(original, torch.nn.Module) else original
    try:
        parameters = set(inspect.signature(target).parameters)
    except (TypeError, ValueError):
        return
    code = getattr(inspect.unwrap(getattr(target, "__func__", target)), "__code__", None)
    known = {*parameters, "self", "torch", *(code.co_names + code.co_varnames + code.co_freevars if code else ())}
    for pattern in (*contract.varies, *contract.fixed):
        names = pattern.names()
        if names and not names & known:
            raise OptionValueError(f"{pattern.shown!r} names nothing of {getattr(target, '__qualname__', target)}; its "
                                   f"parameters are {', '.join(sorted(parameters))}")


contract = Contracts()
api.about_compiling(Contracts.__call__)
api.about_compiling(Contracts.varying)
