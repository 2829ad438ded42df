"""Collectives in the graph.   group.allreduce([x], options)  ->  nodes that begin it, and a handle that waits

In: a call of a method of a process group; functions of torch.distributed are interpreted down to these.  Out: an
operator with a schema for the collective, and a `PendingWork` whose `wait()` is interpreted.  A backend that runs the
graph in order gets operators that write in place.  A compiler gets the functional ones with a copy behind them, and its
graph is cut at collectives without a functional form.

Collectives neither read nor write autograd's record: they work on `x.data` where `x` requires grad.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.experimental.symbolic_shapes import statically_known_true

from stator.breaks import Break
from stator.graph.analysis.autograd_boundaries import BOUNDARY
from stator.interp.rule_registry import refuse, rule
from stator.interp.vm import VM
from stator.ranks.pending_work import PendingWork, await_in_place, await_tensor

UNSET = timedelta(milliseconds=-1)


class Collective:
    """One call of a method of a process group."""

    def __init__(self, vm: VM, group: object, options: object = None) -> None:
        importlib.import_module("torch.distributed._functional_collectives")  # registers rules for fakes
        self.vm = vm
        self.group = vm.guard_identity(group)
        self.name: str = self.group.group_name
        self.size: int = self.group.size()
        self.ops = torch.ops._c10d_functional
        self.in_order = vm.recorder.backend.in_order
        if getattr(options, "timeout", UNSET) not in (UNSET, None):
            raise Break("SB015", "a collective with a timeout of its own")

    def tensors(self, values: object) -> list[FakeTensor]:
        """A list of plain tensors without their history."""
        self.vm.heap.expose_deep(values)
        found = list(values) if isinstance(values, (list, tuple)) else [values]
        return [self.data(each) for each in found]

    def data(self, tensor: object) -> FakeTensor:
        if not isinstance(tensor, FakeTensor) or id(tensor) in self.vm.recorder.classes:
            raise Break("SB015", f"a collective of a {type(tensor).__name__}")
        with torch._C.DisableTorchFunction():
            plain = tensor.layout is torch.strided and tensor.is_contiguous()
            tracked = tensor.requires_grad
        if not plain:
            raise Break("SB015", "a collective of a tensor that is not contiguous")
        found: FakeTensor = self.vm.sync(lambda: self.vm.load_attr(tensor, "data")) if tracked else tensor
        return found

    def reduction(self, options: object) -> str:
        given = getattr(options, "reduceOp", dist.ReduceOp.SUM)
        for operation, word in operators.REDUCTIONS.items():
            if given == operation:
                return word
        raise Break("SB015", f"a collective with the reduction {given}")

    def call(self, operator: OpOverload, *args: object, **kwargs: object) -> FakeTensor:
        found: FakeTensor = self.vm.torch_call(operator, args, kwargs or None)
        return found

    def same_layout(self, tensors: Sequence[FakeTensor]) -> bool:
        with torch._C.DisableTorchFunction():
            return all(equal_layout(each, tensors[0]) for each in tensors)

    def require_shape(self, made: FakeTensor, wanted: FakeTensor) -> None:
        """Break where the backend itself has to decide whether a tensor fits the result."""
        with torch._C.DisableTorchFunction():
            if not equal_layout(made, wanted):
                raise Break("SB015", "a collective into a tensor of another shape")

    def begin(self, kind: str, written: Sequence[FakeTensor], read: Sequence[FakeTensor], numbers: Sequence[int] = (),
              reduction: str = "") -> PendingWork:
        """A collective without an operator of torch."""
        given = list(written), list(read), kind, list(numbers), reduction, self.name
        call_between_pieces(self.vm, operators.begin(), *given)
        return self.pending([*written, *read][:1], [], written)

    def pending(self, waited: Sequence[Tensor], results: Sequence[tuple[Tensor, Sequence[Tensor]]],
                outputs: Sequence[Tensor]) -> PendingWork:
        work = PendingWork(waited, results, outputs)
        self.vm.fresh[id(work)] = work
        return work


def equal_layout(one: FakeTensor, other: FakeTensor) -> bool:
    """Whether two tensors surely have one shape; an unbacked size equals itself alone."""
    return one.dtype == other.dtype and one.dim() == other.dim() and all(
        statically_known_true(first == second) for first, second in zip(one.shape, other.shape, strict=True))


def call_between_pieces(vm: VM, operator: OpOverload, *args: object) -> None:
    """Record an operator; the graph of a compiler is cut there, so that nothing moves across it."""
    recorder = vm.recorder
    if not recorder.backend.in_order and (not recorder.backend.may_be_cut or recorder.scope.enclosing is not None):
        raise Break("SB015", f"{operator} in a graph that cannot be cut")
    vm.torch_call(operator, args, None)
    if not recorder.backend.in_order:
        recorder.propagation.require_exact()
        next(reversed(recorder.graph.nodes)).meta[BOUNDARY] = True


@rule(await_in_place)
def _await_in_place(vm: VM, tensor: object) -> None:
    importlib.import_module("torch.distributed._functional_collectives")
    call_between_pieces(vm, torch.ops._c10d_functional.wait_tensor.default, tensor)


@rule(await_tensor)
def _await_tensor(vm: VM, tensor: object) -> object:
    importlib.import_module("torch.distributed._functional_collectives")
    return vm.torch_call(torch.ops._c10d_functional.wait_tensor.default, (tensor,), None)


if dist.is_available():
    from stator.ranks import operators

    ProcessGroup = torch._C._distributed_c10d.ProcessGroup
    refuse(ProcessGroup.recv_anysource, ProcessGroup.monitored_barrier, ProcessGroup._start_coalescing,
           ProcessGroup._end_coalescing, code="SB015", detail="a collective whose result is no tensor")

    def _present(*names: str) -> tuple[object, ...]:
        """The methods that the installed torch has: some got a second name in 2.12."""
        return tuple(getattr(ProcessGroup, name) for name in names if hasattr(ProcessGroup, name))

    # ------------------------------------------------------------------ with a functional form

    @rule(ProcessGroup.allreduce, ProcessGroup.allreduce_coalesced)
    def _all_reduce(vm: VM, group: object, tensors: object, opts: object = None) -> PendingWork:
        collective = Collective(vm, group, opts)
        given, word = collective.tensors(tensors), collective.reduction(opts)
        if collective.in_order:
            for each in given:
                collective.call(collective.ops.all_reduce_.default, each, word, collective.name)
            return collective.pending(given, [], given)
        made = [collective.call(collective.ops.all_reduce.default, each, word, collective.name) for each in given]
        return collective.pending([], [(result, [each]) for result, each in zip(made, given, strict=True)], given)

    @rule(ProcessGroup.broadcast)
    def _broadcast(vm: VM, group: object, tensors: object, opts: object = None) -> PendingWork:
        collective = Collective(vm, group, opts)
        root, ops = getattr(opts, "rootRank", 0), collective.ops
        [given] = collective.tensors(tensors)
        if collective.in_order:
            collective.call(ops.broadcast_.default, given, root, collective.name)
            return collective.pending([given], [], [given])
        made = collective.call(ops.broadcast.default, given, root, collective.name)
        return collective.pending([], [(made, [given])], [given])

    @rule(*_present("_allgather_base", "all_gather_single"))
    def _all_gather_single(vm: VM, group: object, output: object, input: object, opts: object = None) -> PendingWork:
        collective = Collective(vm, group, opts)
        written, read = collective.tensors([output, input])
        if collective.in_order:
            collective.call(collective.ops.all_gather_into_tensor_out.default, read, collective.size, collective.name,
                            out=written)
            return collective.pending([written], [], [written])
        made = collective.call(collective.ops.all_gather_into_tensor.default, read, collective.size, collective.name)
        collective.require_shape(made, written)
        return collective.pending([], [(made, [written])], [written])

    @rule(ProcessGroup.allgather)
    def _all_gather(vm: VM, group: object, output_tensors: object, input_tensors: object, opts: object = None
                    ) -> PendingWork:
        collective = Collective(vm, group, opts)
        vm.heap.expose_deep(output_tensors)
        [written], [read] = map(collective.tensors, output_tensors), collective.tensors(input_tensors)  # type: ignore
        if collective.in_order or not collective.same_layout([*written, read]) or read.dim() == 0:
            return collective.begin("all_gather", written, [read])
        made = collective.call(collective.ops.all_gather_into_tensor.default, read, collective.size, collective.name)
        return collective.pending([], [(made, written)], written)

    @rule(*_present("_reduce_scatter_base", "reduce_scatter_single"))
    def _reduce_scatter_single(vm: VM, group: object, outputTensor: object, inputTensor: object, opts: object = None
                               ) -> PendingWork:
        collective = Collective(vm, group, opts)
        (written, read), word = collective.tensors([outputTensor, inputTensor]), collective.reduction(opts)
        if collective.in_order:
            collective.call(collective.ops.reduce_scatter_tensor_out.default, read, word, collective.size,
                            collective.name, out=written)
            return collective.pending([written], [], [written])
        made = collective.call(collective.ops.reduce_scatter_tensor.default, read, word, collective.size,
                               collective.name)
        collective.require_shape(made, written)
        return collective.pending([], [(made, [written])], [written])

    @rule(*_present("all_to_all_single", "alltoall_base"))
    def _all_to_all_single(vm: VM, group: object, output: object, input: object, output_split_sizes: object,
                           input_split_sizes: object, opts: object = None) -> PendingWork:
        collective = Collective(vm, group, opts)
        written, read = collective.tensors([output, input])
        vm.heap.expose_deep((output_split_sizes, input_split_sizes))
        receives, sends = list(output_split_sizes), list(input_split_sizes)  # type: ignore[call-overload]
        if collective.in_order:
            return collective.begin("all_to_all_single", [written], [read], [len(receives), *receives, *sends])
        with torch._C.DisableTorchFunction():
            receives = receives or [written.shape[0] // collective.size] * collective.size
            sends = sends or [read.shape[0] // collective.size] * collective.size
        made = collective.call(collective.ops.all_to_all_single.default, read, receives, sends, collective.name)
        collective.require_shape(made, written)
        return collective.pending([], [(made, [written])], [written])

    # ------------------------------------------------------------------ without

    @rule(ProcessGroup.reduce_scatter)
    def _reduce_scatter(vm: VM, group: object, output_tensors: object, input_tensors: object, opts: object = None
                        ) -> PendingWork:
        collective = Collective(vm, group, opts)
        vm.heap.expose_deep(input_tensors)
        [read] = map(collective.tensors, input_tensors)  # type: ignore[call-overload]
        return collective.begin("reduce_scatter", collective.tensors(output_tensors), read,
                                reduction=collective.reduction(opts))

    @rule(ProcessGroup.reduce)
    def _reduce(vm: VM, group: object, tensors: object, opts: object) -> PendingWork:
        collective = Collective(vm, group, opts)
        return collective.begin("reduce", collective.tensors(tensors), [], [getattr(opts, "rootRank", 0)],
                                collective.reduction(opts))

    @rule(ProcessGroup.alltoall)
    def _all_to_all(vm: VM, group: object, output_tensors: object, input_tensors: object, opts: object = None
                    ) -> PendingWork:
        collective = Collective(vm, group, opts)
        return collective.begin("all_to_all", collective.tensors(output_tensors), collective.tensors(input_tensors))

    @rule(ProcessGroup.gather)
    def _gather(vm: VM, group: object, output_tensors: object, input_tensors: object, opts: object) -> PendingWork:
        collective = Collective(vm, group, opts)
        return collective.begin("gather", nested(collective, output_tensors), collective.tensors(input_tensors),
                                [getattr(opts, "rootRank", 0)])

    @rule(ProcessGroup.scatter)
    def _scatter(vm: VM, group: object, output_tensors: object, input_tensors: object, opts: object) -> PendingWork:
        collective = Collective(vm, group, opts)
        return collective.begin("scatter", collective.tensors(output_tensors), nested(collective, input_tensors),
                                [getattr(opts, "rootRank", 0)])

    @rule(ProcessGroup.send)
    def _send(vm: VM, group: object, tensors: object, dstRank: int, tag: int) -> PendingWork:
        collective = Collective(vm, group)
        return collective.begin("send", [], collective.tensors(tensors), [dstRank, tag])

    @rule(ProcessGroup.recv)
    def _receive(vm: VM, group: object, tensors: object, srcRank: int, tag: int) -> PendingWork:
        collective = Collective(vm, group)
        return collective.begin("recv", collective.tensors(tensors), [], [srcRank, tag])

    @rule(ProcessGroup.barrier)
    def _barrier(vm: VM, group: object, opts: object = None) -> PendingWork:
        collective = Collective(vm, group, opts)
        with torch._C.DisableTorchFunction():
            device = getattr(opts, "device", None) or torch.device("cpu")
        return collective.begin("barrier", [], [vm.torch_call(torch.empty, (0,), {"device": device})])


def nested(collective: Collective, values: object) -> list[FakeTensor]:
    """The tensors of a list with one list, or with none."""
    collective.vm.heap.expose_deep(values)
    return [tensor for part in values for tensor in collective.tensors(part)]  # type: ignore[attr-defined]
