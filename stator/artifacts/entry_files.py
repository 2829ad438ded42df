"""Save and load what was captured.   save(compiled, path)   load(path, model)   why_not_cached(compiled)

In: a compiled callable, or a file and the callable that it was made for.  Out: a signed file, or a compiled callable
that finds its entries in the file before it captures.
"""

from __future__ import annotations

import json
import weakref
from pathlib import Path

from stator import events
from stator.artifacts.container import MAGIC, Container, Json
from stator.artifacts.environment import first_difference, process_facts, settings_facts
from stator.artifacts.raw_steps import Data, Thing
from stator.artifacts.refusal import Reason, Refused
from stator.artifacts.signing import read_signed, unsigned, write_signed
from stator.artifacts.site_reader import StoredCall
from stator.artifacts.site_writer import LeftOut, Site, SiteWriter
from stator.artifacts.value_writer import ValueWriter
from stator.guards.guard import is_constant
from stator.host.garbage_collection import collector_paused

__all__ = ["attach", "container_in", "describe", "save", "use_file", "why_not_cached"]

ENTRIES = "entries.json"
_unused: weakref.WeakKeyDictionary[Thing, str] = weakref.WeakKeyDictionary()  # why a site does not use a file, by entry
_ARGUMENTS = ("backend", "dynamic", "fullgraph", "mode")  # of compile(), for who loads a file without its function


def describe(site: Site, new: bool = False) -> tuple[Container, list[LeftOut]]:
    """All entries of a compile() call, and those that cannot be stored; `new`: without those that were loaded."""
    written = SiteWriter(site, new)
    facts: dict[str, Json] = {"process": process_facts(), "settings": settings_facts(site.settings, written.values),
                              "function": [site.fn.__module__, site.fn.__qualname__], "name": site.name,
                              "compile": {name: getattr(site.settings, name) for name in _ARGUMENTS
                                          if is_constant(getattr(site.settings, name))}, "entries": written.entries}
    data = {"rows": written.values.rows, "call": written.data}
    blobs = {ENTRIES: json.dumps(data, separators=(",", ":")).encode("ascii"), **written.values.blobs}
    return Container(facts, blobs), written.left_out


def attach(site: Site, container: Container) -> str | None:
    """Let a site use the entries of a container; the reason where it cannot."""
    facts: Data = container.manifest
    why = first_difference(process_facts(), facts["process"])
    if why is None:
        why = first_difference(settings_facts(site.settings, ValueWriter(site.fn)), facts["settings"])
    if why is None:
        with collector_paused():
            data = json.loads(container.blobs[ENTRIES])
            StoredCall(site, data["rows"], data["call"], container.blobs)
    return why


def container_in(data: bytes) -> Container | None:
    """The container in the bytes of a file that `save` wrote; None where they are something else."""
    return unsigned(data) if data.startswith(MAGIC) else None


def save(site: Site, path: str) -> int:
    """Write all entries of a site to a file; the number of entries.

    An entry that has no portable form is left out, with an event that names the first fact in the way.
    """
    container, left_out = describe(site)
    for each in left_out:
        events.emit(events.NotCached(each.site, each.why, *(each.where[:2] if each.where else (None, None))))
    write_signed(Path(path).absolute(), container)
    return int(container.manifest["entries"])  # type: ignore[arg-type]


def use_file(site: Site, path: str) -> None:
    """Let a site look for entries in a file before it captures."""
    try:
        container = read_signed(Path(path).absolute())
        if container is None:
            raise Refused(Reason.UNREADABLE, f"{path} does not exist")
    except Refused as refused:
        events.emit(events.ArtifactRefused(str(path), str(refused)))
        _unused[site.compiled] = str(refused)
    else:
        attach_or_say(site, container)


def attach_or_say(site: Site, container: Container) -> None:
    """Attach a container; where it does not fit, an event and `why_not_cached` give the reason."""
    why = attach(site, container)
    if why is not None:
        events.emit(events.NotCached(site.name, why))
        _unused[site.compiled] = why


def why_not_cached(site: Site) -> str | None:
    """The first fact that keeps an entry of a site from being stored or found, with the user's line."""
    if site.stored is not None and (why := site.stored.why()):
        return why
    if site.compiled in _unused:
        return _unused[site.compiled]
    left_out = describe(site)[1]
    return left_out[0].text() if left_out else None
