"""Every way to write to a tensor: known whatever it is called, under every way that two inputs share memory."""

from __future__ import annotations

import contextlib
import io
import traceback
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import facts_of_writers  # noqa: F401  (defines custom operators)
import pytest
import torch
import torch.nn.functional as F

import stator
from stator.graph.analysis import mutation
from stator.graph.analysis.mutation import is_repeatable, written_by

INDEX = torch.tensor([0, 1])
LOG: list[str] = []
bump, noted = facts_of_writers.bump, facts_of_writers.noted
_library = torch.library.Library("stator_writers", "FRAGMENT")
_library.define("scale(Tensor x, *, Tensor(a!)? y=None, Tensor(b!)[]? rest=None) -> ()")


def _scale(x: torch.Tensor, *, y: torch.Tensor | None = None, rest: Any = None) -> None:
    for each in (y, *(rest or ())):
        if each is not None:
            each.mul_(2)


_library.impl("scale", _scale, "CompositeExplicitAutograd")
torch.library.register_fake("stator_writers::scale", lambda x, *, y=None, rest=None: None, lib=_library)


def add(a: torch.Tensor) -> torch.Tensor:
    """Called like a function of torch that writes to nothing."""
    a.view(-1).add_(1)
    return a.sum()


def nested(parts: dict[str, list[torch.Tensor]]) -> torch.Tensor:
    parts["k"][0].add_(1)
    return parts["k"][0] * 1


for function in (add, nested):
    stator.allow_in_graph(function)

WRITERS: dict[str, Callable[..., Any]] = {
    "method": lambda a: a.add_(1),
    "overload": lambda a: torch.ops.aten.add_.Tensor(a, 1),
    "packet": lambda a: torch.ops.aten.add_(a, 1),
    "custom": lambda a: bump(a),
    "keyword": lambda a: torch.ops.stator_writers.scale(torch.zeros(1), y=a),
    "list": lambda a: torch.ops.stator_writers.scale(torch.zeros(1), rest=[torch.ones(1), a]),
    "allowed": lambda a: facts_of_writers.raised(a),
    "named like torch's": lambda a: add(a),
    "nested": lambda a: nested({"k": [a]}),
    "max_norm": lambda a: F.embedding(INDEX, a, max_norm=1.0),
    "statistics": lambda a: F.batch_norm(torch.ones(4, 3) * 2, a[0], a[1], training=True),
    "statistics of torch": lambda a: torch.batch_norm(torch.ones(4, 3) * 2, None, None, a[0], a[1], True, 0.1, 1e-5, False),
    "instances": lambda a: F.instance_norm(torch.arange(24.0).view(2, 3, 4), a[0], a[1]),
    "out": lambda a: torch.mul(torch.ones(2, 3), 5, out=a),
    "outs": lambda a: torch.max(torch.ones(2, 3, 4), 2, out=(a, torch.empty(2, 3, dtype=torch.long))),
    "foreach": lambda a: torch._foreach_add_([a], 1),
    "positional inplace": lambda a: F.threshold(a, 2.0, 9.0, True),
    "item": lambda a: a.__setitem__(0, 9.0),
    "augmented": lambda a: a.__iadd__(1),
    "data": lambda a: a.data.add_(1),
    "view of a view": lambda a: a.view(-1)[1:].unsqueeze(0).mul_(3),
}


def ramp() -> torch.Tensor:
    return torch.arange(6.0).reshape(2, 3) + 1


def apart() -> tuple[Any, ...]:
    return ramp(), ramp()


def twice() -> tuple[Any, ...]:
    one = ramp()
    return one, one


def viewed() -> tuple[Any, ...]:
    one = ramp()
    return one, one.view(2, 3)


def neighbours() -> tuple[Any, ...]:
    base = torch.arange(12.0) + 1
    return base[:6].view(2, 3), base[6:].view(2, 3)


def outcome(fn: Callable[..., Any], args: tuple[Any, ...]) -> Any:
    try:
        result = fn(*args)
    except Exception as error:
        result = (type(error), str(error))
    return [plain(result), plain(args)]


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    return [plain(each) for each in value] if isinstance(value, (tuple, list)) else value


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("order", [(apart, twice, viewed, neighbours), (twice, apart)], ids=["apart first", "one first"])
@pytest.mark.parametrize("writer", WRITERS)
def test_inputs_that_share_memory(writer: str, order: Any, backend: str) -> None:
    def fn(a: torch.Tensor, b: torch.Tensor) -> Any:
        WRITERS[writer](a)
        return b * 2, b.sum().item() > 30

    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for make in order:
        assert outcome(compiled, make()) == outcome(fn, make()), make.__name__


def number_apart() -> tuple[Any, ...]:
    return torch.tensor(3), torch.tensor(3)


def number_twice() -> tuple[Any, ...]:
    number = torch.tensor(3)
    return number, number


def number_in_a_base() -> tuple[Any, ...]:
    base = torch.tensor([3, 5])
    return base[0], base[0]


