"""A graph is compiled once for its content, and never taken for one that differs in anything a backend sees."""

from __future__ import annotations

import contextlib
import gc
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch.nn import functional

import stator
from stator import events
from stator.backends import compiled_graphs
from tests.comparison import Snapshotter, differences

pytestmark = pytest.mark.shares_entries


class Counter:
    """A backend that counts the graphs it gets."""

    def __init__(self) -> None:
        self.options: list[Any] = []

    def __call__(self, gm: torch.fx.GraphModule, example_inputs: list[Any], options: Any = None) -> Any:
        self.options.append(options and {name: list(value) for name, value in options.items()})
        return gm.forward

    @property
    def compiled(self) -> int:
        return len(self.options)


@contextlib.contextmanager
def deterministic() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextlib.contextmanager
def matmul_precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def compiled_twice(backend: Any, first: Callable[[], Any], second: Callable[[], Any], around: Any = None,
                   **settings: Any) -> int:
    """Run both programs compiled, each equal to eager; how many graphs were compiled for the second one."""
    stator.reset()
    counts = []
    for make, context in ((first, None), (second, around)):
        expected_program, program = make(), make()
        with (context() if context is not None else contextlib.nullcontext()), events.record() as log:
            expected = run(expected_program)
            result = run(stator.compile(program[0], backend=backend, **settings), *program[1:])
        left, right = (Snapshotter(__name__).take(each, "call") for each in (expected, result))
        assert not list(differences(left, right, "call"))
        counts.append(sum(isinstance(event, events.BackendCompiled) for event in log))
        assert counts[-1] + sum(isinstance(event, events.GraphShared) for event in log) == 1
    assert counts[0] == 1
    return counts[1]


def run(fn: Any, *args: Any) -> list[Any]:
    """The value of a call and, where it can be had, the gradients of its arguments."""
    if isinstance(fn, tuple):
        fn, *args = fn  # type: ignore[assignment]
    torch.manual_seed(0)
    value = fn(*args)
    leaves = [arg for arg in args if isinstance(arg, torch.Tensor) and arg.requires_grad and arg.is_leaf]
    grads: Any = []
    if leaves and value.requires_grad:
        grads = torch.autograd.grad(value.sum(), leaves, allow_unused=True)
    return [value, *args, *grads]


def scaled(factor: Any) -> Any:
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * factor

    return scale


def dropping(p: float, training: bool = True) -> Any:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return functional.dropout(x, p, training)

    return drop


def listed(values: list[float]) -> Any:
    def add(x: torch.Tensor) -> torch.Tensor:
        return x + torch.tensor([values[0], values[1]])

    return add


