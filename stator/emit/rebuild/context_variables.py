"""Context variables that the program set.

In: the sets that the trace noted.  Out: statements that make them in the context of the call.
"""

from __future__ import annotations

import contextvars

from stator.breaks import Break
from stator.emit.services import Rebuilder


def write_context_sets(build: Rebuilder) -> None:
    """Every set() that was not reset, in order: the tokens that they give are those of the program."""
    for each in build.vm.contexts.sets:
        if id(each.token) not in build.memo:
            value = build.value(each.value)
            if id(each.token) not in build.memo:  # the value may hold a token
                build.variable(each.token, "token", f"{build.outside(each.source)}.set({value})")


def rebuild_token(build: Rebuilder, value: object, cls: type) -> str | None:
    """The name of a token that the program got from set(); None for other values."""
    if cls is not contextvars.Token:
        return None
    write_context_sets(build)
    if id(value) not in build.memo:
        raise Break("SB005", "a token of a context variable that was used inside the captured code")
    return build.memo[id(value)]