READERS: dict[str, Callable[[torch.Tensor], Any]] = {
    "item": lambda n: 1 if n.item() > 3 else 2,
    "int": lambda n: 1 if int(n) > 3 else 2,
    "float": lambda n: 1 if float(n) > 3 else 2,
    "truth": lambda n: 1 if n - 3 else 2,
    "itself": lambda n: 1 if n else 2,
    "list": lambda n: n.view(1).tolist()[0] > 3,
    "size": lambda n: torch.ones(n.item()),
    "repeat": lambda n: torch.ones(2).repeat(n),
    "slice": lambda n: torch.arange(9)[:n],
    "range": lambda n: sum(range(n)),
    "text": lambda n: f"{n.item()}",
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("reader", READERS)
def test_numbers_read_after_a_write(reader: str, backend: str) -> None:
    def fn(n: torch.Tensor, m: torch.Tensor) -> Any:
        torch.ops.aten.sub_.Tensor(m, 3 if reader == "itself" else -1)
        return READERS[reader](n)

    for order in ((number_apart, number_twice, number_in_a_base, number_apart), (number_twice, number_apart)):
        compiled = stator.compile(fn, backend=backend, options={"strict": True})
        for make in order:
            assert outcome(compiled, make()) == outcome(fn, make()), make.__name__


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("writer", sorted(set(WRITERS) - {"statistics", "statistics of torch", "instances", "max_norm", "outs"}))
def test_writes_before_a_failure(writer: str, backend: str) -> None:
    def fn(a: torch.Tensor, index: torch.Tensor) -> Any:
        WRITERS[writer](a)
        return a[index]

    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for number in (1, 7, 0):
        assert outcome(compiled, (ramp(), torch.tensor([number]))) == outcome(fn, (ramp(), torch.tensor([number])))


def noted_alone(x: Any, index: Any, log: Any) -> Any:
    return noted(x)[index]


def noted_between(x: Any, index: Any, log: Any) -> Any:
    log.append("before")
    y = noted(x)
    log.append("between")
    z = y[index]
    log.append("after")
    return z


def printed(x: Any, index: Any, log: Any) -> Any:
    stator.print("seen", x)
    return x[index]


def handled(x: Any, index: Any, log: Any) -> Any:
    try:
        x.add_(1)
        y = noted(x)[index]
    except IndexError as error:
        log.append(str(error))
        return x
    return y


def divided(x: Any, index: Any, log: Any) -> Any:
    y = noted(x)
    x.mul_(2)
    return y, torch.tensor([3]) // (index - 7)


def asserted(x: Any, index: Any, log: Any) -> Any:
    y = noted(x)
    log.append(1)
    if not (index < 5).all():
        raise ValueError("too large")
    return y


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", [noted_alone, noted_between, printed, handled, divided, asserted], ids=lambda fn: fn.__name__)
def test_effects_happen_once(fn: Any, backend: str) -> None:
    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for number in (1, 7, 0):
        seen = []
        for subject in (fn, compiled):
            facts_of_writers.NOTES.clear()
            log: list[Any] = facts_of_writers.NOTES
            with redirect_stdout(io.StringIO()) as text:
                seen.append((outcome(subject, (torch.ones(3), torch.tensor([number]), log)), list(log), text.getvalue()))
        assert seen[1] == seen[0]


def test_a_whole_graph_has_its_effects_once() -> None:
    compiled = stator.compile(noted_alone, backend="eager", fullgraph=True)
    compiled(torch.ones(3), torch.tensor([1]), [])
    facts_of_writers.NOTES.clear()
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]), [])
    assert facts_of_writers.NOTES == ["noted"]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("writer", WRITERS)
def test_nodes_tell_what_they_write_to(writer: str, inference: bool) -> None:
    """Also where no version is counted; the pure call beside it writes to nothing."""
    found: list[Any] = []

    def backend(gm: Any, inputs: Any) -> Any:
        found.extend(node for node in gm.graph.nodes if written_by(node))
        return gm

    def fn(a: torch.Tensor) -> torch.Tensor:
        WRITERS[writer](a)
        return F.relu(a * 2)

    with torch.inference_mode(inference):
        stator.compile(fn, backend=backend, options={"strict": True})(ramp())
    assert found and all(is_repeatable(node) == (writer not in OPAQUE) for node in found)


OPAQUE = {"custom", "keyword", "list", "allowed", "named like torch's", "nested"}


def test_functions_that_only_read() -> None:
    with torch._subclasses.FakeTensorMode():
        x, mean = torch.ones(4, 3), torch.ones(3)
    for func, args in ((torch.sort, (x,)), (torch.Tensor.clamp, (x,)), (torch.ops.aten.add.Tensor, (x, x)),
                       (F.batch_norm, (x, mean, mean)), (torch.add, (x, x)), (torch.max, (x, 1))):
        assert mutation.declared_writes(func, args, {}) == []
    assert mutation.declared_writes(F.relu, (x,), {}) is None


