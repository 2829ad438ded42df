"""Rules for backward().   loss.backward()  ->  one node for the gradients of the leaves behind it, and `.grad` set

Losses must have their whole history in the graph.  A leaf without a gradient gets the new one, or a copy laid out as
the leaf where others have that tensor too; to an existing one it is added in place.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import fx
from torch._higher_order_ops.wrap import tag_activation_checkpoint
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.fake_tensor import FakeTensor

from stator.breaks import Break
from stator.graph.analysis import autograd_boundaries as boundaries
from stator.graph.analysis.autograd_boundaries import (
    BOUNDARY,
    CONSUMED,
    FREED,
    behind,
    error_of_saved,
    retain_gradient,
)
from stator.graph.analysis.mutation import storage_of
from stator.graph.analysis.shared_memory import may_overlap
from stator.graph.analysis.step_functions import GRADIENTS, gradients_beside_modules, own_sparse_gradient
from stator.graph.metadata.input_layouts import PLAIN_CLASSES
from stator.graph.metadata.recurrent_layers import LayerResults
from stator.graph.metadata.sparse_gradients import without_elements
from stator.graph.record.refused_operations import is_sparse
from stator.graph.state.torch_state import without_grad
from stator.host.suspended_patches import NOW
from stator.interp.noted_effects import Converted, note_warning
from stator.interp.rule_registry import rule
from stator.interp.tensors.tensor_bookkeeping import behind_autograd, grad_of
from stator.interp.vm import VM
from stator.library.autograd import gradients
from stator.library.autograd.full_backward_hooks import ModuleHooks
from stator.library.autograd.leaf_hooks import LeafHooks, saved_storages
from stator.library.torch.compiler_functions import BACKWARD
from stator.library.torch.layers_and_optimizers import RECURRENT
from stator.settings.process_config import config


@rule(torch.Tensor.backward)
def _tensor_backward(vm: VM, self: object, gradient: object = None, retain_graph: object = None,
                     create_graph: object = False, inputs: object = None) -> None:
    captured_or_left(vm, self, gradient, retain_graph, create_graph, inputs)


@rule(torch.autograd.backward)
def _backward(vm: VM, tensors: object, grad_tensors: object = None, retain_graph: object = None,
              create_graph: object = False, grad_variables: object = None, inputs: object = None) -> None:
    if grad_variables is not None:
        raise Break("SB016", f"{BACKWARD}, with grad_variables")
    captured_or_left(vm, tensors, grad_tensors, retain_graph, create_graph, inputs)


def captured_or_left(vm: VM, *given: object) -> None:
    """A pass that breaks behind gradients with a history is a second one: compilers have no backward of theirs."""
    try:
        backward(vm, *given)
    except Break as stop:
        if stop.stop.turn_off is None and any(node.target in GRADIENTS and node.kwargs.get("create_graph")
                                              for node in vm.recorder.graph.nodes):
            raise behind_autograd(vm, stop.code, stop.detail) from None
        raise


def backward(vm: VM, tensors: object, given: object, retain_graph: object, create_graph: object, inputs: object
             ) -> None:
    """Record the gradients of the leaves, and accumulate them."""
    if not config.capture_backward:
        raise Break("SB016", BACKWARD)
    if any(name in ("grad", "_grad") for _, name, _ in NOW.patches):
        raise Break("SB016", f"{BACKWARD}, beside a replaced Tensor.grad")
    gradients.require_plain_engine(vm, BACKWARD, (retain_graph, create_graph), accumulates=True)
    if vm.recorder.wrappers.behind:
        raise Break("SB016", f"{BACKWARD}, beside wrapper subclasses")
    if create_graph and not torch.is_grad_enabled():
        raise behind_autograd(vm, "SB016", f"{BACKWARD}, with create_graph=True where gradients are off")
    outputs = gradients.tensors_of(vm, BACKWARD, tensors)
    seeds = None if given is None else gradients.tensors_of(vm, BACKWARD, given, True)
    leaves = gradients.leaves_behind(vm, BACKWARD, outputs, accumulates=True)
    recorder = vm.recorder
    reached = {node for output in outputs for node in behind(recorder.node_of(output))}
    retained = [each for each in vm.autograd.retained.values() if recorder.node_of(each) in reached]
    if any(hook is not None and hook.tensor is each for each in retained for _, hook in vm.autograd.hooks.values()):
        raise Break("SB016", f"{BACKWARD}, to a tensor with a hook that keeps its gradient")
    if inputs is not None:
        wanted = {id(each): each for each in gradients.tensors_of(vm, BACKWARD, inputs)}
        if not wanted or retained or not wanted.keys() <= set(map(id, leaves)):
            raise Break("SB016", f"{BACKWARD}, with inputs= that are no leaves behind the loss")
        leaves = list(wanted.values())
    hooks = LeafHooks(vm, BACKWARD, leaves)
    grads = [current_grad(vm, leaf) for leaf in leaves]
    require_own_memory(vm, [grad for grad in grads if grad is not None], outputs, seeds)
    options = {"retain_graph": retain_graph, "create_graph": bool(create_graph), "allow_unused": True,
               "materialize_grads": False}
    targets = leaves + retained
    modules = ModuleHooks(vm, BACKWARD, outputs)
    if modules.watches and (hooks or retained or retain_graph or create_graph):
        raise behind_autograd(vm, "SB016", f"{BACKWARD}, with hooks on modules beside hooks on leaves or a kept graph")
    handles = hooks.watch(outputs) if hooks else ()
    try:
        with modules, without_grad(vm.torch_state) if modules.watches else nullcontext():
            found = gradients.gradients_of_fakes(vm, BACKWARD, outputs, targets, seeds, options)
    finally:
        for handle in handles:
            handle.remove()
    require_layouts(vm, found, targets, outputs, bool(hooks or retained or modules.watches or create_graph) or any(
        "is_branch" in node.meta for node in reached))
    is_shared = shared_gradients(vm, found, reached, modules)
    # With sparse gradients the pass ran on fakes through rules in Python, which may lay out dense ones otherwise.
    is_laid_out_anew = any(each is not None and is_sparse(each) for each in found)
    # A tensor that has a node already is no result of this one: its copy is.
    found = tuple(vm.recorder.propagation.alike(each) if shared else each
                  for each, shared in zip(found, is_shared, strict=True))
    how, calls = (gradients_beside_modules, (modules.calls,)) if modules.calls else (GRADIENTS[bool(hooks)], ())
    node = gradients.record_gradients(vm, outputs, targets, seeds, options, found, how, calls, modules.made)
    if any("recompute" in each.meta or each.target is tag_activation_checkpoint for each in reached):
        node.meta[BOUNDARY] = True  # in one piece with it, a compiler would keep what is to be computed again
    if not retain_graph and not create_graph:  # nobody reads for a checkpoint that a pass has consumed
        recorder.log.read_again = [each for each in recorder.log.read_again if not each[1] <= reached]
    if create_graph:
        note_warning(vm, warn_of_cycles, UserWarning, kind=Converted)
    has_history = any(each is not None and each.requires_grad for each in (*grads, *found))
    with without_grad(vm.torch_state) if not create_graph and (hooks or retained or has_history) else nullcontext():
        for place in hooks.order if hooks else range(len(leaves)):
            if found[place] is not None:
                accumulate(vm, hooks, place, grads[place], found[place],
                           is_shared[place] or is_laid_out_anew, bool(create_graph))
            elif any(hooks.hooks[place]):
                raise Break("SB016", f"{BACKWARD}, with a hook on a leaf that gets no gradient")
        for each, new in zip(retained, found[len(leaves):], strict=True):
            retain(vm, each, new)


def accumulate(vm: VM, hooks: LeafHooks, place: int, grad: FakeTensor | None, new: FakeTensor, is_copied: bool,
               create_graph: bool) -> None:
    """As AccumulateGrad of torch does it, with the hooks before and behind it."""
    leaf = hooks.leaves[place]
    new = hooks.before(place, new)
    is_stolen = False
    if grad is None and is_sparse(new):
        with torch._C.DisableTorchFunction(), vm.recorder.fake_mode:  # without elements, as fakes of sparse inputs
            made = without_elements(new.shape, new.sparse_dim(), new)
        vm.recorder.record("call_function", own_sparse_gradient, (new,), {}, made)
        vm.tensors.grads[id(leaf)] = (leaf, made)
    elif grad is None:
        with torch._C.DisableTorchFunction():
            is_view = new._is_view()
        copied = is_copied or create_graph or bool(hooks.hooks[place][0])
        is_stolen = is_view and not copied
        vm.tensors.grads[id(leaf)] = (leaf, new if not copied and is_laid_out_as(new, leaf) else
                                      copy_laid_out_as(vm, new, leaf))
    elif create_graph:
        vm.tensors.grads[id(leaf)] = (leaf, vm.torch_call(torch.add, (grad, new), None))
    else:
        vm.torch_call(torch.Tensor.add_, (grad, new), None)
    hooks.after(place, is_stolen)


def require_layouts(vm: VM, found: tuple[FakeTensor | None, ...], targets: list[Any], outputs: list[Any],
                    otherwise: bool) -> None:
    """Break at gradients of another kind than their leaf; sparse ones of a plain pass to dense leaves are captured."""
    with torch._C.DisableTorchFunction():
        pairs = [(new, leaf) for new, leaf in zip(found, targets, strict=True) if new is not None]
        if any(new.dtype is not leaf.dtype or new.layout is not torch.strided and (
                new.layout is not torch.sparse_coo or leaf.layout is not torch.strided) for new, leaf in pairs):
            raise Break("SB016", f"{BACKWARD}, with a gradient of another dtype or layout than its leaf")
        if not any(new.layout is torch.sparse_coo for new, _ in pairs):
            return
        # Whether the leaf gets the gradient itself or a copy, the references that such functions keep decide.
        functions = any(isinstance(each, torch.autograd.function.BackwardCFunction)
                        and each._forward_cls is not LayerResults  # type: ignore[attr-defined]
                        for each in boundaries.functions_behind(outputs))
        shared = any(gradients.handed_on(vm, found)(new) for new, _ in pairs if new.layout is torch.sparse_coo)
    if otherwise or functions or shared or vm.autograd.hooks:
        # Code of the program that raises in the pass leaves the gradients that the engine has reached before.
        raise behind_autograd(
            vm, "SB016", f"{BACKWARD}, with a sparse gradient beside hooks, functions or a kept graph")


def retain(vm: VM, tensor: FakeTensor, new: FakeTensor | None) -> None:
    """Set the gradient of a tensor under retain_grad(), and have no node do it again."""
    graph, node = vm.recorder.graph, vm.recorder.node_of(tensor)
    for each in graph.find_nodes(op="call_function", target=retain_gradient):
        if each.args == (node,):
            graph.erase_node(each)
    if new is not None:
        grad = vm.tensors.grads.get(id(tensor), (None, None))[1]
        vm.tensors.grads[id(tensor)] = (tensor, vm.torch_call(
            torch.clone, (new,), {"memory_format": torch.contiguous_format}) if grad is None else
            vm.torch_call(torch.add, (grad, new), None))


def warn_of_cycles() -> None:
    """Have torch warn of create_graph=True, once in a process."""
    with torch.enable_grad():
        leaf = torch.zeros((), requires_grad=True)
        leaf.backward(create_graph=True)
        leaf.grad = None


def current_grad(vm: VM, leaf: FakeTensor) -> FakeTensor | None:
    tracker = vm.heap.by_standin.get(id(leaf))
    if tracker is not None and type(tracker.original) not in PLAIN_CLASSES:
        raise Break("SB016", f"{BACKWARD}, to a leaf that is a {type(tracker.original).__name__}")
    grad: FakeTensor | None = grad_of(vm, leaf, tracker)
    if grad is None:
        return None
    with torch._C.DisableTorchFunction():
        if type(grad) is not FakeTensor or grad.requires_grad and id(grad) in vm.heap.by_standin \
                or grad.layout is not torch.strided \
                or grad.dtype is not leaf.dtype or grad.is_inference():
            raise Break("SB016", f"{BACKWARD}, into a .grad that is no plain tensor")
    return grad


def require_own_memory(vm: VM, grads: list[FakeTensor], outputs: list[Any], seeds: list[Any] | None) -> None:
    """Break where the order matters in which the engine adds to gradients and reads other tensors."""
    own = set(map(id, grads))
    with torch._C.DisableTorchFunction():
        written = set(map(storage_of, grads))
        read = {storage_of(each.fake) for each in vm.recorder.inputs
                if type(each.fake) is FakeTensor and id(each.fake) not in own}
        overlap = len(own) != len(grads) or len(written) != len(grads) and any(
            storage_of(one) == storage_of(other) and may_overlap(one, other)
            for place, one in enumerate(grads) for other in grads[:place])
    # A compiler would get two inputs that overlap, of which one is written to.
    if overlap or not written.isdisjoint(read) and (
            not vm.recorder.backend.in_order or is_read(vm, written, outputs, seeds)):
        raise Break("SB016", f"{BACKWARD}, into a .grad that shares its memory")


def is_read(vm: VM, storages: set[int], outputs: list[Any], seeds: list[Any] | None) -> bool:
    """Whether the engine may read memory while it runs: it was saved or given, or the program has code in the pass."""
    vm.recorder.propagation.require_exact()
    with torch._C.DisableTorchFunction():
        functions = boundaries.functions_behind(outputs)
        given = {storage_of(each) for each in (*outputs, *(seeds or ())) if each is not None}
        return bool(vm.autograd.hooks or vm.autograd.ahead) or not given.isdisjoint(storages) or any(
                isinstance(each, torch.autograd.function.BackwardCFunction)
                or not saved_storages(each).isdisjoint(storages) for each in functions)


def shared_gradients(vm: VM, found: tuple[Any, ...], reached: set[fx.Node], modules: ModuleHooks) -> list[bool]:
    """Which gradients others may have too, or views of them."""
    # The kernel of a recurrent layer, and the way that a branch takes, decide how gradients are laid out.
    unknown = any(node.target in RECURRENT or "is_branch" in node.meta for node in reached)
    return [each is not None and not is_sparse(each) and (
        unknown or gradients.handed_on(vm, found)(each) or is_viewed(each, found) or storage_of(each) in modules.given)
        for each in found]


def is_viewed(grad: FakeTensor, found: tuple[FakeTensor | None, ...]) -> bool:
    """Whether the engine has passed a gradient on, so that gradients of other leaves are views of it."""
    with torch._C.DisableTorchFunction():
        return not grad._is_view() and any(each is not None and each is not grad
                                           and storage_of(each) == storage_of(grad) for each in found)


def is_laid_out_as(grad: FakeTensor, leaf: FakeTensor) -> bool:
    """The layout contract of AccumulateGrad."""
    with torch._C.DisableTorchFunction():
        if not is_non_overlapping_and_dense_or_false(leaf):
            return grad.is_contiguous()
        return all(stride == wanted if size != 1 else stride != 0
                   for size, stride, wanted in zip(grad.shape, grad.stride(), leaf.stride(), strict=True))


def copy_laid_out_as(vm: VM, grad: FakeTensor, leaf: FakeTensor) -> Any:
    with torch._C.DisableTorchFunction():
        strides = leaf.stride() if is_non_overlapping_and_dense_or_false(leaf) else None
        if strides is None or leaf.is_contiguous():
            strides = None
        size, dtype, device = leaf.shape, leaf.dtype, leaf.device
    if strides is None:
        return vm.torch_call(torch.clone, (grad,), {"memory_format": torch.contiguous_format})
    made = vm.torch_call(torch.empty_strided, (size, strides), {"dtype": dtype, "device": device})
    return vm.torch_call(torch.Tensor.copy_, (made, grad), None)


def detach_consumed(vm: VM, outputs: list[Any]) -> None:
    """Detach results of which a second backward pass would raise; behind the graph each gets a history that raises."""
    if not vm.autograd.consumes or vm.recorder.backend.in_order:
        return
    for place, output in enumerate(outputs):
        text = error_of_saved([output], FREED) if type(output) is FakeTensor else ""
        if text:
            detached = vm.recorder.call(torch.Tensor.detach, (output,), {})
            vm.recorder.node_of(detached).meta[CONSUMED] = text
            outputs[place] = detached
