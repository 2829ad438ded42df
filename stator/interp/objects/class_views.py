"""`__dict__` of a class that the trace changes.   A.x = 2; A.__dict__["x"]  ->  2

In: classes from outside, whose attributes as set stand in overlays.  Out: their views, which show those attributes.
The residual assigns to the class, not to the entries behind a view.
"""

from __future__ import annotations

import types

from stator.heap.pure_readers import mapping_behind
from stator.interp.lookup import MISSING
from stator.interp.services import VM


def class_dict(vm: VM, cls: type) -> types.MappingProxyType[str, object]:
    view: types.MappingProxyType[str, object] = vm.heap.class_view(cls)
    for name in vm.classes.overlays.get(cls, {}):
        show_attribute(vm, cls, name)
    return view


def show_attribute(vm: VM, cls: type, name: str) -> None:
    """Bring a view that the program holds up to date."""
    view = vm.heap.dicts.class_views.get(cls)
    if view is None:
        return
    entries, value = mapping_behind(view), vm.classes.overlays[cls][name]
    if value is MISSING or (cls, name) in vm.classes.reborn and name in entries and entries[name] is not value:
        entries.pop(name, None)  # one that is set again comes last
    if value is not MISSING:
        entries[name] = value
