"""Facts of the world.   group.rank(), group.size(), group.group_name  ->  constants, guarded by which group it is

In: methods and attributes of process groups, backends and the records of options, all bound by pybind11.  Out: rows of
the native table.  A process group never changes its rank, size or name: its identity is the fact behind them.  Options
(`AllreduceOptions`) are made while tracing, and made again behind a graph break.
"""

from __future__ import annotations

import inspect
from types import FunctionType

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from stator.heap.tracker import Box
from stator.interp.rule_registry import INTERPRETED, code_rule, refuse, rule
from stator.interp.vm import VM
from stator.native import rows_declare
from stator.native.rows_declare import NativeClass, underlying
from stator.ranks.option_records import RECORDS
from stator.source import Pinned

_READERS = "rank size name _id _backend_id _get_backend_name _device_types __hash__ __eq__ __ne__ __repr__"
_FIXED = "a process group keeps its rank, its size and its name"


def _declare(owner: type, names: str) -> None:
    """Rows for methods and getters of a class of pybind11."""
    for name in names.split():
        entry = inspect.getattr_static(owner, name, None)
        reader = underlying(entry.fget if isinstance(entry, property) else entry)
        if reader is not None and id(reader) not in rows_declare.ROWS:
            rows_declare.add(reader, f"{owner.__qualname__}.{name}", NativeClass.PURE,
                             {"fresh": True, "why": _FIXED})


def _declare_record(owner: type) -> None:
    """Rows for a record of options: its constructor, and getters and setters of its fields."""
    for name in ("__new__", "__init__"):
        made = underlying(inspect.getattr_static(owner, name))
        if id(made) not in rows_declare.ROWS:
            rows_declare.add(made, f"{owner.__qualname__}.{name}", NativeClass.PURE,
                             {"fresh": True, "mutates": name == "__init__"})
    for name, entry in vars(owner).items():
        if isinstance(entry, property):
            for part, mutates in ((entry.fget, False), (entry.fset, True)):
                if part is not None:
                    rows_declare.add(underlying(part), f"{owner.__qualname__}.{name}", NativeClass.PURE,
                                     {"fresh": True, "mutates": mutates})


if dist.is_available():
    from torch.distributed.c10d_logger import _exception_logger, _time_logger
    from torch.distributed.device_mesh import DeviceMesh

    C10D = torch._C._distributed_c10d
    _declare(C10D.ProcessGroup, f"{_READERS} group_name group_desc bound_device_id")
    _declare(C10D.Backend, f"{_READERS} supports_coalescing supports_splitting supports_time_estimate")
    for _owner in RECORDS:
        _declare_record(_owner)
    _declare(C10D.ReduceOp.RedOpType, "__eq__ __ne__ __hash__ __int__ __index__ __repr__ __str__ value name")
    _LOGGED = (_exception_logger(_declare).__code__, _time_logger(_declare).__code__)

    def _look_through(vm: VM, cont: object, function: FunctionType, /, *args: object, **kwargs: object) -> None:
        """Call what torch wraps to log its errors, or its time, for torch's own logger."""
        wrapped = vm.closure_of(function)[function.__code__.co_freevars.index("func")].cell_contents
        vm.call(wrapped.force() if type(wrapped) is Box else wrapped, args, kwargs, cont)

    for _code in _LOGGED:
        code_rule(_code)(_look_through)

    refuse(dist.all_gather_object, dist.broadcast_object_list, dist.gather_object, dist.scatter_object_list,
           dist.send_object_list, dist.recv_object_list, code="SB015", detail="objects pickled for other ranks")

    @rule(C10D.ProcessGroup._get_backend)
    def _backend(vm: VM, group: dist.ProcessGroup, device: torch.device) -> object:
        found = vm.guard_identity(group)._get_backend(device)
        return vm.heap.adopt(found, Pinned(found))

    @rule(DeviceMesh.__getitem__)
    def _part_of_mesh(vm: VM, mesh: DeviceMesh, names: str | tuple[str, ...], /) -> object:
        """A mesh of some dimensions: a mesh never changes, and which one it is decides."""
        if vm.heap.tracker_of(mesh) is None:
            return INTERPRETED
        vm.heap.expose_deep(names)
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            found = vm.guard_identity(mesh)[names]
        return vm.heap.adopt(found, Pinned(found))