def multiplying() -> Any:
    def product(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x @ y

    return product


def writing() -> Any:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.add_(1)
        return y * 2

    return write


def filled(*shape: int, **settings: Any) -> torch.Tensor:
    return torch.arange(1.0, 1 + torch.Size(shape).numel()).reshape(shape).to(settings.pop("dtype", torch.float32)) \
        .requires_grad_(settings.pop("requires_grad", False))


def shared_pair() -> tuple[torch.Tensor, torch.Tensor]:
    x = filled(8)
    return x[:4], x[4:]


def parted_pair() -> tuple[torch.Tensor, torch.Tensor]:
    return filled(8)[:4], filled(8)[4:]


def same_pair() -> tuple[torch.Tensor, torch.Tensor]:
    x = filled(8)
    return x[:4], x[2:6]


# Programs that differ in one fact.
PAIRS: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "stride": (lambda: (multiplying(), filled(4, 4), filled(4, 4)), lambda: (multiplying(), filled(4, 4), filled(4, 4).t())),
    "dtype": (lambda: (multiplying(), filled(4, 4), filled(4, 4)),
              lambda: (multiplying(), filled(4, 4, dtype=torch.float64), filled(4, 4, dtype=torch.float64))),
    "requires_grad": (lambda: (multiplying(), filled(4, 4), filled(4, 4)),
                      lambda: (multiplying(), filled(4, 4), filled(4, 4, requires_grad=True))),
    "offset": (lambda: (multiplying(), filled(4, 4), filled(8, 4)[:4]), lambda: (multiplying(), filled(4, 4), filled(8, 4)[4:])),
    "conjugate": (lambda: (multiplying(), filled(4, 4, dtype=torch.complex64), filled(4, 4, dtype=torch.complex64) * 1j),
                  lambda: (multiplying(), filled(4, 4, dtype=torch.complex64),
                           (filled(4, 4, dtype=torch.complex64) * 1j).conj())),
    "parameter": (lambda: (multiplying(), filled(4, 4), filled(4, 4, requires_grad=True)),
                  lambda: (multiplying(), filled(4, 4), torch.nn.Parameter(filled(4, 4)))),
    "history": (lambda: (multiplying(), filled(4, 4), filled(4, 4, requires_grad=True)),
                lambda: (multiplying(), filled(4, 4), filled(4, 4, requires_grad=True) * 1)),
    "rank": (lambda: (scaled(2), filled(4)), lambda: (scaled(2), filled(1, 4))),
    "value": (lambda: (scaled(2.0), filled(4)), lambda: (scaled(3.0), filled(4))),
    "zero": (lambda: (scaled(0.0), filled(4)), lambda: (scaled(-0.0), filled(4))),
    "bool": (lambda: (scaled(1), filled(4, dtype=torch.bool)), lambda: (scaled(True), filled(4, dtype=torch.bool))),
    "float": (lambda: (scaled(1), filled(4, dtype=torch.int64)), lambda: (scaled(1.0), filled(4, dtype=torch.int64))),
    "list of constants": (lambda: (listed([1.0, 2.0]), filled(2)), lambda: (listed([1.0, 3.0]), filled(2))),
    "probability": (lambda: (dropping(0.25), filled(64)), lambda: (dropping(0.5), filled(64))),
    "training": (lambda: (dropping(0.5), filled(64)), lambda: (dropping(0.5, False), filled(64))),
    "shared memory": (lambda: (writing(), filled(4), filled(4)), lambda: (writing(), *shared_pair())),
    "aliases": (lambda: (writing(), *parted_pair()), lambda: (writing(), *shared_pair())),
    "overlap": (lambda: (writing(), *shared_pair()), lambda: (writing(), *same_pair())),
}


@pytest.mark.parametrize("backend", ["aot_eager", "counter"])
@pytest.mark.parametrize("name", PAIRS)
def test_graphs_that_differ_in_one_fact(name: str, backend: str) -> None:
    chosen = Counter() if backend == "counter" else backend
    assert compiled_twice(chosen, *PAIRS[name], dynamic=False) == 1


@pytest.mark.parametrize("backend", ["aot_eager", "counter"])
@pytest.mark.parametrize("name", PAIRS)
def test_equal_graphs(name: str, backend: str) -> None:
    for make in PAIRS[name][:1 if name == "overlap" else 2]:  # which no compiler gets
        chosen = Counter() if backend == "counter" else backend
        assert compiled_twice(chosen, make, make, dynamic=False) == 0


@pytest.mark.parametrize("around", [
    lambda: torch.autocast("cpu", torch.bfloat16), torch.no_grad, torch.inference_mode, deterministic,
    lambda: matmul_precision("medium"), torch.autograd.detect_anomaly,
], ids=["autocast", "no_grad", "inference_mode", "deterministic", "matmul", "anomaly"])
def test_settings_of_torch(around: Any) -> None:
    def make() -> Any:
        return multiplying(), filled(4, 4), filled(4, 4)

    assert compiled_twice("aot_eager", make, make, around) == 1


def module_of(width: int, tied: bool = False) -> torch.nn.Module:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(2)]
    if tied:
        layers[1].weight = layers[0].weight
    return torch.nn.Sequential(*layers)


def called(module: torch.nn.Module) -> Any:
    def call(x: torch.Tensor) -> torch.Tensor:
        return module(x)

    return call


