"""Torch's settings while one program is traced.   torch.set_default_dtype(...) inside  ->  a node; undone at the end

Out: settings to restore after the trace, settings that the residual leaves behind, and the graph without setter calls
that change nothing.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import fx
from torch.fx.node import has_side_effect

from stator.host.mechanism import Mechanism

C: Any = torch._C
# These change the grad mode themselves, and bring it back.
_CHANGE_OTHERS = frozenset({torch.autograd.grad_mode._enter_inference_mode,
                            torch.autograd.grad_mode._exit_inference_mode})
SettingKey = tuple[int, tuple[Any, ...]]


@dataclass(frozen=True)
class Setting:
    """One setting: `setter(*key, *value)` changes what `read(*key)` answers as the tuple `value`."""

    setter: Any
    read: Callable[..., tuple[Any, ...]]
    keys: int = 0
    readers: tuple[Any, ...] = ()  # C functions whose answer it is; the entry guards do not cover them
    of_operators: bool = False  # operators look at it when they run, where a compiled graph does not set it


def _answer(reader: Any) -> Callable[..., tuple[Any, ...]]:
    return lambda *key: (reader(*key),)


def _read_by(setter: str, reader: str, keys: int = 0) -> list[Setting]:
    """A setting of torch._C that one function reads; none where this torch lacks it."""
    return [Setting(getattr(C, setter), _answer(getattr(C, reader)), keys, (getattr(C, reader),))] \
        if hasattr(C, setter) else []


def anomaly_mode() -> tuple[bool, bool]:
    return C.is_anomaly_enabled(), C.is_anomaly_check_nan_enabled()


def determinism() -> tuple[bool, bool, bool | None]:
    """Deterministic algorithms, whether they only warn, and what the switch for both sets in Inductor."""
    config = sys.modules.get("torch._inductor.config")
    return (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled(),
            None if config is None else config.deterministic)


def set_determinism(mode: bool, warn_only: bool, of_inductor: bool | None) -> None:
    config: Any = sys.modules.get("torch._inductor.config")
    if config is not None and of_inductor is not None:
        config.deterministic = of_inductor
    C._set_deterministic_algorithms(mode, warn_only=warn_only)


def process_device() -> torch.device | None:
    """The device that torch.set_default_device has set in this thread."""
    context = getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None)
    return None if context is None else context.device


def saved_hooks() -> tuple[bool, str | None]:
    """Whether hooks on saved tensors are allowed, and the message where they are not."""
    message = C._autograd._saved_tensors_hooks_get_disabled_error_message()
    return message is None, message


def set_saved_hooks(allowed: bool, message: str | None) -> None:
    if allowed:
        C._autograd._saved_tensors_hooks_enable()
    else:
        C._autograd._saved_tensors_hooks_disable(message, False)  # also where a refused attempt has left both


SAVED_HOOKS = Setting(set_saved_hooks, saved_hooks)


def leave_dual_level() -> None:
    """After a trace, or a graph that has failed, which entered forward-mode differentiation; inside it or not."""
    with contextlib.suppress(RuntimeError):  # it was outside: torch does not say otherwise
        C._exit_dual_level(level=0)


ANOMALY_MODE = Setting(C.set_anomaly_enabled, anomaly_mode,
                       readers=(C.is_anomaly_enabled, C.is_anomaly_check_nan_enabled))
FORWARD_MODE = _read_by("_set_fwd_grad_enabled", "_is_fwd_grad_enabled")  # operators look at it inside a dual level
DETERMINISM = Setting(set_determinism, determinism, of_operators=True)
SETTINGS: tuple[Setting, ...] = (
    Setting(C._set_grad_enabled, _answer(torch.is_grad_enabled)),
    Setting(C.set_autocast_enabled, _answer(C.is_autocast_enabled), keys=1),
    Setting(C.set_autocast_dtype, _answer(C.get_autocast_dtype), keys=1),
    Setting(C.set_autocast_cache_enabled, _answer(C.is_autocast_cache_enabled)),
    Setting(C._set_default_dtype, _answer(torch.get_default_dtype), of_operators=True),
    DETERMINISM,
    ANOMALY_MODE,
    *FORWARD_MODE,
    *_read_by("_set_float32_matmul_precision", "_get_float32_matmul_precision"),
    *(each for kind in ("cudnn", "flash", "math", "mem_efficient", "overrideable")
      for each in _read_by(f"_set_sdp_use_{kind}", f"_get_{kind}_sdp_enabled")),
    *(each for kind in ("cudnn_enabled", "cudnn_benchmark", "cudnn_deterministic", "cudnn_allow_tf32",
                        "cudnn_depthwise_kernel", "mkldnn_enabled", "mkldnn_deterministic", "nnpack_enabled")
      for each in _read_by(f"_set_{kind}", f"_get_{kind}")),
    *_read_by("_set_fp32_precision_setter", "_get_fp32_precision_getter", keys=2),
    *(each for kind in ("cublas_allow_tf32", "onednn_allow_tf32", "sdp_priority_order")
      for each in _read_by(f"_set_{kind}", f"_get_{kind}")),
)
for _setting in SETTINGS:  # a pass that removes dead code must not take them for dead
    has_side_effect(_setting.setter)
has_side_effect(C.clear_autocast_cache)
has_side_effect(torch.autograd.grad_mode._enter_inference_mode)
has_side_effect(torch.autograd.grad_mode._exit_inference_mode)

SETTING_OF_READER: dict[int, Setting] = {id(reader): s for s in SETTINGS for reader in s.readers}


GRAD_MODE = SETTINGS[0]


@contextlib.contextmanager
def without_grad(state: TorchState) -> Iterator[None]:
    """While the trace does what autograd itself will call, without gradients: a forward, a backward, a hook."""
    before = torch.is_grad_enabled()
    state.change(GRAD_MODE, (False,), {})
    try:
        yield
    finally:
        state.change(GRAD_MODE, (before,), {})


@dataclass
class TorchState(Mechanism):
    """Settings that one trace has changed."""

    feeds_graph = True  # each change is a node

    before: dict[SettingKey, tuple[Setting, tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=dict)
    contexts: list[tuple[Any, Any]] = field(default_factory=list)  # open (inference mode guard, its node)
    dual_levels: bool = False  # whether the graph enters forward-mode differentiation
    hooks: list[Callable[[], None]] = field(default_factory=list)  # each takes the graph's hooks off again
    autocast_depth: int = 0  # of the autocast contexts the trace itself has entered
    devices: list[torch.device] = field(default_factory=list)  # of `with torch.device(...)`, innermost last
    devices_at_start: int = 0
    default_device: tuple[torch.device | None, ...] = ()  # what the program has made the process's own, if it did
    open_contexts: int = 0  # how many were open when the trace ended
    by_program: bool = False  # whether the program itself has called a setter
    changed_blocks: dict[int, object] = field(default_factory=dict)  # exits of `with` blocks entered in a changed state
    finals: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)  # what the program leaves, once closed

    def change(self, setting: Setting, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Call the setter for real, after noting what it is about to overwrite."""
        key = args[:setting.keys]
        place = (id(setting.setter), key)
        if place not in self.before:
            before = setting.read(*key)
            if before != (None,):  # else this build of torch has no such setting: its setter warns or raises, no more
                self.before[place] = (setting, key, before)
        setting.setter(*args, **kwargs)

    def is_changed(self, setting: Setting) -> bool:
        return any(known is setting for known, _, _ in self.before.values())

    def left_behind(self) -> list[tuple[Any, tuple[Any, ...]]]:
        """The calls that bring the settings from what they were to what the program leaves."""
        found = []
        for setting, key, value in self.before.values():
            now = setting.read(*key)
            if now != value:
                found.append((setting.setter, (*key, *now)))
        return found

    def note_block(self, leave: object) -> None:
        """A `with` block is entered, known by its __exit__."""
        if self.by_program and self.left_behind():
            self.changed_blocks[id(leave)] = leave

    def restoring_calls(self) -> list[tuple[Any, tuple[Any, ...]]]:
        calls: list[tuple[Any, tuple[Any, ...]]] = [(leave_dual_level, ())] if self.dual_levels else []
        calls += [(take_off, ()) for take_off in self.hooks]
        return calls + [(setting.setter, (*key, *value)) for setting, key, value in self.before.values()]

    def close(self) -> None:
        """The trace is over: note what it leaves behind, then undo all of it."""
        self.finals = self.left_behind()
        self.finals += [(C.autocast_increment_nesting, ())] * self.autocast_depth
        self.finals += [(torch.set_default_device, (device,)) for device in self.default_device]
        self.finals += [(torch.device.__enter__, (device,)) for device in self.devices[self.devices_at_start:]]
        self.open_contexts = len(self.contexts)
        while self.contexts:
            self.contexts.pop()[0].__exit__(None, None, None)
        if self.before or C._is_any_autocast_enabled():
            C.clear_autocast_cache()  # it may hold fake tensors
        self.restore()

    def fingerprint(self) -> Any:
        return (self.left_behind(), self.autocast_depth, list(self.devices), self.default_device, len(self.contexts))

    def replay_key(self) -> tuple[Any, ...]:
        """The settings as the trace has changed them, hashable."""
        if not (self.before or self.contexts or self.devices or self.autocast_depth or self.default_device):
            return ()
        return (tuple((id(setter), args) for setter, args in self.left_behind()), self.autocast_depth,
                tuple(self.devices), self.default_device, len(self.contexts))

    def clear(self) -> None:
        pass  # it holds no user objects

    def restore(self) -> None:
        for setter, args in self.restoring_calls():
            setter(*args)


