"""Load what was captured.   load(path, model)

In: a file and the callable that it was made for.  Out: a compiled callable that finds its entries in the file before it
captures; nothing here imports the tracer.
"""

from __future__ import annotations

import json
import weakref
from pathlib import Path

from stator import events
from stator.artifacts.container import MAGIC, Container
from stator.artifacts.environment import first_difference, process_facts, settings_facts
from stator.artifacts.raw_steps import Data, Thing
from stator.artifacts.refusal import Reason, Refused
from stator.artifacts.signing import read_signed, unsigned
from stator.artifacts.site_reader import EarlySite, StoredCall
from stator.artifacts.value_writer import NotPortable, ValueWriter
from stator.host.garbage_collection import collector_paused

ENTRIES = "entries.json"
unused: weakref.WeakKeyDictionary[Thing, str] = weakref.WeakKeyDictionary()  # why a site does not use a file, by entry


def attach(site: EarlySite, container: Container) -> str | None:
    """Let a site use the entries of a container; the reason where it cannot."""
    facts: Data = container.manifest
    try:
        why = first_difference(process_facts(), facts["process"])
        if why is None:
            why = first_difference(settings_facts(site.settings, ValueWriter(site.fn)), facts["settings"])
        if why is None:
            with collector_paused():
                data = json.loads(container.blobs[ENTRIES])
                StoredCall(site, data["rows"], data["call"], container.blobs)
    except NotPortable as left_out:  # a setting
        return str(left_out)
    except (AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:  # signed, and of another form
        return f"its entries cannot be read: {type(error).__name__}: {error}"
    return why


def container_in(data: bytes) -> Container | None:
    """The container in the bytes of a file that `save` wrote; None where they are something else."""
    return unsigned(data) if data.startswith(MAGIC) else None


def use_file(site: EarlySite, path: str) -> None:
    """Let a site look for entries in a file before it captures."""
    try:
        container = read_signed(Path(path).absolute())
        if container is None:
            raise Refused(Reason.UNREADABLE, f"{path} does not exist")
    except Refused as refused:
        events.emit(events.ArtifactRefused(str(path), str(refused)))
        unused[site.compiled] = str(refused)
    else:
        attach_or_say(site, container)


def attach_or_say(site: EarlySite, container: Container) -> None:
    """Attach a container; where it does not fit, an event and `why_not_cached` give the reason."""
    why = attach(site, container)
    if why is not None:
        events.emit(events.NotCached(site.name, why))
        unused[site.compiled] = why