def test_tied_weights() -> None:
    stator.reset()
    x = filled(3, 4)
    counter = Counter()
    for tied in (False, True, False, True):
        one, other = module_of(4, tied), module_of(4, tied)
        result, expected = stator.compile(called(one), backend=counter)(x), other(x)
        result.sum().backward()
        expected.sum().backward()
        assert torch.equal(result, expected)
        assert all(torch.equal(p.grad, q.grad) for p, q in zip(one.parameters(), other.parameters(), strict=True))
    assert counter.compiled == 2


def test_writes_go_to_the_caller_of_a_shared_graph() -> None:
    def counting(total: torch.Tensor) -> Any:
        def add(x: torch.Tensor) -> torch.Tensor:
            total.add_(x)
            return total * 2

        return add

    stator.reset()
    totals = [torch.full((2,), float(i)) for i in range(3)]
    with events.record() as log:
        for i, total in enumerate(totals):
            result = stator.compile(counting(total), backend="aot_eager")(torch.ones(2))
            assert torch.equal(total, torch.full((2,), i + 1.0)) and torch.equal(result, total * 2)
    assert sum(isinstance(event, events.BackendCompiled) for event in log) == 1


def test_options_of_a_backend() -> None:
    stator.reset()
    counter, options = Counter(), {"passes": [1]}
    x = filled(4)
    for passes in ([1], [1, 2], [1, 2]):
        options["passes"] = passes
        assert torch.equal(stator.compile(scaled(2.0), backend=counter, options=options)(x), x * 2)
    assert counter.options == [{"passes": [1]}, {"passes": [1, 2]}]
    opaque = {"passes": {object()}}
    for _ in range(2):  # a set of objects has no content to compare
        stator.compile(scaled(2.0), backend=counter, options=opaque)(x)
    assert counter.compiled == 4


def test_backends_are_told_apart_by_identity() -> None:
    class Equal(Counter):
        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 0

    stator.reset()
    counters = [Equal(), Equal()]
    for counter in counters:
        stator.compile(scaled(2.0), backend=counter)(filled(4))
    assert [counter.compiled for counter in counters] == [1, 1]


def test_one_compile_call_hands_each_of_its_graphs_to_a_users_backend() -> None:
    def branch(x: torch.Tensor, name: str) -> torch.Tensor:
        return x + 1 if name else x

    stator.reset()
    counter = Counter()
    compiled = stator.compile(branch, backend=counter)
    for name in ("a", "b", "c"):
        assert torch.equal(compiled(filled(2), name), filled(2) + 1)
    assert counter.compiled == len(compiled._stator_site.compiled.entries())


def test_other_code_is_another_graph_for_a_users_backend() -> None:
    stator.reset()
    counter = Counter()
    x = filled(4)
    for fn in (lambda x: x * 5, lambda x: x * 5):
        assert torch.equal(stator.compile(fn, backend=counter)(x), x * 5)
    assert counter.compiled == 2


def test_guards_of_the_backend_hold_for_who_shares() -> None:
    """A graph that is compiled for even sizes serves no capture of an odd one, and no later call of who took it."""
    made = []

    def by_parity(gm: torch.fx.GraphModule, example_inputs: list[Any]) -> Any:
        place, given = next((i, value) for i, value in enumerate(example_inputs) if isinstance(value, torch.Tensor))
        parity = 0 if given.shape[0] % 2 == 0 else 1
        made.append(parity)

        def run(*args: Any) -> Any:
            assert args[place].shape[0] % 2 == parity
            return gm.forward(*args)

        return run

    stator.reset()
    for size in (4, 6, 7, 9, 8):
        compiled = stator.compile(scaled(torch.full((), 2.0)), backend=by_parity, dynamic=True)
        for later in (0, 2, 4):
            assert torch.equal(compiled(filled(size + later)), filled(size + later) * 2)
    assert made == [0, 1]
    for later in (11, 10):
        assert torch.equal(compiled(filled(later)), filled(later) * 2)
    assert made == [0, 1]


