"""Derive a contract from calls.   f, [(x3,), (x5,)]  ->  varies=["x.size(0)"]

In: a callable and calls.  Out: the contract with every fact that differs between them and is read.  The calls are
captured by the backend "eager", and not run.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence

import torch

from stator import _core
from stator.capture import first_call
from stator.capture.call_site import CallSite
from stator.capture.callables import traceable
from stator.contracts.contract import Contract
from stator.contracts.facts import UserTerms, changes
from stator.contracts.miss_check import prepare
from stator.contracts.trial import captured_guards
from stator.errors import OptionTypeError, OptionValueError
from stator.guards.guard import Guard
from stator.settings import marks
from stator.settings.options import build_settings


def widened(fn: Callable[..., object], contract: Contract, calls: Iterable[object]) -> Contract:
    """The contract, and what these calls need beyond it."""
    given = [as_call(call) for call in calls]
    if not given:
        raise OptionValueError("stator.contract.from_calls needs at least one call")
    mark = marks.compiled_mark(fn)
    entry = first_call.make_entry(traceable(fn) if mark is None else mark.traced, build_settings(backend="eager"))
    site = first_call.opened(entry)
    known: list[Sequence[Guard]] = []
    for args, kwargs in given:
        bound = bind(site, entry, args, kwargs)
        named = UserTerms(site.fn, None, bound, contract.of_module)
        with torch._C.DisableTorchFunction():
            found = [changes(guards, bound, named) for guards in known]
        if any(not each for each in found):
            continue  # an entry accepts it
        nearest = min(found, key=len, default=[])
        contract = contract.with_facts([fact for change in nearest if not contract.allows(change.fact)
                                        for fact in change.to_add])
        guards = captured_guards(site, site, bound, functools.partial(prepare, contract, bound=bound))
        if isinstance(guards, str):
            raise OptionValueError(f"stator.contract.from_calls: {guards}")
        known.append(guards)
    return contract


def as_call(call: object) -> tuple[Sequence[object], Mapping[str, object]]:
    if not isinstance(call, tuple):
        raise OptionTypeError(f"a call {call!r} is not accepted; use a tuple of arguments, or a pair of such a tuple "
                              "and a dict")
    if len(call) == 2 and isinstance(call[0], tuple) and isinstance(call[1], dict):
        return call[0], call[1]
    return call, {}


def bind(site: CallSite, entry: _core.CompiledFunction, args: Sequence[object],
         kwargs: Mapping[str, object]) -> tuple[object, ...]:
    """The arguments of a call as the entry object hands them on."""
    signature = inspect.signature(site.fn, follow_wrapped=False)
    try:
        bound = signature.bind(*(entry.prefix_args or ()), *args, **kwargs)
    except TypeError as error:
        raise OptionTypeError(f"a call does not fit {site.name}: {error}") from None
    bound.apply_defaults()
    return tuple(bound.arguments[name] for name in site.fn.__code__.co_varnames[:len(signature.parameters)])
