"""Tensors.   t.grad = g, t.requires_grad_(), t.register_hook(f)  ->  notes that the residual writes back

All tables but `attributes` have the id of a fake (or of a handle) as their key, and hold the object that it belongs to.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from stator.host.mechanism import Mechanism, key_ids


@dataclass(slots=True, eq=False)
class TensorState(Mechanism):
    """Members of tensors that the program has set."""

    attributes: dict[int, dict[str, Any]] = field(default_factory=dict)  # in the __dict__
    grads: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # -> (the fake, what the program made its .grad)
    flags: dict[int, Any] = field(default_factory=dict)  # -> how requires_grad changes (see tensors/grad_flags)
    data: dict[int, Any] = field(default_factory=dict)  # -> the memory it gets (see tensors/data_assignments)

    def fingerprint(self) -> Any:
        return self.has_changes() and (
            key_ids(self.attributes),  # type: ignore[arg-type]
            [(key, id(grad)) for key, (_, grad) in self.grads.items()],
            [(key, flag.entry, flag.final) for key, flag in self.flags.items()],
            [(key, id(note.value)) for key, note in self.data.items()])

    def has_changes(self) -> bool:
        return bool(self.attributes or self.grads or self.flags or self.data)


@dataclass(slots=True, eq=False)
class AutogradState(Mechanism):
    """Hooks, leaves and levels of differentiation."""

    nodes: dict[int, Any] = field(default_factory=dict)  # the grad_fn of fake tensors
    hooks: dict[int, tuple[Any, Any]] = field(default_factory=dict)  # -> (a handle, its hook; None: removed)
    watches: dict[int, Any] = field(default_factory=dict)  # id of a BackwardHook made inside -> (it, its node)
    leaves: list[Any] = field(default_factory=list)  # tensors of the graph that were made to require a gradient
    retained: dict[int, Any] = field(default_factory=dict)  # tensors of the graph that are to keep their gradients
    dual_levels: list[int] = field(default_factory=list)  # of forward-mode differentiation, entered by the trace
    pushed_hooks: list[Any] = field(default_factory=list)  # on saved tensors, by the trace
    hook_cells: list[Any] = field(default_factory=list)  # variables of hooks made inside, and what was in them

    def fingerprint(self) -> Any:
        return len(self.hooks)

    def replay_key(self) -> Any:
        return len(self.hooks), len(self.nodes)

    def has_changes(self) -> bool:
        return bool(self.hooks)

    def allows_replay(self) -> bool:
        return not (self.hooks or self.watches or self.leaves)
