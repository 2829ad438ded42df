"""Save what was captured.   save(compiled, path)   why_not_cached(compiled)

In: a call site.  Out: a signed file with its entries; the first fact that keeps an entry from being stored or found.
"""

from __future__ import annotations

import json
from pathlib import Path

from stator import events
from stator.artifacts.container import Container, Json
from stator.artifacts.entry_files import ENTRIES, unused
from stator.artifacts.environment import process_facts, settings_facts
from stator.artifacts.signing import write_signed
from stator.artifacts.site_reader import Site
from stator.artifacts.site_writer import LeftOut, SiteWriter
from stator.artifacts.value_writer import NotPortable
from stator.guards.guard import is_constant

__all__ = ["describe", "report_left_out", "save", "why_not_cached"]

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


def save(site: Site, path: str) -> int:
    """Write all entries of a site to a file; the number of entries.

    An entry that has no portable form is left out, with an event that names the first fact in the way.
    """
    try:
        container, left_out = describe(site)
    except NotPortable as why:  # a setting
        report_left_out([LeftOut(site.name, str(why), why.where)])
        return 0
    report_left_out(left_out)
    write_signed(Path(path).absolute(), container)
    return int(container.manifest["entries"])  # type: ignore[arg-type]


def report_left_out(left_out: list[LeftOut]) -> None:
    for each in left_out:
        events.emit(events.NotCached(each.site, each.why, *(each.where[:2] if each.where else (None, None))))


def why_not_cached(site: Site) -> str | None:
    """The first fact that keeps an entry of a site from being stored or found, with the user's line."""
    if site.stored is not None and (why := site.stored.why()):
        return why
    if site.compiled in unused:
        return unused[site.compiled]
    try:
        left_out = describe(site)[1]
    except NotPortable as why:
        return f"{site.name}: {why}"
    return left_out[0].text() if left_out else None