SETTING_OF_SETTER = {id(setting.setter): setting for setting in SETTINGS}


def drop_idle_settings(graph: fx.Graph, state: TorchState) -> int:
    if not state.before:
        return 0
    current: dict[SettingKey, tuple[Any, ...]] = {place: value for place, (_, _, value) in state.before.items()}
    pending: dict[SettingKey, fx.Node] = {}
    dropped: list[fx.Node] = []
    for node in list(graph.nodes):
        setting = SETTING_OF_SETTER.get(id(node.target)) if node.op == "call_function" else None
        if setting is not None and not node.kwargs:
            place = (id(setting.setter), node.args[:setting.keys])
            overwritten = pending.pop(place, None)
            if overwritten is not None:
                dropped.append(overwritten)
            pending[place] = node
        elif node.op not in ("placeholder", "get_attr"):
            _settle(pending, current, dropped)
            if setting is not None or node.target in _CHANGE_OTHERS:
                current.clear()  # from here on nothing is known
    _settle(pending, current, dropped)
    for node in dropped:
        graph.erase_node(node)
    return len(dropped)


def _settle(pending: dict[SettingKey, fx.Node], current: dict[SettingKey, tuple[Any, ...]],
            dropped: list[fx.Node]) -> None:
    """An operation runs: what is set by now counts."""
    for place, node in pending.items():
        value = node.args[len(place[1]):]
        if current.get(place) == value:
            dropped.append(node)
        current[place] = value
    pending.clear()


def only_settings(graph: fx.Graph) -> bool:
    """Whether no operation is left: what the program leaves set is set without the graph."""
    return all(node.op == "call_function" and id(node.target) in SETTING_OF_SETTER for node in graph.nodes
               if node.op not in ("placeholder", "get_attr", "output"))
