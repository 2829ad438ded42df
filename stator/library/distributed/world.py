"""Facts of the world.   group.rank(), group.size(), group.group_name  ->  constants, guarded by which group it is

In: methods and attributes of process groups, backends and records of options, all bound by pybind11.  Out: rules that
call them while tracing.  A process group never changes its rank, size or name: its identity is the fact behind them.
Options (`AllreduceOptions`) are made while tracing, and made again behind a graph break.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from types import FunctionType

import torch
import torch.distributed as dist
from torch._subclasses.fake_tensor import unset_fake_temporarily

from stator.breaks import Break
from stator.heap.tracker import Box
from stator.interp.numbers.symbolic_numbers import specialise_deep
from stator.interp.rule_registry import INTERPRETED, code_rule, refuse, rule, suspending_rule
from stator.interp.vm import VM
from stator.native.rows_declare import underlying
from stator.ranks.group_names import group_of_name
from stator.ranks.option_records import RECORDS
from stator.source import Pinned

_READERS = "rank size name _id _backend_id _get_backend_name _device_types"
Native = Callable[..., object]


def _members(owner: type, names: Iterable[str]) -> list[Native]:
    """C functions behind methods, getters and setters of a class of pybind11."""
    entries = [inspect.getattr_static(owner, name, None) for name in names]
    found = [(entry.fget, entry.fset) if isinstance(entry, property) else (entry,) for entry in entries]
    return [underlying(part) for parts in found for part in parts if part is not None]


if dist.is_available():
    from torch.distributed.c10d_logger import _exception_logger, _time_logger
    from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

    C10D = torch._C._distributed_c10d
    _FACTS = [*_members(C10D.ProcessGroup, f"{_READERS} group_name group_desc bound_device_id".split()),
              *_members(C10D.Backend, f"{_READERS} supports_coalescing supports_splitting".split()),
              *_members(C10D.ReduceOp.RedOpType, "__eq__ __ne__ __hash__ __int__ __index__ value name".split())]

    @rule(*{id(each): each for each in _FACTS}.values())
    def _fact(vm: VM, callee: Native, /, *values: object) -> object:
        """A group keeps its rank, its size and its name: which one it is decides."""
        known = [value if vm.heap.tracker_of(value) is None else vm.guard_identity(value) for value in values]
        return vm.native_unhooked(callee, tuple(known))

    @rule(*RECORDS)
    def _options(vm: VM, callee: type, /) -> object:
        return callee()

    @rule(*[each for owner in RECORDS for each in _members(owner, [
        name for name, entry in vars(owner).items() if isinstance(entry, property)])])
    def _field(vm: VM, callee: Native, record: object, /, *value: object) -> object:
        if vm.heap.tracker_of(record) is not None:
            raise Break("SB005", "options of a collective, from outside")
        return vm.native_unhooked(callee, (record, *specialise_deep(vm, value)))

    _LOGGED = (_exception_logger(_members).__code__, _time_logger(_members).__code__)

    def _look_through(vm: VM, cont: object, function: FunctionType, /, *args: object, **kwargs: object) -> None:
        """Call what torch wraps to log its errors, or its time, for torch's own logger."""
        wrapped = vm.closure_of(function)[function.__code__.co_freevars.index("func")].cell_contents
        vm.call(wrapped.force() if type(wrapped) is Box else wrapped, args, kwargs, cont)

    for _code in _LOGGED:
        code_rule(_code)(_look_through)

    refuse(dist.all_gather_object, dist.broadcast_object_list, dist.gather_object, dist.scatter_object_list,
           dist.send_object_list, dist.recv_object_list, code="SB015", detail="objects pickled for other ranks")

    refuse(dist.new_group, dist.init_process_group, dist.destroy_process_group, dist.split_group, code="SB015",
           detail="a process group that is made or destroyed")
    # Its coordinates would be numbers of tensors, and it may make groups.
    refuse(init_device_mesh, DeviceMesh, code="SB015", detail="a device mesh that is made")

    @suspending_rule(C10D._resolve_process_group)
    def _group_of_name(vm: VM, cont: object, group_name: str, /) -> None:
        if not (isinstance(group_name, str) and group_of_name(group_name)):
            raise Break("SB015", "a process group by a name that none has")
        vm.call(group_of_name, (group_name,), {}, cont)

    @rule(C10D.ProcessGroup._get_backend)
    def _backend(vm: VM, group: dist.ProcessGroup, device: torch.device) -> object:
        found = vm.guard_identity(group)._get_backend(device)
        return vm.heap.adopt(found, Pinned(found))

    @rule(DeviceMesh.__getitem__)
    def _part_of_mesh(vm: VM, self: DeviceMesh, mesh_dim_names: str | tuple[str, ...]) -> object:
        """A mesh of some dimensions: a mesh never changes, and which one it is decides."""
        if vm.heap.tracker_of(self) is None:
            return INTERPRETED
        vm.heap.expose_deep(mesh_dim_names)
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            found = vm.guard_identity(self)[mesh_dim_names]
        return vm.heap.adopt(found, Pinned(found))
