"""Branches on numbers of outside state.   if rho_t > 5.0: ...  ->  the way taken, and a guard that computes it again

In: a condition over numbers from CPU tensors of one element that outside objects hold: step counts of an optimiser.
Out: its truth.  One guard for all conditions of a trace runs the slice of the graph behind them, on copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import fx

from stator.graph.fx.graph_modules import Source as Text
from stator.source import Attr, Key, Slot

Function = Callable[..., str]
_FILENAME = "<stator branches>"
_own = torch._C.TensorBase
_STATE = (Key, Attr, Slot)


class GuardedBranches:
    """Conditions of one trace, the nodes behind them, and their truths."""

    def __init__(self) -> None:
        self.inputs: dict[fx.Node, Any] = {}
        self.truths: dict[fx.Node, bool] = {}
        self._text = Text()
        self._names: dict[fx.Node, str] = {}
        self._lines: dict[fx.Node, str] = {}

    def add(self, root: fx.Node, needed: set[fx.Node], inputs: list[Any], truth: bool) -> None:
        """Write the nodes down as they are now: later stages change them."""
        self.truths[root] = truth
        self.inputs.update((each.node, each) for each in inputs)
        lines, self._lines = self._lines, {}
        for node in root.graph.nodes:
            if node in needed and node not in self._names:
                self._names[node] = f"v{len(self._names)}"
                if node.op != "placeholder":
                    lines[node] = f"{self._names[node]} = {self._text.call(node, self._names)}"
            if node in lines:
                self._lines[node] = lines[node]

    def add_guard(self, guard_call: Callable[..., None]) -> None:
        if self.truths:
            sources = [each.source for each in self.inputs.values()]
            guard_call(self.function(), written(self.truths.values()), *sources)

    def function(self) -> Function:
        """The truths, computed from the contents of the inputs."""
        constant, given = self._text.constant, [self._names[node] for node in self.inputs]
        truths = "".join([f"bool({self._names[root]}), " for root in self.truths])
        tensors = [self._names[node] for node, each in self.inputs.items() if each.tensor is not None]
        body = [f"{name} = {constant(copied)}({name})" for name in tensors] + list(self._lines.values())
        lines = [f"def truths({', '.join(given)}):", f"    with {constant(plainly)}():",
                 *[f"        {line}" for line in body], f"        return {constant(written)}(({truths}))"]
        exec(compile("\n".join(lines), _FILENAME, "exec"), self._text.names)  # noqa: S102  our own text
        return self._text.names["truths"]  # type: ignore[no-any-return]


def written(truths: Iterable[bool]) -> str:
    """Truths as a text that a guard compares."""
    return "".join(["T" if each else "F" for each in truths])


def may_decide(given: Any) -> bool:
    """Whether branches on the number in an input may become guards: state of an object, no argument."""
    tensor = given.tensor
    if not isinstance(given.source, _STATE):
        return False
    if tensor is None:
        return type(given.fake) is torch.SymInt and given.fake.node.hint is not None
    return isinstance(tensor, torch.Tensor) and tensor.layout is torch.strided and tensor.device.type == "cpu" \
        and tensor.numel() == 1


def contents_of(given: Any) -> Any:
    return given.fake.node.hint if given.tensor is None else copied(given.tensor)


def copied(tensor: torch.Tensor) -> torch.Tensor:
    return _own.clone(_own.detach(tensor))


class plainly:
    """Without gradients and without the modes of the program."""

    def __enter__(self) -> None:
        self.off = [torch._C.DisableTorchFunction(), torch._C._DisableTorchDispatch()]
        for each in self.off:
            each.__enter__()
        self.grad = torch.is_grad_enabled()
        torch._C._set_grad_enabled(False)

    def __exit__(self, *error: object) -> None:
        torch._C._set_grad_enabled(self.grad)
        for each in reversed(self.off):
            each.__exit__(*error)
