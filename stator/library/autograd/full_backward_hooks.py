"""Rules for full backward hooks of modules.   module.register_full_backward_hook(f)  ->  nodes around each call of it

Compilers cut the graph at these nodes, and hooks run unchanged in a backward pass of the program.  In a pass that is
captured, hooks are interpreted while the engine runs on the fakes; the graph of each call runs at its place in the
pass, and the tensors that it made leave the pass with the gradients.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.hooks import BackwardHook

from stator.breaks import Break
from stator.graph.analysis import autograd_boundaries as boundaries
from stator.graph.analysis.mutation import is_repeatable, storage_of, writes
from stator.graph.record.subgraph import Subgraph
from stator.guards.guard import Kind
from stator.heap.raw_access import instance_dict
from stator.host.hook_handles import handle_numbers_kept
from stator.host.value_kinds import is_a
from stator.interp.frame import Raised
from stator.interp.noted_effects import note_warning
from stator.interp.objects.native_attributes import is_outside
from stator.interp.rule_registry import rule
from stator.interp.tensors.tensor_bookkeeping import behind_autograd
from stator.interp.vm import VM
from stator.library.autograd.gradients import require_plain
from stator.library.torch.higher_order_operators import modules_of
from stator.native.torch_ops import draws_random_numbers

_HOOK = "a backward hook on a module"


def texts_in(code: types.CodeType) -> Iterator[str]:
    for each in code.co_consts:
        if type(each) is types.CodeType:
            yield from texts_in(each)
        elif type(each) is str:
            yield each


_WITHOUT_INPUTS = next(each for each in texts_in(BackwardHook.setup_output_hook.__code__)
                       if each.startswith("Full backward hook is firing"))


@dataclass(eq=False)
class Watch:
    """One call of a module: the object of the program, its node, its hooks, and the object that watches the fakes."""

    own: object
    node: fx.Node
    module: object
    hooks: list[Any]
    pre_hooks: list[Any]
    on_fakes: BackwardHook
    nodes: list[Any]  # of autograd, on the fakes


@rule(BackwardHook.setup_input_hook)
def _setup_input(vm: VM, self: object, args: object) -> Any:
    attributes = instance_dict(self)
    if type(args) is not tuple or id(self) in vm.heap.by_standin or attributes is None \
            or id(self) in vm.autograd.watches:
        raise Break("SB016", _HOOK)
    require_plain(vm, _HOOK)
    hooks, before = (vm.collect(attributes[name]) for name in ("user_hooks", "user_pre_hooks"))
    module = original_of(vm, attributes["module"])
    target = boundaries.WatchModule(module, *[tuple([original_of(vm, each) for each in some])
                                              for some in (hooks, before)])
    node = vm.recorder.record("call_function", target, (), {}, None)
    on_fakes = BackwardHook(None, [], [])  # type: ignore[no-untyped-call]
    vm.autograd.watches[id(self)] = Watch(self, node, attributes["module"], hooks, before, on_fakes, [])
    return watched(vm, self, args, boundaries.through_input, on_fakes.setup_input_hook)


@rule(BackwardHook.setup_output_hook)
def _setup_output(vm: VM, self: object, args: object) -> Any:
    if id(self) not in vm.autograd.watches:
        raise Break("SB016", _HOOK)
    setup = vm.autograd.watches[id(self)].on_fakes.setup_output_hook
    if type(args) is tuple:
        return watched(vm, self, args, boundaries.through_output, setup)
    if is_a(args, tuple):
        raise Break("SB016", f"{_HOOK} that returns a {type(args).__name__}")
    return watched(vm, self, (args,), boundaries.through_output, setup)[0]


def original_of(vm: VM, value: object) -> Any:
    """The user's object behind a value: the hook that a later backward pass calls."""
    tracker = vm.heap.by_standin.get(id(value))
    if tracker is None and not is_outside(vm, value):
        raise Break("SB016", f"{_HOOK} that was made inside the captured code")
    original = value if tracker is None else tracker.original
    vm.heap.guard(vm.heap.source_of(value), Kind.ID, original)
    return original