def test_calls_that_may_do_anything_are_compiled_alone() -> None:
    factor = [2.0]

    @stator.allow_in_graph
    def scale(x: torch.Tensor) -> torch.Tensor:
        return x * factor[0]

    def outer(name: str) -> Any:
        def call(x: torch.Tensor) -> torch.Tensor:
            return scale(x) if name else x

        return call

    stator.reset()
    x = filled(4)
    for value in (2.0, 3.0):
        factor[0] = value
        assert torch.equal(stator.compile(outer("a"), backend="aot_eager")(x), x * value)


def test_inputs_that_stay_at_their_address_are_compiled_alone() -> None:
    stator.reset()
    counter = Counter()
    for _ in range(2):
        weight = filled(4)
        stator.mark_static_address(weight, guard=True)
        assert torch.equal(stator.compile(scaled(weight), backend=counter)(filled(4)), filled(4) * weight)
    assert counter.compiled == 2


def test_isolated_compile_calls_share_nothing() -> None:
    stator.reset()
    counter = Counter()
    for _ in range(2):
        stator.compile(scaled(2.0), backend=counter, isolate_recompiles=True)(filled(4))
    assert counter.compiled == 2


@pytest.mark.parametrize("backend", ["aot_eager", "counter"])
def test_the_table_keeps_no_tensor_of_the_user(backend: str) -> None:
    stator.reset()
    weight = filled(4, requires_grad=True)
    compiled = stator.compile(scaled(weight), backend=Counter() if backend == "counter" else backend, dynamic=True)
    compiled(filled(4)).sum().backward()
    assert len(compiled_graphs._graphs) == 1
    alive = weakref.ref(weight)
    del weight, compiled
    gc.collect()
    assert alive() is None


@pytest.mark.parametrize("backend", ["eager_like", "aot_eager"])
def test_patches_of_other_libraries(monkeypatch: pytest.MonkeyPatch, backend: str) -> None:
    """torch_geometric replaces torch.select when it is imported: graphs without it are shared."""
    original = torch.select
    monkeypatch.setattr(torch, "select", lambda *args, **kwargs: original(*args, **kwargs))

    def program() -> Any:
        return lambda x: x.cos() * 2, torch.ones(2, 2)

    assert compiled_twice(Counter() if backend == "eager_like" else backend, program, program) == 0


def test_the_table_is_bounded_and_reset_empties_it(monkeypatch: pytest.MonkeyPatch) -> None:
    stator.reset()
    monkeypatch.setattr(compiled_graphs, "MOST_GRAPHS", 3)
    counter = Counter()
    for number in range(5):
        stator.compile(scaled(float(number)), backend=counter, dynamic=False)(filled(4))
    assert len(compiled_graphs._graphs) == 3
    stator.reset()
    assert not compiled_graphs._graphs
    stator.compile(scaled(4.0), backend=counter, dynamic=False)(filled(4))
    assert counter.compiled == 6


def test_settings_of_inductor() -> None:
    config = __import__("torch._inductor.config", fromlist=["config"])
    stator.reset()
    x = filled(4)
    keys = []
    original = compiled_graphs.key_of
    compiled_graphs.key_of = lambda *args: keys.append(original(*args)) or keys[-1]
    try:
        for patches in ({}, {}, {"cpp.simdlen": 0}, {"fallback_random": True}):
            with config.patch(patches):
                assert torch.equal(stator.compile(scaled(2.0), backend="inductor", dynamic=False)(x), x * 2)
    finally:
        compiled_graphs.key_of = original
    assert keys[0] == keys[1] and len(set(keys)) == 3


@pytest.mark.shares_entries
def test_inputs_that_no_argument_leads_to_are_told_apart() -> None:
    """AOTAutograd refuses two inputs of one source."""
    parameters = [torch.nn.Parameter(torch.ones(3)) for _ in range(4)]
    for each in parameters:
        each.grad = torch.ones(3)
    optimizer = torch.optim.Adadelta(parameters)
    step = stator.compile(lambda: optimizer.step(), backend="aot_eager")
    with events.record() as log:
        step()
    assert not [event for event in log if isinstance(event, events.EagerFallback)]
