"""The public function.   stator.propose(fn)(*args, **kwargs)  ->  Proposals

In: a callable, settings of compile(), and one call or several.  Out: proposals that were tried.  The modules that try
them are loaded by the first call.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from stator.errors import OptionTypeError
from stator.host.lazy_imports import load
from stator.settings import marks

if TYPE_CHECKING:
    from stator.remedies.proposals import Proposals

Arguments = tuple[object, ...] | tuple[tuple[object, ...], Mapping[str, object]]


def propose(fn: Callable[..., object], *, calls: Iterable[tuple[object, ...]] = (), **settings: object,
            ) -> Callable[..., Proposals]:
    """`propose(fn)(*args, **kwargs)` tries source changes for the breaks and recompiles of that call.

    `calls` has the positional arguments of further calls. Takes the keyword arguments of `compile`; trials run graphs
    as they are captured. The program and its state are the same afterwards.
    """
    if not callable(fn):
        raise OptionTypeError(f"stator.propose({fn!r}) is not accepted; use a callable")
    mark = marks.compiled_mark(fn)
    original = fn if mark is None else mark.original
    further = [tuple(each) for each in calls]

    def propose_for_call(*args: object, **kwargs: object) -> Proposals:
        search, recorded = load("stator.remedies.search"), load("stator.remedies.recorded_calls")
        every = [recorded.Call(args, kwargs), *(recorded.Call(each) for each in further)]
        found: Proposals = search.propose(original, every, settings)
        return found

    marks.disable(propose_for_call, recursive=True, reason="it is about compiling")
    return propose_for_call


marks.disable(propose, recursive=True, reason="it is about compiling")
