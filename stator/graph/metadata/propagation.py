"""Remember what operations do to metadata.   (torch.relu, float32[2, 3] cpu)  ->  float32[2, 3] cpu

The memo lives until stator.reset().  It serves where nothing but sizes, strides, dtype and device can matter: no result
that requires grad, no symbolic size, no in-place operation.  It keeps the base of each view (`bases`); where more is
needed (`storage_offset`), ExactNeeded repeats the trace without the memo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorConfig, FakeTensorMode

from stator.graph.metadata.layout_rules import ARGUMENT, WRITTEN, foresee
from stator.graph.metadata.write_layouts import foresee_write
from stator.graph.state.quiet_logging import Heard

_SCALARS = frozenset({int, float, bool, str, complex, type(None), type(...), torch.dtype, torch.device, torch.layout,
                      torch.memory_format})
# Operations that look at a storage: remembered results of views have storages of their own, which are too small.
_OF_STORAGES = "storage_offset as_strided as_strided_ as_strided_copy as_strided_scatter slice_inverse set_".split()
_LIMIT = 100_000
_memo: dict[Any, Any] = {}
_held: list[Any] = []  # the functions of the memo, so that their ids stay theirs
_ASKED = (torch._C._get_flash_sdp_enabled, torch._C._get_mem_efficient_sdp_enabled, torch._C._get_math_sdp_enabled,
          torch._C._get_cudnn_sdp_enabled)


class Fakes:
    """The fakes of one trace."""

    __slots__ = ("fake_mode", "_states")

    def __init__(self, fake_mode: FakeTensorMode) -> None:
        self.fake_mode = fake_mode
        self._states: dict[torch.device, tuple[torch.device, dict[str, Any]]] = {}

    def make(self, size: object, stride: object, dtype: torch.dtype, device: torch.device,
             requires_grad: bool) -> FakeTensor:
        """A dense leaf; dispatch to modes and torch functions must be off."""
        elem = torch.empty_strided(size, stride, dtype=dtype, device="meta", requires_grad=requires_grad)
        known = self._states.get(device)
        if known is None:
            fake = FakeTensor(self.fake_mode, elem, device)
            if not FakeTensorConfig.debug:
                self._states[device] = fake.fake_device, dict(fake.__dict__)
            return fake
        exact, state = known
        fake = torch.Tensor._make_subclass(  # type: ignore[call-arg]
            FakeTensor, elem, requires_grad, dispatch_device=True, device_for_backend_keys=exact)
        if self.fake_mode._allow_unsafe_data_ptr_access:
            torch._C._set_warn_deprecated_on_mutable_data_ptr(fake)
        else:
            torch._C._set_throw_on_mutable_data_ptr(fake)
        fake.__dict__ = state.copy()
        return fake


def _named(names: list[str]) -> dict[int, Any]:
    """The functions, methods and operators of these names, by their ids."""
    found: list[Any] = []
    for name in names:
        found += [getattr(holder, name) for holder in (torch.Tensor, torch) if hasattr(holder, name)]
        packet = getattr(torch.ops.aten, name, None)
        if isinstance(packet, torch._ops.OpOverloadPacket):
            found += [packet, *(getattr(packet, overload) for overload in packet.overloads())]
    return {id(function): function for function in found}


_NEEDS_STORAGE = _named(_OF_STORAGES)
_VIEWS = _named(["view"])


def forget() -> None:
    _memo.clear()
    _held.clear()


class ExactNeeded(BaseException):
    """The program needs more than remembered results keep."""


class Unkeyed(Exception):
    """An argument that the memo cannot describe."""


class Propagation:
    """The memo as one trace sees it."""

    def __init__(self, fake_mode: FakeTensorMode, enabled: bool = True) -> None:
        self.fakes = Fakes(fake_mode)
        self.enabled = enabled
        self.metas: dict[int, Any] = {}  # id(fake) -> its key
        self.kept: list[FakeTensor] = []  # those of `metas`: a gradient is in no node where a copy takes its place
        self.bases: dict[int, list[Any]] = {}  # memory of a remembered view -> the view, its writes so far, its base
        self.served = 0
        self.saves = False  # whether autograd may have saved tensors

    def require_exact(self) -> None:
        """Turn the memo off: which tensors share memory, and what autograd saves, must be known from here on."""
        if self.enabled and self.served:
            raise ExactNeeded
        self.enabled = False

    def key(self, func: object, args: tuple[Any, ...], kwargs: dict[str, Any], in_place: bool = False) -> Any:
        """Key of one call, or None where the memo must not be used."""
        if not self.enabled:
            return None
        # x.view(torch.int32) asks where in its storage a tensor begins.
        if id(func) in _NEEDS_STORAGE or id(func) in _VIEWS and any(
                type(value) is torch.dtype for value in (*args, *kwargs.values())):
            if self.served:
                raise ExactNeeded
            return None
        saves = self.saves
        try:
            parts = [self._describe(value) for value in args]
            if kwargs:
                parts += [(name, self._describe(value)) for name, value in kwargs.items()]
        except Unkeyed:
            self.saves = saves or self.saves and not in_place
            return None
        if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda") or torch.is_inference_mode_enabled():
            return None
        kernels = tuple([ask() for ask in _ASKED])  # of attention, which lay their results out differently
        return (id(func), torch.is_grad_enabled(), torch.get_default_dtype(), kernels, *parts)

    def tensor_key(self, fake: FakeTensor) -> tuple[Any, ...]:
        """Metadata of a plain dense tensor, requires_grad last; a first item of None: it is not one."""
        found = self.metas.get(id(fake))
        if found is None:
            found = self.metas[id(fake)] = self._tensor_key(fake)
            self.kept.append(fake)
        return found

    def alike(self, fake: FakeTensor) -> FakeTensor:
        """Another tensor with the same metadata."""
        key = self.tensor_key(fake)
        if key[0] is None:  # sizes are symbols
            with torch._C.DisableTorchFunction(), self.fakes.fake_mode:
                return torch.empty_strided(  # type: ignore[return-value]
                    fake.shape, fake.stride(), dtype=fake.dtype, device=fake.fake_device)
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            return self._make(key)

    def _describe(self, value: Any) -> tuple[Any, ...]:
        cls = type(value)
        if cls is FakeTensor:
            found = self.tensor_key(value)
            if found[-1] and torch.is_grad_enabled():
                self.saves = True
                raise Unkeyed
            if found[0] is None:
                raise Unkeyed
            return found
        if cls in _SCALARS:
            return (cls, value) if cls is not float else (cls, value.hex())
        if cls is tuple or cls is list or cls is torch.Size:
            return (cls, *[self._describe(item) for item in value])
        if cls is slice:
            return (cls, self._describe(value.start), self._describe(value.stop), self._describe(value.step))
        raise Unkeyed

    def _tensor_key(self, fake: FakeTensor) -> tuple[Any, ...]:
        """Metadata of a plain dense tensor; a first item of None: it is not one."""
        with torch._C.DisableTorchFunction():  # the tracer's own mode is on
            if fake._has_symbolic_sizes_strides or fake.layout is not torch.strided \
                    or fake.constant is not None and fake.numel() or fake.is_conj() or fake.is_neg() \
                    or fake.is_inference() or fake.is_quantized:
                return (None, False)
            return (fake.dtype, tuple(fake.shape), fake.stride(), fake.fake_device, fake.requires_grad)

    def find(self, key: object, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
             in_place: bool) -> tuple[Any, ...] | None:
        """The entry of a call: one that was learned, or that a rule foresees; None where there is none."""
        entry: tuple[Any, ...] | None = _memo.get(key)
        if entry is None:
            with Heard():  # torch warns as it runs the operation
                entry = (foresee_write if in_place else foresee)(func, args, kwargs, self.tensor_key)
            if entry is not None and len(_memo) < _LIMIT:
                _memo[key] = entry
                _held.append(func)
        return entry

    def write(self, entry: tuple[Any, ...] | None, args: tuple[Any, ...], kwargs: dict[str, Any]) -> FakeTensor | None:
        """Count the write of a call that is known to do nothing else; None where fakes must run it."""
        if entry is None or entry[0] is not WRITTEN or not self.is_alone(entry[1], args, kwargs):
            return None
        written: FakeTensor = args[entry[1]]
        torch.autograd.graph.increment_version(written)
        return written

    def is_alone(self, place: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        """Whether no other argument may lie on the memory of this one: torch refuses some of those writes."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            fakes = [each for each in (*args, *kwargs.values()) if type(each) is FakeTensor]
            memories = {_memory(each) for each in fakes}
            return type(args[place]) is FakeTensor and not self.tensor_key(args[place])[-1] \
                and (len(fakes) == 1 or len(memories) == len(fakes) and memories.isdisjoint(self.bases)) \
                and not any([type(each) in (tuple, list) for each in (*args, *kwargs.values())])

    def recall(self, entry: tuple[Any, ...] | None, args: tuple[Any, ...]) -> Any:
        """The results of an entry, made anew; None where there are none."""
        if entry is None or entry[0] is WRITTEN:
            return None
        if entry[0] is ARGUMENT:
            return args[entry[1]]
        if len(entry) == 3 and self.tensor_key(args[entry[2]])[-1]:
            return None  # a view requires grad where its base does, also under no_grad()
        self.served += 1
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            kind = entry[0]
            made = [None if spec is None else self._make(spec) for spec in (entry[1:2] if kind is None else entry[1])]
            for fake in made if len(entry) == 3 else ():
                self.note_view(fake, args[entry[2]])
        return made[0] if kind is None else made if kind is list else tuple(made) if kind is tuple else kind(made)

    def note_view(self, fake: FakeTensor, base: FakeTensor | None) -> None:
        """A fake with memory of its own stands for a view of `base`, or of a tensor that is not known any more."""
        self.bases[_memory(fake)] = [fake, 0, base]

    def is_known_to_share(self, a: FakeTensor, b: FakeTensor) -> bool:
        """False for tensors on different memory; of remembered views it is not known where in their base they lie."""
        if self.bases and self.root(a) == self.root(b):
            raise ExactNeeded
        return False

    def root(self, fake: FakeTensor) -> int:
        """The storage of the tensor that a remembered view is part of; that of any other one."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            found = self.bases.get(_memory(fake))
            while found is not None:
                if found[2] is None:
                    raise ExactNeeded
                fake = found[2]
                found = self.bases.get(_memory(fake))
            return _memory(fake)

    def _make(self, spec: tuple[Any, ...]) -> FakeTensor:
        dtype, size, stride, device, _ = spec
        fake = self.fakes.make(size, stride, dtype, device, False)
        self.metas[id(fake)] = spec
        self.kept.append(fake)
        return fake

    def learn(self, key: object, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any],
              result: Any) -> None:
        """Remember a result that is nothing but new plain tensors."""
        if len(_memo) >= _LIMIT or any([type(value) is FakeTensor for value in kwargs.values()]):
            return  # the places of arguments are their positions
        entry: tuple[Any, ...] | None = None
        if type(result) is FakeTensor:
            # The argument itself: dropout of a model that does not train, a conversion to what it is.
            entry = next(((ARGUMENT, number) for number, value in enumerate(args) if value is result), None)
        elif type(result) not in (tuple, list) and type(result).__module__ != "torch.return_types":
            return
        if entry is None:
            parts = [result] if type(result) is FakeTensor else result
            specs = [None if part is None else self._spec(part, args, kwargs) for part in parts]
            if any(spec is None and part is not None for spec, part in zip(specs, parts, strict=True)):
                return
            entry = (*((None, specs[0]) if parts is not result else (type(result), specs)), *_viewed(parts, args))
        _memo[key] = entry
        _held.append(func)

    def states(self, args: tuple[Any, ...]) -> list[Any]:
        """The layout and the version of each argument that is a tensor."""
        with torch._C.DisableTorchFunction():
            return [(self.tensor_key(value), value._version) if type(value) is FakeTensor else None for value in args]

    def learn_write(self, key: object, func: Callable[..., Any], args: tuple[Any, ...], before: list[Any],
                    result: object) -> None:
        """Remember a call that gives back the argument to which it wrote: once, and without a change of its layout.

        A write to an `out=` shows at each argument on its memory.
        """
        places = [place for place, (then, now) in enumerate(zip(before, self.states(args), strict=True)) if then != now]
        if len(places) == 1 and args[places[0]] is result and len(_memo) < _LIMIT \
                and self.is_alone(places[0], args, {}) \
                and self.states(args)[places[0]] == (before[places[0]][0], before[places[0]][1] + 1):
            _memo[key] = WRITTEN, places[0]
            _held.append(func)

    def _spec(self, result: object, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...] | None:
        if type(result) is not FakeTensor or any(result is value for value in args) \
                or any(result is value for value in kwargs.values()):
            return None
        found = self._tensor_key(result)
        return None if found[0] is None or found[-1] else found

    def changed(self, values: Iterable[Any]) -> None:
        """An operation may have changed its arguments in place: their metadata is read again."""
        for value in values:
            if type(value) is FakeTensor:
                if self.served:
                    with torch._C.DisableTorchFunction():  # or the tracer's own mode would read the metadata now
                        wants_grad = value.requires_grad
                    if wants_grad and not self.metas.get(id(value), (False,))[-1]:  # and did not before, as a parameter
                        raise ExactNeeded
                    if self.bases:
                        self._count_writes(value)
                        if self.saves and self._has_views(value):
                            raise ExactNeeded  # versions of views that were saved must grow, too
                self.metas.pop(id(value), None)
            elif type(value) is list or type(value) is tuple:
                self.changed(value)

    def _has_views(self, fake: FakeTensor) -> bool:
        root = self.root(fake)
        return any(self.root(view) == root for view, _, _ in self.bases.values())

    def _count_writes(self, written: FakeTensor) -> None:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            found = self.bases.get(_memory(written))
            while found is not None:
                view, before, base = found
                found[1] = view._version
                if view._version == before:
                    return
                if base is None:
                    raise ExactNeeded
                torch._C._autograd._unsafe_set_version_counter((base,), (base._version + view._version - before,))
                self.metas.pop(id(base), None)
                found = self.bases.get(_memory(base))

    def memory_behind(self, fake: FakeTensor) -> int:
        """The storage that a tensor shows, remembered views resolved to their base; 0 for a tensor without strides."""
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            if fake.layout is not torch.strided:
                return 0
            memory = _memory(fake)
            while (found := self.bases.get(memory)) is not None and found[2] is not None:
                memory = _memory(found[2])
            return memory


def _memory(fake: FakeTensor) -> int:
    """Identity of a storage; a tensor without one, as a sparse tensor, stands for itself."""
    try:
        return fake.untyped_storage()._cdata
    except NotImplementedError:
        return -id(fake)


def _viewed(results: Sequence[Any], args: tuple[Any, ...]) -> list[int]:
    """The place of the argument that these results are views of, if they are."""
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        own = {_memory(result) for result in results if result is not None}
        return [place for place, value in enumerate(args) if type(value) is FakeTensor and _memory(value) in own][:1]