def test_the_memo_never_learns_a_write() -> None:
    def fn(x: torch.Tensor) -> torch.Tensor:
        return F.hardtanh(x, 0.0, 2.0, True) + x

    for _ in range(2):
        compiled = stator.compile(fn, backend="aot_eager")
        assert outcome(compiled, (ramp(),)) == outcome(fn, (ramp(),))


def indexed(y: Any, index: Any) -> Any:
    return (y + 1)[index]


def line_of_a_callee(x: Any, index: Any, log: Any) -> Any:
    y = noted(x)
    return indexed(y, index - index), indexed(y, index)


def line_before_the_call(x: Any, index: Any, log: Any) -> Any:
    y = indexed(x, index)
    return noted(y)


def line_of_the_call(x: Any, index: Any, log: Any) -> Any:
    y = facts_of_writers.picky(x + 1)
    z = facts_of_writers.picky(y * index)
    return facts_of_writers.picky(z)


def line_of_a_comprehension(x: Any, index: Any, log: Any) -> Any:
    return [noted(x)[each]
            for each in (index - index, index)]


def line_of_a_generator(x: Any, index: Any, log: Any) -> Any:
    def parts() -> Any:
        yield noted(x)
        yield x[index]

    return list(parts())


def line_after_a_function_of_the_graph(x: Any, index: Any, log: Any) -> Any:
    facts_of_writers.raised(x)
    x.mul_(2)
    return x.sin()[index]


class Layer(torch.nn.Module):
    def forward(self, x: Any, index: Any) -> Any:
        y = facts_of_writers.picky(x * 0 + index)
        return x + indexed(y, index - index)


LAYERS = torch.nn.ModuleList(Layer() for _ in range(4))


def line_of_one_of_many_layers(x: Any, index: Any, log: Any) -> Any:
    for layer in LAYERS[:3]:
        x = layer(x, index - index)
    return LAYERS[3](x, index)


@contextlib.contextmanager
def logged(log: Any) -> Any:
    try:
        yield
    finally:
        log.append("left")


def cleaned_up(x: Any, index: Any, log: Any) -> Any:
    try:
        return noted(x)[index]
    finally:
        log.append("finally")


def cleaned_up_before_the_call(x: Any, index: Any, log: Any) -> Any:
    try:
        y = x[index]
    finally:
        x.add_(1)
        log.append(x.tolist())
    return noted(y)


def cleaned_up_by_a_manager(x: Any, index: Any, log: Any) -> Any:
    with logged(log):
        return noted(x)[index]


def cleaned_up_after_the_call_itself(x: Any, index: Any, log: Any) -> Any:
    try:
        return facts_of_writers.picky(x * index)
    finally:
        log.append("finally")


def written_before_the_call(x: Any, index: Any, log: Any) -> Any:
    log.append(x)
    x.add_(1)
    y = x[index]
    return noted(y)


CLEANED = [cleaned_up, cleaned_up_before_the_call, cleaned_up_by_a_manager, cleaned_up_after_the_call_itself,
           written_before_the_call]
LINES = [noted_alone, noted_between, divided, asserted, line_of_a_callee, line_before_the_call, line_of_the_call,
         line_of_a_comprehension, line_of_a_generator, line_after_a_function_of_the_graph, line_of_one_of_many_layers,
         *CLEANED]


def lines_of_the_program(fn: Callable[..., Any], args: tuple[Any, ...]) -> list[tuple[str, int]]:
    """Functions and lines in the traceback of what a call raises."""
    try:
        fn(*args)
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)[1:]
        return [(each.name, each.lineno or 0) for each in frames if each.filename in (__file__, facts_of_writers.__file__)]
    return []


@pytest.mark.parametrize("backend", ["eager", "aot_eager", lambda module, inputs: module], ids=["eager", "aot_eager", "own"])
@pytest.mark.parametrize("fn", LINES, ids=lambda fn: fn.__name__)
def test_errors_show_the_lines_of_the_program(fn: Any, backend: Any) -> None:
    compiled = stator.compile(fn, backend=backend, options={"strict": True})
    for number in (1, 7, 0):
        seen = []
        for subject in (fn, compiled):
            facts_of_writers.NOTES.clear()
            log: list[Any] = facts_of_writers.NOTES
            seen.append((lines_of_the_program(subject, (torch.ones(3), torch.tensor([number]), log)), plain(log)))
        assert seen[1] == seen[0]
        assert seen[0][0] or number != 7


def one_memory() -> tuple[Any, ...]:
    base = torch.arange(4.0)
    return base[:3], base[1:]


def test_a_write_that_fails_where_inputs_share_memory() -> None:
    """Behind a call that must not run twice and an effect on an outside list."""
    def fn(x: torch.Tensor, y: torch.Tensor, log: list[Any]) -> Any:
        bump(x)
        log.append("between")
        x.mul_(y)
        return x

    compiled = stator.compile(fn, backend="eager", options={"strict": True})
    seen = []
    for subject in (fn, compiled):
        log: list[Any] = []
        seen.append((lines_of_the_program(subject, (*one_memory(), log)), log))
    assert seen[1] == seen[0] and seen[0][0]
