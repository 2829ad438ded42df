"""While a stance forces a backend, every site has other entries.   set_stance(force_backend="eager")  ->  a new set

In: the sites, and the backend that is forced from now on, or None.  Out: each site with the settings and the entries
that it had under that backend before; none, the first time.  A hit then costs what it always costs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stator.cache.dispatch import update_dispatch
from stator.capture.call_site import CallSite
from stator.settings.options import Settings


def settings_under(settings: Settings, backend: Any) -> Settings:
    """A function's own settings with another backend; its mode and options were for its own."""
    if backend is None:
        return settings
    return replace(settings, backend=backend, mode=None, options={})


def use_backend(site: CallSite, backend: object) -> None:
    """Put aside what was compiled for the backend of now, and take up what was compiled for this one."""
    if site.stance.backend is backend:
        return
    compiled = site.compiled
    site.stance.put_aside[id(site.stance.backend)] = site.stance.backend, compiled.entries()
    compiled.clear()
    site.stance.backend = backend
    site.settings = settings_under(site.stance.own_settings, backend)
    _, entries = site.stance.put_aside.pop(id(backend), (backend, []))
    for entry in reversed(entries):
        compiled.add_entry(*entry)
    update_dispatch(compiled)
