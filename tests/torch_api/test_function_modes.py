"""TorchFunctionModes of the program: what their handlers see, and what they answer, is what eager shows."""

from __future__ import annotations

import contextlib
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

import stator
from stator import events
from tests.comparison import same_as_eager


class Log(TorchFunctionMode):
    """Notes every question as torch puts it."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append((func.__name__, tuple(kind.__name__ for kind in types), len(args), kwargs and [*kwargs]))
        return func(*args, **(kwargs or {}))


class Swap(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (torch.cos if func is torch.sin else func)(*args, **(kwargs or {}))


class Scale(TorchFunctionMode):
    def __init__(self, factor: float) -> None:
        self.factor = factor

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        return out * self.factor if isinstance(out, torch.Tensor) else out


class Refusing(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.cos:
            raise ValueError("no cos")
        return func(*args, **(kwargs or {}))


class Again(TorchFunctionMode):
    depth = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.depth == 2:
            return func(*args, **(kwargs or {}))
        self.depth += 1
        with self:
            return func(*args, **(kwargs or {})) + 1


linear = torch.nn.Linear(2, 2)
layers = torch.nn.Sequential(torch.nn.ReLU(), linear, torch.nn.LayerNorm(2))


def questions(x: Any) -> Any:
    log = Log()
    with log:
        y = 1 - (torch.sin(x) + 1)
        y = F.relu(y.T)[0]
        n, shape = len(y), y.shape
        y = torch.add(-y, torch.zeros(2), alpha=2)
        y = F.dropout(linear(y), 0.5, False)
        y = torch.stack([y, y])
        y = y.matmul(y) @ y
        y += 1
        y[0] = 2.0
        y = 2 / torch.einsum("ij->j", y) ** 2
        with torch.no_grad():
            y = torch.split(y.to(torch.float64), 1)[0] * 2
        needs = y.requires_grad
        y = F.softmax(torch.cat([abs(y), y]).sum(dim=0, keepdim=True), dim=-1)
    return y, log.seen, n, shape, needs, y > 0


def swapped(x: Any) -> Any:
    with Swap():
        inside = torch.sin(x)
    return inside, torch.sin(x)


def nested(x: Any) -> Any:
    log = Log()
    with Swap(), log, Scale(3.0):
        return torch.sin(x), torch.ones(2), log.seen


def caught(x: Any) -> Any:
    with Refusing():
        try:
            return torch.cos(x)
        except ValueError as error:
            return torch.sin(x), str(error)


def raised(x: Any) -> Any:
    with Refusing():
        return torch.cos(x)


def devices(x: Any) -> Any:
    log = Log()
    with torch.device("meta"), log:
        made, named = torch.zeros(2), torch.device("cpu")
    return made.device, named, log.seen


def entered_again(x: Any) -> Any:
    with Again() as mode:
        return torch.sin(x), mode.depth


def by_hand(x: Any) -> Any:
    log = Log()
    log.__enter__()
    y = x + 1
    log.__exit__(None, None, None)
    return y * 2, log.seen


def modules(x: Any) -> Any:
    with Log() as log:
        y = layers(x)
    return y, log.seen


def without_tensors(x: Any) -> Any:
    with Log() as log:
        numbers = [len([x]), isinstance(x, torch.Tensor), type(x).__name__, 3 + 4]
    return numbers, log.seen


@pytest.mark.parametrize("fn", [questions, swapped, nested, caught, raised, devices, entered_again, by_hand, modules,
                                without_tensors], ids=lambda fn: fn.__name__)
def test_a_mode_entered_inside(fn: Any) -> None:
    x = torch.arange(4.0).reshape(2, 2)
    same_as_eager(fn, (x,), (x + 1,), (x,))


def branches(x: Any) -> Any:
    with Log() as log:
        y = x * 2
        if y.sum() > 0:
            y = y + 1
    return y, log.seen


def prints(x: Any) -> Any:
    with Log() as log:
        print(x * 2, [x])
    return log.seen


def formats(x: Any) -> Any:
    with Log() as log:
        text = f"{x}"
    return text, log.seen


def iterates(x: Any) -> Any:
    with Log() as log:
        parts = [part + 1 for part in x]
    return parts, log.seen


def adds_up(x: Any) -> Any:
    with Log() as log:
        y = sum([x, x])
    return y, log.seen


def leaves_on(x: Any) -> Any:
    log = Log()
    log.__enter__()
    try:
        return x + 1
    finally:
        stator.graph_break()
        log.__exit__(None, None, None)


def marks_a_leaf(x: Any) -> Any:
    with Log() as log:
        y = x.clone()
        y.requires_grad = True
    return y, log.seen


@pytest.mark.parametrize("fn", [branches, prints, formats, iterates, adds_up, leaves_on, marks_a_leaf],
                         ids=lambda fn: fn.__name__)
def test_what_the_interpreter_does_its_own_way_breaks(fn: Any) -> None:
    x = torch.arange(4.0).reshape(2, 2)
    same_as_eager(fn, (x,), (x + 1,), fullgraph=False)


def test_the_cause_is_told() -> None:
    with pytest.raises(stator.Unsupported, match="truth of a tensor"):
        stator.compile(branches, backend="eager", fullgraph=True)(torch.ones(2))


shared = Scale(2.0)


def under_shared(x: Any) -> Any:
    with shared:
        return torch.sin(x)


def test_state_and_class_of_a_mode_are_guarded(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2)
    compiled = stator.compile(under_shared, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), under_shared(x))
    monkeypatch.setattr(shared, "factor", 5.0)
    torch.testing.assert_close(compiled(x), torch.sin(x) * 5)
    monkeypatch.setattr(Scale, "__torch_function__", lambda self, func, types, args=(), kwargs=None: args[0] + 7)
    torch.testing.assert_close(compiled(x), x + 7)


def test_torchs_own_stack_is_left_alone() -> None:
    compiled = stator.compile(nested, backend="eager", fullgraph=True)
    compiled(torch.ones(2))
    assert torch._C._len_torch_function_stack() == 0


def plain(x: Any) -> Any:
    y = torch.sin(x) + 1
    return F.relu(y.T) - x.shape[0], torch.ones(2)


def through_a_break(x: Any) -> Any:
    y = torch.sin(x)
    stator.graph_break()
    if y.sum() > 0:
        y = torch.sin(y) + 1
    print(y)
    return y


def entering_more(x: Any) -> Any:
    with Scale(2.0):
        y = torch.sin(x)
    return torch.sin(y)


def require_equal(found: Any, expected: Any) -> None:
    (leaves, shape), (wanted, wanted_shape) = pytree.tree_flatten(found), pytree.tree_flatten(expected)
    assert shape == wanted_shape
    for leaf, other in zip(leaves, wanted, strict=True):
        assert torch.equal(leaf, other) if isinstance(other, torch.Tensor) else leaf == other


@pytest.mark.parametrize("fn", [plain, through_a_break, entering_more, questions], ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_modes_around_the_call(fn: Any, backend: str, capsys: pytest.CaptureFixture[str]) -> None:
    x = torch.arange(4.0).reshape(2, 2)
    whole = fn is not through_a_break
    compiled = stator.compile(fn, backend=backend, fullgraph=whole)
    eager_log, log = Log(), Log()
    for number in range(3):
        with Swap(), eager_log, Scale(3.0 + (number == 2)):
            expected = fn(x)
        text = capsys.readouterr().out
        with Swap(), log, Scale(3.0 + (number == 2)) as innermost:
            found = compiled(x)
            stack = torch.overrides._get_current_function_mode_stack()
            assert stack[1] is log and stack[2] is innermost and len(stack) == 3
        assert capsys.readouterr().out == text
        assert log.seen == eager_log.seen
        require_equal(found, expected)
    require_equal(compiled(x), fn(x))
    assert torch._C._len_torch_function_stack() == 0


def test_modes_around_the_call_are_guarded() -> None:
    x = torch.ones(2)
    compiled = stator.compile(lambda x: torch.sin(x), backend="eager", fullgraph=True)
    first, second = Scale(2.0), Scale(3.0)
    for _ in range(2):
        for mode in (first, second):
            with mode:
                torch.testing.assert_close(compiled(x), torch.sin(x))
        torch.testing.assert_close(compiled(x), torch.sin(x))
    first.factor = 7.0
    with first:
        found = compiled(x)
    torch.testing.assert_close(found, torch.sin(x) * 7)
    with torch.device("meta"), first:
        assert stator.compile(lambda: torch.ones(2), backend="eager", fullgraph=True)().device.type == "meta"


def test_a_mode_sees_a_program_that_raises() -> None:
    compiled, mode = stator.compile(raised, backend="eager"), Log()
    with mode, pytest.raises(ValueError, match="no cos"):
        compiled(torch.ones(2))
    assert torch._C._len_torch_function_stack() == 0


def writes(x: Any, kept: dict[str, Any]) -> Any:
    x.add_(1)
    kept["flat"] = x.view(-1)
    return x, linear(x).sum()


def test_writes_views_and_gradients_under_a_mode() -> None:
    compiled = stator.compile(writes, backend="aot_eager", fullgraph=True)
    eager_log, log = Log(), Log()
    for _ in range(2):
        x, y, kept, other = torch.zeros(2, 2), torch.zeros(2, 2), {}, {}  # type: Any, Any, Any, Any
        with eager_log:
            _, total = writes(x, kept)
        expected = torch.autograd.grad(total, linear.weight)[0]
        with log:
            same, total = compiled(y, other)
        assert same is y and torch.equal(x, y) and other["flat"].data_ptr() == y.data_ptr()
        torch.testing.assert_close(torch.autograd.grad(total, linear.weight)[0], expected)
        assert log.seen == eager_log.seen


# ---------------------------------------------------------------------- a new mode at every call


class Weighted(TorchFunctionMode):
    """Reads itself: a number, a tensor, and a list that it writes to."""

    def __init__(self, factor: float, bias: torch.Tensor) -> None:
        self.factor, self.bias = factor, bias
        self.seen: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(func.__name__)
        out = func(*args, **(kwargs or {}))
        return out * self.factor + self.bias if func is torch.sin else out


class Other(Weighted):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {})) - self.factor


def under_modes(function: Any, modes: list[Any], x: torch.Tensor) -> Any:
    with contextlib.ExitStack() as stack:
        for mode in modes:
            stack.enter_context(mode)
        value = function(x)
    return value.tolist(), [mode.seen for mode in modes if isinstance(mode, Weighted)]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_new_instances_are_no_reason_to_compile_again(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x).cos()

    compiled = stator.compile(program, backend=backend)
    captures = []
    for number, make in enumerate((
            lambda: [Weighted(2.0, torch.ones(3))], lambda: [Weighted(2.0, torch.full((3,), 5.0))],
            lambda: [Weighted(3.0, torch.ones(3))], lambda: [Other(2.0, torch.ones(3))],
            lambda: [torch.device("cpu"), Weighted(2.0, torch.ones(3)), Other(2.0, torch.ones(3))],
            lambda: [torch.device("cpu"), Weighted(2.0, torch.zeros(3)), Other(2.0, torch.ones(3))],
            lambda: [Weighted(2.0, torch.arange(3.0))], lambda: [])):
        x = torch.full((3,), 0.5 + number)
        with events.record() as log:
            found = under_modes(compiled, make(), x)
        assert found == under_modes(program, make(), x), number
        captures.append(sum(isinstance(event, events.CaptureFinished) for event in log))
    assert [bool(each) for each in captures] == [True, False, True, True, True, False, False, True]


def test_a_mode_is_not_kept_alive() -> None:
    compiled = stator.compile(torch.sin, backend="eager")
    mode = Weighted(2.0, torch.ones(2))
    with mode:
        compiled(torch.ones(2))
    gone = weakref.ref(mode)
    del mode
    gc.collect()
    assert gone() is None


def test_one_mode_that_changes() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.sin(x)

    compiled, mode, other = stator.compile(program, backend="eager"), Weighted(2.0, torch.ones(2)), \
        Weighted(2.0, torch.ones(2))
    for factor in (2.0, 2.0, 7.0, 2.0):
        mode.factor = other.factor = factor
        assert under_modes(compiled, [mode], torch.ones(2)) == under_modes(program, [other], torch.ones(2))
