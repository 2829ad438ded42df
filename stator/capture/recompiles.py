"""Why a call missed, and when to stop compiling.

In: a site and a call that none of its entries accepted.  Out: the failed guard of the nearest entry with the old and
the new value, as an event; and, at the limit, one warning with the function, which runs eagerly from then on.
"""

from __future__ import annotations

from typing import Any

from stator import errors, events
from stator.breaks import REGISTRY
from stator.capture.call_site import CallSite
from stator.capture.first_call import Installed
from stator.errors import RecompileForbidden, RecompileLimit, Unsupported
from stator.guards.guard import Kind
from stator.guards.guard_semantics import explain as explain_guard
from stator.guards.guard_semantics import failing
from stator.host import shown_names
from stator.settings import stance
from stator.settings.options import FailedGuard
from stator.settings.process_config import config

LOOKED_AT = 1000  # guards of an entry behind the one that failed


def nearest_miss(site: CallSite, bound: tuple[Any, ...]) -> events.Recompile | None:
    """Why no entry fits: the one with the fewest failed guards first."""
    entries = zip(site.compiled.entries(), site.compiled.last_failures(), strict=False)
    found = [explain_miss(tag, failed, bound, site.user_line(bound), site.point) for (_, _, tag), failed in entries
             if tag is not None and failed is not None and failed >= 0]
    if not found:
        return None
    nearest, *others = sorted(found, key=lambda each: each.more)
    reason = f"{nearest.guard_text}; now {nearest.new}" if nearest.new else nearest.guard_text
    return events.Recompile(site.name, reason, nearest.guard_text, nearest.old, nearest.new, nearest.filename,
                            nearest.line, shown_names.names.arguments(site.fn, site.point, bound),
                            tuple(others))


def explain_miss(tag: Installed, failed: int, bound: tuple[Any, ...], begins: tuple[str, int],
                 point: object) -> events.Miss:
    """The guard of one entry that failed, the shortest way to its value where others fail with it."""
    guards = tag.program.guards
    behind = range(failed + 1, min(len(tag.program.checks), failed + LOOKED_AT))
    more = failing([guards[number] for number in behind if guards[number].kind is not Kind.GLOBAL_STATE], bound)
    guard = guards[failed]
    why = explain_guard(guard, bound)
    if why is not None and why.found.endswith(" is gone"):  # a consequence of one that can
        readable = [(each, reason) for each in more if (reason := explain_guard(each, bound)) is not None
                    and not reason.found.endswith(" is gone")]
        guard, why = min(readable, key=lambda pair: pair[0].source.depth, default=(guard, why))
    filename, line = shown_names.names.line(guard, tag.guards, begins, point)
    old, new = ("", "") if why is None else (why.expected, why.found)  # a reader may answer otherwise by now
    return events.Miss(guard.text() if why is None else why.text, old, new, filename, line,
                       len({each.source for each in more} - {guard.source}))


def report_recompile(site: CallSite, bound: tuple[Any, ...]) -> None:
    """Emit why no entry fits, and call the user's `guard_fail_fn`."""
    call = site.settings.guard_fail_fn
    if (call is not None or events.listening()) and (found := nearest_miss(site, bound)) is not None:
        events.emit(found)
        if call is not None:
            call(FailedGuard(found.reason, getattr(site.fn, "__code__", None)))


def gives_up(site: CallSite, bound: tuple[Any, ...], installed: list[Any]) -> bool:
    """At the limit: whether one more entry may be made, whose instructions break at the values that keep changing."""
    limit = site.settings.recompile_limit
    if site.settings.fullgraph or len(installed) >= 2 * limit:
        return False
    found = [site.shapes.memory.give_up(tag.guards, bound) for _, _, tag in installed if tag is not None]
    site.eager.gave_up = site.eager.gave_up or any(found)
    if any(found) and not site.eager.limit_told:
        tell_limit(site, bound, "From now on what changes is no longer baked in: the instructions that look at it "
                                "run natively, between compiled graphs.")
    return site.eager.gave_up


def tell_limit(site: CallSite, bound: tuple[Any, ...], consequence: str, accumulated: bool = False) -> None:
    site.eager.limit_told = True
    limit = config.accumulated_recompile_limit if accumulated else site.settings.recompile_limit
    reason = shown_names.names.missed(nearest_miss(site, bound))
    events.emit(events.CacheLimit(site.name, limit))
    where = " in several compile() calls (accumulated_recompile_limit)" if accumulated else ""
    errors.warn(f"stator: recompile limit: {site.title} was compiled {limit} times{where} and none of the entries "
                f"fits this call{reason}. {consequence} Remedy: {REGISTRY['SB021'].remedy} "
                "(python -m stator code SB021).")


def forbid_recompile(site: CallSite, bound: tuple[Any, ...]) -> None:
    """stator.config.error_on_recompile: a second entry is an error."""
    raise RecompileForbidden(f"no compiled entry of {site.title} fits this call, and stator.config.error_on_recompile "
                             f"is True{shown_names.names.missed(nearest_miss(site, bound))}")


def over_limit(site: CallSite, bound: tuple[Any, ...], accumulated: bool = False) -> None:
    """No more entries: an error under fullgraph, else one warning for the site; the call runs eagerly."""
    limit = config.accumulated_recompile_limit if accumulated else site.settings.recompile_limit
    reason = shown_names.names.missed(nearest := nearest_miss(site, bound))
    if config.fail_on_recompile_limit_hit:
        which = f"all that was compiled of it together, {limit} times (accumulated_recompile_limit)" if accumulated \
            else f"{limit} times (recompile_limit)"
        raise RecompileLimit(f"{site.title} was compiled as often as it may be, {which}, and "
                             f"stator.config.fail_on_recompile_limit_hit is True{reason}")
    if site.settings.fullgraph:
        row = REGISTRY["SB021"]
        raise Unsupported(row.code, row.title, f"{site.title} was compiled {limit} times{reason}", row.remedy,
                          nearest.filename if nearest else None, nearest.line if nearest else None, ())
    if not site.eager.told:
        site.eager.told = True
        rest = "the rest of the call after the break there" if site.point is not None else "it"
        tell_limit(site, bound, f"From now on {rest} runs eagerly wherever no entry fits.", accumulated)
    events.emit(events.EagerFallback(site.name, f"{'accumulated_' if accumulated else ''}recompile_limit {limit}"))


def may_compile(site: CallSite, bound: tuple[Any, ...]) -> bool:
    """Whether the stance lets this miss be compiled; under "fail_on_recompile" it raises instead."""
    now = stance.current()
    if now == "default":
        return True
    if now == "fail_on_recompile":
        reason = shown_names.names.missed(nearest_miss(site, bound)) or ": it was never compiled"
        raise RecompileForbidden(f"no compiled entry of {site.title} fits this call, and the stance is "
                                 f"'fail_on_recompile'{reason}")
    if now == "eager_then_compile":
        site.eager.calls += 1
        if site.eager.calls > 1 or site.compiled.entries():
            return True
    events.emit(events.EagerFallback(site.name, f"the stance is {now!r}"))
    return False