def watched(vm: VM, own: object, values: tuple[Any, ...], function: Callable[..., Any], setup: Callable[..., Any]
            ) -> tuple[Any, ...]:
    """The values of one side of a module, its tensors new ones where gradients flow through them."""
    require_plain(vm, _HOOK)
    tensors = [each for each in values if type(each) is FakeTensor]
    if not tensors and any(is_a(each, torch.Tensor) for each in values):
        raise Break("SB016", _HOOK)
    places = tuple([each if type(each) is FakeTensor else None for each in values])
    watch = vm.autograd.watches[id(own)]
    with torch._C.DisableTorchFunction(), handle_numbers_kept():
        found = setup(places)
        flows = any(new is not old for new, old in zip(found, places, strict=True))
        watch.nodes += [each.grad_fn for each in found if flows and each is not None and each.grad_fn is not None]
    result = tuple([new if type(each) is FakeTensor else each for new, each in zip(found, values, strict=True)])
    vm.recorder.record("call_function", function, (watch.node, places), {}, found if flows else None)
    vm.recorder.log.changes += 1
    return result


class ModuleHooks:
    """Hooks of modules that one backward pass calls."""

    def __init__(self, vm: VM, what: str, outputs: list[FakeTensor]) -> None:
        self.vm, self.what = vm, what
        self.calls: list[tuple[Any, ...]] = []
        self.made: list[FakeTensor] = []  # by the hooks, in the order in which the graph has them
        self.given: set[int] = set()  # memory of gradients that hooks have seen
        with torch._C.DisableTorchFunction():
            functions = boundaries.functions_behind(outputs) if vm.autograd.watches else {}
        self.watches: list[Watch] = []
        for watch in vm.autograd.watches.values():
            if type(watch) is not Watch:
                raise Break("SB016", f"{what}, through a module that torch shards")
            if any(node in functions for node in watch.nodes):
                self.watches.append(watch)
        if self.watches:
            vm.recorder.propagation.require_exact()

    def __enter__(self) -> None:
        for watch in self.watches:
            on_fakes = watch.on_fakes
            without_inputs = on_fakes.input_tensors_index is None
            if watch.pre_hooks or without_inputs:
                on_fakes.user_pre_hooks = [self._before(watch, without_inputs)]
            if not without_inputs:
                on_fakes.user_hooks = [self._after(watch)] if watch.hooks else []
            on_fakes.input_tensors_index = on_fakes.input_tensors_index or ()
            on_fakes.without_inputs = without_inputs
        self.vm.autograd.in_hooks = bool(self.watches)

    def __exit__(self, *exc: object) -> None:
        self.vm.autograd.in_hooks = False
        for watch in self.watches:
            watch.on_fakes.user_hooks, watch.on_fakes.user_pre_hooks = [], []
            watch.on_fakes.grad_outputs = None
            if watch.on_fakes.without_inputs:
                watch.on_fakes.input_tensors_index = None

    def _before(self, watch: Watch, without_inputs: bool) -> Callable[..., Any]:
        def run(_: object, grads: tuple[Any, ...]) -> tuple[Any, ...]:
            return self._called(watch, without_inputs, True, grads, (), watch.pre_hooks)
        return run

    def _after(self, watch: Watch) -> Callable[..., Any]:
        def run(_: object, into: tuple[Any, ...], grads: tuple[Any, ...]) -> tuple[Any, ...]:
            return self._called(watch, False, False, into, grads, watch.hooks)
        return run

    def _called(self, watch: Watch, without_inputs: bool, is_before: bool, grads: tuple[Any, ...],
                others: tuple[Any, ...], hooks: list[Any]) -> tuple[Any, ...]:
        """Interpret the hooks of one side; return the gradients with which the engine goes on."""
        recorder = self.vm.recorder
        given = (*grads, *others)
        if not all(each is None or type(each) is FakeTensor for each in given):
            raise self._refused("with a gradient that is no plain tensor")
        self.given.update(storage_of(each) for each in given if each is not None)
        places = list({id(each): place for place, each in reversed(list(enumerate(given)))
                       if each is not None}.values())
        known = {storage_of(each.fake) for each in recorder.inputs if type(each.fake) is FakeTensor} | {
            storage_of(each) for each in recorder.kept if type(each) is FakeTensor and each.layout is torch.strided}
        begun, outer = len(recorder.kept), recorder.nodes
        with Subgraph(recorder) as part:
            for place in places:
                part.bind(f"given_{place}", given[place])
            for number, each in enumerate(self.made):
                part.bind(f"made_{number}", each)
            result = grads
            for hook in hooks:
                result = self._result(hook, (watch.module, result, *((others,) if not is_before else ())), result)
            if without_inputs:
                self._call_without_inputs(watch, result)
            named = dict.items(recorder.nodes)
            lifted = {id(each) for each in part.lifted} | {id(each) for each in self.made}
            fakes = {id(each): each for each in (*[given[place] for place in places], *recorder.kept[begun:])
                     if type(each) is FakeTensor}
            made = [fakes[key] for key, _ in named if key in fakes and key not in lifted and key not in outer]
        self._require_plain(part)
        plan = []
        for each in result:
            if each is None:
                plan.append(("none", 0))
                continue
            if not any(each is one for one in given) and storage_of(each) in known:
                raise self._refused("with a hook that returns a tensor of older memory")
            place = next((place for place, one in enumerate(given) if one is each), None)
            plan.append(("given", place) if place is not None else ("made", len(self.made) + next(
                number for number, one in enumerate(made) if one is each)))
        with part.reopened():
            part.finish(made)
        modules, operands = modules_of(part)
        taken = len(self.made)
        self.made += made
        self.calls.append((watch.node, "before" if is_before else "after", without_inputs, modules[0], operands,
                           tuple(places), taken, tuple(plan)))
        return tuple(result)

    def _result(self, hook: object, args: tuple[Any, ...], before: tuple[Any, ...]) -> tuple[Any, ...]:
        versions = [(each, self.vm.recorder.version_of(each)) for each in before if each is not None]
        found = self._call(hook, args)
        if any(self.vm.recorder.version_of(each) != version for each, version in versions):
            raise self._refused("with a hook that writes to a gradient")
        if found is None:
            return before
        if type(found) is not tuple or len(found) != len(before):
            raise self._refused("with a hook that returns another thing than a tuple of such gradients")
        with torch._C.DisableTorchFunction():
            for new, old in zip(found, before, strict=True):
                if (new is None) != (old is None) or new is not None and (
                        type(new) is not FakeTensor or (new.shape, new.dtype, new.device, new.layout) != (
                            old.shape, old.dtype, old.device, old.layout)):
                    raise self._refused("with a hook that returns another thing than such gradients")
        return found

    def _call_without_inputs(self, watch: Watch, grads: tuple[Any, ...]) -> None:
        """As torch does it for a module whose inputs want no gradient."""
        note_warning(self.vm, _WITHOUT_INPUTS, UserWarning)
        into = (None,) * watch.on_fakes.n_inputs
        for hook in watch.hooks:
            found = self._call(hook, (watch.module, into, grads))
            if found is not None and not (type(found) is tuple and all(each is None for each in found)):
                raise self._refused("with a hook that returns gradients of inputs that want none")

    def _call(self, hook: object, args: tuple[Any, ...]) -> Any:
        try:
            found = self.vm.call_sync(hook, args)
            if type(found) is list:
                raise self._refused("with a hook that returns a list")
            return found
        except Raised as raised:
            raise self._refused(f"with a hook of a module that raises a {type(raised.exc).__name__}") from None
        except Break as stop:
            if stop.stop.turn_off is not None:
                raise
            raise behind_autograd(self.vm, stop.code, stop.detail) from None

    def _require_plain(self, part: Subgraph) -> None:
        for node in part.graph.nodes:
            if writes(node) or not is_repeatable(node) or draws_random_numbers(node.target) \
                    or node.meta.get("unbacked_bindings"):
                raise self._refused("with a hook of a module that writes to tensors, or draws or reads numbers")

    def _refused(self, why: str) -> Break:
        return behind_autograd(self.vm, "SB016", f"{self.what}, {why}")
