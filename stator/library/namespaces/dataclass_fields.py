"""Read the fields of a dataclass that was read before.   dataclasses.fields(output)  ->  the same Field objects"""

from __future__ import annotations

import builtins
import dataclasses
import types

from stator.heap.tracker import Box, ShadowKind
from stator.interp.lookup import MISSING
from stator.interp.objects.attributes import read_instance_dict
from stator.interp.rule_registry import INTERPRETED, rule
from stator.interp.vm import VM

_FIELDS, _KIND = "__dataclass_fields__", dataclasses.Field.__dict__["_field_type"]
_REGULAR: object = dataclasses._FIELD  # type: ignore[attr-defined]


@rule(dataclasses.fields)
def _fields(vm: VM, callee: object, class_or_instance: object) -> object:
    """fields() of an instance whose class has been read before: all that it reads is guarded already."""
    cls, heap, lookups = type(class_or_instance), vm.heap, vm.classes.lookups
    found = heap.by_original.get(id(lookups.get((cls, _FIELDS))))
    if found is None or found.shape is not ShadowKind.DICT or id(callee) not in vm.functions.coded \
            or vm.classes.overlays or type(lookups.get((cls, "__getattribute__"))) is not types.WrapperDescriptorType \
            or any(heap.scope(vars(module)).overlay for module in (dataclasses, builtins)):
        return INTERPRETED
    regular = []
    for each in dict.values(found.standin):
        field: object = each.value if type(each) is Box and each.forced else each
        if type(field) is not dataclasses.Field or type(kind := _KIND.__get__(field)) is Box and not kind.forced:
            return INTERPRETED
        regular += [field] if (kind.raw if type(kind) is Box else heap.original_of(kind)) is _REGULAR else []
    return tuple(regular) if read_instance_dict(vm, class_or_instance, _FIELDS) is MISSING else INTERPRETED
