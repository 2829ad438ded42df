"""Branches on values that a guard computes again.   if rho_t > 5.0: ...  ->  the way taken, and a guard

In: a condition over numbers from CPU tensors of one element that outside objects hold: step counts of an optimizer;
under fullgraph, where the alternative is an error, any value that follows from CPU tensors.  Out: that value.  One
guard for all of them runs the slice of the graph behind them, on copies where it writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import sympy
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor, unset_fake_temporarily
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from stator.graph.fx.graph_modules import Source as Text
from stator.shapes.environment import UNKNOWN
from stator.shapes.symbolic_values import is_unbacked
from stator.source import Attr, Key, Slot

if TYPE_CHECKING:
    from stator.graph.values.known_values import KnownValues

Function = Callable[..., str]
_FILENAME = "<stator branches>"
AHEAD_LIMIT = 1 << 24  # elements that a guard may make: it does so in each call
_own = torch._C.TensorBase
_STATE = (Key, Attr, Slot)


class NotKnown(Exception):
    """The slice cannot be run while tracing."""


class Watch(TorchDispatchMode):
    """Refuses randomness and too much work."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.made, self.limit = 0, limit

    def __torch_dispatch__(self, func: Any, types: object, args: tuple[Any, ...] = (),
                           kwargs: dict[str, Any] | None = None) -> Any:
        if torch.Tag.nondeterministic_seeded in func.tags:
            raise NotKnown
        result = func(*args, **(kwargs or {}))
        self.made += sum(leaf.numel() for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor))
        if self.made > self.limit:
            raise NotKnown
        return result


class GuardedBranches:
    """Values of one trace that decide its way, and the nodes behind them."""

    def __init__(self) -> None:
        self.inputs: dict[fx.Node, Any] = {}
        self.found: dict[fx.Node, Any] = {}
        self._writes = False
        self._text = Text()
        self._names: dict[fx.Node, str] = {}
        self._lines: dict[fx.Node, str] = {}

    def add(self, root: fx.Node, needed: set[fx.Node], inputs: list[Any], value: object, writes: bool) -> None:
        """Write the nodes down as they are now: later stages change them."""
        self.found[root] = value
        self._writes = self._writes or writes
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
        if self.found:
            sources = [each.source for each in self.inputs.values()]
            guard_call(self.function(), shown(tuple(self.found.values())), *sources)

    def function(self) -> Function:
        """The values, computed from the contents of the inputs."""
        constant, given = self._text.constant, [self._names[node] for node in self.inputs]
        values = "".join([f"{constant(number_in)}({self._names[root]}), " for root in self.found])
        tensors = [self._names[node] for node, each in self.inputs.items() if each.tensor is not None]
        taken = constant(copied if self._writes else detached)
        body = [f"{name} = {taken}({name})" for name in tensors] + list(self._lines.values())
        lines = [f"def values({', '.join(given)}):", f"    with {constant(plainly)}():",
                 *[f"        {line}" for line in body], f"        return {constant(shown)}(({values}))"]
        exec(compile("\n".join(lines), _FILENAME, "exec"), self._text.names)  # noqa: S102  our own text
        return self._text.names["values"]  # type: ignore[no-any-return]


def written(truths: Iterable[bool]) -> str:
    """Truths as a text that a guard compares."""
    return "".join(["T" if each else "F" for each in truths])


def ahead_of_scalar(known: KnownValues, fake: FakeTensor) -> Any:
    """The value of a tensor of one element, under a guard that computes it again."""
    if not known.ahead or type(fake.numel()) is not int or fake.numel() != 1:
        return UNKNOWN
    found = _computed(known, known.recorder.node_of(fake))
    while isinstance(found, list):
        found = found[0]
    return found


def behind_number(known: KnownValues, value: torch.SymBool | torch.SymInt) -> Any:
    """The value of a condition or number, under a guard that computes it again."""
    symbols, expression = known.recorder.symbols, value.node.expr
    if not all(symbol in symbols.definitions or symbol in symbols.shape_env.backed_var_to_val
               for symbol in expression.free_symbols):
        return UNKNOWN
    node = symbols.node_of(value)
    if type(node) is not fx.Node:
        return node
    found = _computed(known, node)
    if type(found) is int and isinstance(expression, sympy.Symbol):
        symbols.shape_env.size_like.discard(expression)
        symbols.shape_env._set_replacement(expression, sympy.Integer(found), "a guard that computes it")
    return found


def settled_place(known: KnownValues, key: object) -> object:
    """An index with its numbers known: torch has no fake for an unbacked element of a view with a history."""
    if type(key) is tuple:
        return tuple([settled_place(known, part) for part in key])
    number = known.of_number(key) if type(key) is torch.SymInt and is_unbacked(key) else UNKNOWN
    return key if number is UNKNOWN else number


def _computed(known: KnownValues, node: fx.Node) -> object:
    unknown, known.unknown = known.unknown, set()
    try:
        with unset_fake_temporarily(), torch._C.DisableTorchFunction():
            return number_in(known.run(node, branch=True))
    except NotKnown:
        return UNKNOWN
    finally:
        known.unknown = unknown


def shown(values: tuple[Any, ...]) -> str:
    """Values as a text that a guard compares: it distinguishes 1 from 1.0 and True, and 0.0 from -0.0."""
    return repr(values)


def number_in(value: object) -> object:
    return value.tolist() if isinstance(value, torch.Tensor) else value


def computes(given: Any) -> bool:
    """Whether a guard may compute with an input: a plain tensor of the CPU, or a number that has a value now."""
    tensor = given.tensor
    if tensor is None:
        return type(given.fake) in (torch.SymInt, torch.SymFloat) and given.fake.node.hint is not None
    return type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided \
        and tensor.device.type == "cpu"


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


def detached(tensor: torch.Tensor) -> torch.Tensor:
    return _own.detach(tensor)


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
