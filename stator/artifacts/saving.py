"""Save and load what was captured.   save(compiled, path)   load(path, model)   why_not_cached(compiled)

In: a compiled callable, or a file and the callable that it was made for.  Out: a signed file, or a compiled callable
that finds its entries in the file before it captures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from stator import events
from stator.artifacts.container import Container, Json
from stator.artifacts.entry_data import LeftOut, SiteWriter
from stator.artifacts.environment import first_difference, process_facts, settings_facts
from stator.artifacts.portable_values import ValueWriter
from stator.artifacts.refusal import Reason, Refused
from stator.artifacts.signing import read_signed, write_signed
from stator.artifacts.stored_site import StoredCall
from stator.capture.call_site import CallSite
from stator.capture.first_call import opened
from stator.errors import OptionTypeError
from stator.host.garbage_collection import collector_paused

ENTRIES = "entries.json"


def site_of(compiled: Any) -> CallSite:
    """The call site behind a compiled callable or module."""
    entry = compiled
    for name in ("_stator_entry", "_compiled_call_impl"):
        entry = getattr(entry, name, None) or entry
    site = opened(entry) if hasattr(entry, "_stator_site") else None
    if not isinstance(site, CallSite):
        raise OptionTypeError(f"{compiled!r} is not accepted; use the result of stator.compile")
    return site


def describe(site: CallSite) -> tuple[Container, list[LeftOut]]:
    """All entries of a compile() call, and those that cannot be stored."""
    written = SiteWriter(site)
    facts: dict[str, Json] = {"process": process_facts(), "settings": settings_facts(site.settings, written.values),
                              "name": site.name, "entries": written.entries}
    data = {"rows": written.values.rows, "call": written.data}
    blobs = {ENTRIES: json.dumps(data, separators=(",", ":")).encode("ascii"), **written.values.blobs}
    return Container(facts, blobs), written.left_out


def attach(site: CallSite, container: Container) -> str | None:
    """Let a site use the entries of a container; the reason where it cannot."""
    facts: Any = container.manifest
    why = first_difference(process_facts(), facts["process"])
    if why is None:
        why = first_difference(settings_facts(site.settings, ValueWriter(site.fn)), facts["settings"])
    if why is None:
        with collector_paused():
            data = json.loads(container.blobs[ENTRIES])
            StoredCall(site, data["rows"], data["call"], container.blobs)
    return why


def save(compiled: Callable[..., Any], path: str) -> int:
    """Write all entries of a compiled callable to a file; the number of entries.

    An entry that has no portable form is left out, with an event that names the first fact in the way.
    """
    site = site_of(compiled)
    container, left_out = describe(site)
    for each in left_out:
        events.emit(events.NotCached(each.site, each.why, *(each.where[:2] if each.where else (None, None))))
    write_signed(Path(path).absolute(), container)
    return int(container.manifest["entries"])  # type: ignore[arg-type]


def use_file(site: CallSite, path: str) -> None:
    """Let a site look for entries in a file before it captures."""
    place = Path(path).absolute()
    try:
        container = read_signed(place)
        if container is None:
            raise Refused(Reason.UNREADABLE, f"{path} does not exist")
    except Refused as refused:
        events.emit(events.ArtifactRefused(str(path), str(refused)))
        return
    why = attach(site, container)
    if why is not None:
        events.emit(events.NotCached(site.name, why))


def why_not_cached(compiled: Callable[..., Any]) -> str | None:
    """The first fact that keeps an entry of this callable from being stored or found, with the user's line."""
    site = site_of(compiled)
    if site.stored is not None and (why := site.stored.why()):
        return why
    left_out = describe(site)[1]
    return left_out[0].text() if left_out else None
