"""Every kind of guard: it holds for the fact, fails when the fact changes, and C++ agrees with Python."""

import types
import warnings
from collections import OrderedDict, deque
from dataclasses import replace
from typing import Any

import pytest
import torch
from agreement import holds, program

from stator import _core
from stator.guards.guard import MISSING, Guard, Kind, global_state, tensor_meta, tensor_values
from stator.guards.guard_semantics import explain
from stator.source import WORLD, Attr, CallOf, DictOf, Index, Key, Local, Pinned, TypeOf

X, Y = Local("x", 0), Local("y", 1)


class Base:
    limit = 3


class Derived(Base):
    pass


class Slotted:
    __slots__ = ("a",)


NAN = float("nan")
FILLED = Slotted()
FILLED.a = 1
MOVED = OrderedDict(a=1, b=2)
MOVED.move_to_end("a")
T = torch.ones(2, 3)
COUNTS = torch.arange(6).view(2, 3)
WIDE = COUNTS.repeat_interleave(2, dim=1)

# (kind, value, what holds, what does not)
CASES: list[tuple[Kind, Any, list[Any], list[Any]]] = [
    (Kind.TYPE, Base, [Base()], [Derived(), Base, 3]),
    (Kind.TYPE, int, [1], [True, 1.0, None]),
    (Kind.ID, len, [len], [max, None]),
    (Kind.NOT_ID, None, [0, False], [None]),
    (Kind.EQUALS, 3, [3], [4, 3.0, True, "3", None]),
    (Kind.EQUALS, 10**30, [10**30], [10**30 + 1]),
    (Kind.EQUALS, True, [True], [1, False]),
    (Kind.EQUALS, None, [None], [0, False, ...]),
    (Kind.EQUALS, 0.0, [0.0], [-0.0, 0, False]),
    (Kind.EQUALS, NAN, [NAN, float("nan")], [-NAN, 1.0]),
    (Kind.EQUALS, 1 + 0j, [complex(1, 0.0)], [complex(1, -0.0), 1, 1.0]),
    (Kind.EQUALS, "ab", ["".join(["a", "b"])], ["ba", b"ab", type("S", (str,), {})("ab")]),
    (Kind.EQUALS, b"ab", [bytes([97, 98])], [b"a", "ab"]),
    (Kind.EQUALS, (1, ("a", 2.0)), [(1, ("a", 2.0))], [(1, ("a", 2)), (True, ("a", 2.0)), (1,), [1, ("a", 2.0)]]),
    (Kind.EQUALS, frozenset({1, "a"}), [frozenset(["a", 1])], [frozenset({True, "a"}), frozenset({1}), {1, "a"}]),
    (Kind.EQUALS, range(1, 4), [range(1, 4)], [range(1, 5), range(1, 4, 2), (1, 2, 3)]),
    (Kind.EQUALS, range(0), [range(0)], [range(1, 1)]),
    (Kind.EQUALS, slice(1, None), [slice(1, None)], [slice(1.0, None), slice(1, 2)]),
    (Kind.EQUALS, torch.float32, [torch.float32], [torch.float64, "float32"]),
    (Kind.EQUALS, torch.device("cpu"), [torch.device("cpu")], [torch.device("meta"), "cpu"]),
    (Kind.EQUALS, torch.Size([2, 3]), [T.shape], [(2, 3), torch.Size([2])]),
    (Kind.EQUALS, torch.strided, [torch.strided], [torch.sparse_coo]),
    (Kind.LEN, 2, [[1, 2], (1, 2), {1: 1, 2: 2}, {1, 2}, deque([1, 2]), T.shape], [[1], "ab", 2, None, deque()]),
    (Kind.LEN, 0, [[], {}, frozenset()], ["", None, [0]]),
    (Kind.KEYS, ("a", "b"), [{"a": 0, "b": 1}, OrderedDict(a=1, b=2)], [{"b": 0, "a": 1}, {"a": 0}, MOVED, ["a", "b"]]),
    (Kind.KEYS, (1, Base), [{1: 0, Base: 1}], [{True: 0, Base: 1}, {1: 0, Derived: 1}]),
    (Kind.ABSENT, "k", [{}, {"a": 1}, {1: 2}], [{"k": 0}, ["k"], None]),
    (Kind.ABSENT, 1, [{"a": 0}, {2: 0}], [{1: 0}, {True: 0}, {1.0: 0, "a": 1}]),
    (Kind.PRESENT, "k", [{"k": None}, {1: 2, "k": 3}], [{}, {"a": 0}, ["k"]]),
    (Kind.CELL_EMPTY, None, [types.CellType()], [types.CellType(1), None]),
    (Kind.SLOT_EMPTY, ("a", Slotted), [Slotted()], [FILLED, Base()]),
    (Kind.SET_EQUALS, frozenset({1, "a"}), [{"a", 1}, frozenset({1, "a"})], [{True, "a"}, {1}, {1, "b"}, [1, "a"]]),
    (Kind.SET_EQUALS, frozenset({Base, (1, 2)}), [{(1, 2), Base}], [{Derived, (1, 2)}, {Base, (1, 3)}]),
    (Kind.VALUES, tensor_values(COUNTS), [COUNTS.clone(), WIDE[:, ::2], WIDE.t()[::2].t()],
     [COUNTS + 1, COUNTS.t(), COUNTS.view(-1), COUNTS.int(), COUNTS.to("meta"), COUNTS[:1], [1, 2], None]),
    (Kind.VALUES, tensor_values(torch.tensor(True)), [torch.tensor(True)], [torch.tensor(False), True, torch.ones(0)]),
    (Kind.VALUES, tensor_values(torch.ones(0, 2).long()), [torch.zeros(0, 2).long()], [torch.zeros(2, 0).long()]),
    (Kind.TYPE_ATTR, ("limit", 3), [Base, Derived], [type("Other", (Base,), {"limit": 4}), int]),
    (Kind.TYPE_FIELD, ("__mro__", Derived.__mro__), [Derived], [Base, int, 1, type("Derived", (Base,), {})]),
    (Kind.TYPE_FIELD, ("__bases__", (Base,)), [Derived, type("Other", (Base,), {})], [Base, int, None]),
    (Kind.TYPE_FIELD, ("__name__", "Base"), [Base, type("Ba" + "se", (), {})], [Derived, int, "Base"]),
    (Kind.TYPE_FIELD, ("__qualname__", Base.__qualname__), [Base], [Derived, int]),
    (Kind.TYPE_ATTR, ("speed", MISSING), [Base], [type("Other", (Base,), {"speed": 4})]),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value", "good", "bad"), CASES, ids=[f"{case[0].name}-{n}" for n, case in enumerate(CASES)])
def test_a_check_holds_for_its_fact_alone(kind: Kind, value: Any, good: list[Any], bad: list[Any]) -> None:
    guard = Guard(X, kind, value)
    for obj in good:
        assert holds(guard, obj), obj
        assert explain(guard, (obj,)) is None
    for obj in bad:
        assert not holds(guard, obj), obj
        failure = explain(guard, (obj,))
        assert failure is not None and failure.text == guard.text() and failure.found


def test_every_kind_is_covered() -> None:
    elsewhere = {Kind.TENSOR, Kind.ALIAS, Kind.NOT_ALIAS, Kind.GLOBAL_STATE, Kind.FRESH_CALL, Kind.SHAPE,
                 Kind.PARTITION}
    assert {kind for kind, _, _, _ in CASES} | elsewhere == set(Kind)


def test_aliases() -> None:
    shared: list[int] = []
    for kind, together in ((Kind.ALIAS, True), (Kind.NOT_ALIAS, False)):
        guard = Guard(X, kind, Y)
        assert holds(guard, shared, shared) is together
        assert holds(guard, [], []) is not together
    assert not holds(Guard(X, Kind.ALIAS, Local("z", 2)), 1, 1)


def test_fresh_calls_are_made_at_every_check() -> None:
    answers = [1]

    def reader() -> int:
        return answers[0]

    guard = Guard(CallOf(Pinned(reader)), Kind.FRESH_CALL, 1)
    compiled = program([guard], nargs=0)
    assert compiled.check(()) == -1
    answers[0] = 2
    assert compiled.check(()) == 0
    answers.clear()
    assert compiled.check(()) == 0  # the reader raises: nothing escapes


warnings.filterwarnings("ignore", "Sparse CSR tensor support", UserWarning)
TENSORS: list[torch.Tensor] = [
    torch.ones(2, 3), torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 2), torch.ones(3, 2).t(), torch.ones(6),
    torch.ones(2, 3, requires_grad=True), torch.nn.Parameter(torch.ones(2, 3)), torch.ones(2, 3, device="meta"),
    torch.ones(2, 3, dtype=torch.complex64), torch.ones(2, 3, dtype=torch.complex64).conj(),
    torch.ones(2, 3, dtype=torch.complex64).conj().imag, torch.ones(2, 3).to_sparse(),
    torch.ones(2, 3).to_sparse_csr(), torch.ones(2, 3).to_sparse_csc(), torch.ones(()), torch.ones(0, 3),
    torch.ones(2, 6)[:, ::2], torch.ones(4, 3)[2:], torch.ones(2, 3).as_subclass(type("Sub", (torch.Tensor,), {})),
    torch.nn.Parameter(torch.ones(2, 3), requires_grad=False), torch.ones(2, 3).expand(2, 3),
    torch.ones(1, 3).expand(2, 3),
]  # fmt: skip
with torch.inference_mode():
    TENSORS.append(torch.ones(2, 3))


def test_tensor_facts_tell_tensors_apart_as_python_does() -> None:
    for expected in TENSORS:
        guard = Guard(X, Kind.TENSOR, tensor_meta(expected))
        assert holds(guard, expected)
        for other in TENSORS:
            assert holds(guard, other) is (tensor_meta(other) == tensor_meta(expected))
        assert not holds(guard, 3) and not holds(guard, torch.Tensor)


def test_open_dimensions_accept_any_size() -> None:
    guard = Guard(X, Kind.TENSOR, replace(tensor_meta(torch.ones(2, 3, 4)), sizes=(2, None, 4), strides=(None, 4, 1)))
    assert holds(guard, torch.ones(2, 9, 4)) and holds(guard, torch.ones(2, 0, 4))
    assert not holds(guard, torch.ones(2, 9, 5)) and not holds(guard, torch.ones(2, 4, 9).transpose(1, 2))


def test_the_storage_offset_counts_only_when_asked() -> None:
    whole = torch.ones(4, 3)
    assert holds(Guard(X, Kind.TENSOR, tensor_meta(whole[2:])), whole[:2])
    assert not holds(Guard(X, Kind.TENSOR, tensor_meta(whole[2:], with_offset=True)), whole[:2])


def test_a_dispatching_subclass_is_not_asked_for_its_metadata() -> None:
    class Wrapper(torch.Tensor):
        @staticmethod
        def __new__(cls) -> Any:
            return torch.Tensor._make_wrapper_subclass(
                cls,
                (2, 3),
                strides=(3, 1),
                device="cpu",
                dispatch_sizes_strides_policy="sizes",
                dispatch_device=True,
            )

        @classmethod
        def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls.append(func)
            return {"device": torch.device("cpu")}.get(func.__name__.split(".")[0], (2, 3))

    calls: list[Any] = []
    wrapped = Wrapper()
    plain = tensor_meta(torch.ones(2, 3))
    keys = torch._C._dispatch_keys(wrapped).raw_repr()
    meta = type(plain)(
        Wrapper, plain.dtype, plain.device, plain.layout, plain.sizes, plain.strides, False, keys
    )  # fmt: skip
    calls.clear()
    assert program([Guard(X, Kind.TENSOR, meta)]).check((wrapped,)) == -1
    assert calls == []


def test_the_first_failed_check_is_named() -> None:
    guards = [
        Guard(X, Kind.TYPE, list), Guard(Index(X, 0), Kind.EQUALS, 1), Guard(Index(X, 1), Kind.EQUALS, 2),
        Guard(Key(DictOf(Index(X, 2)), "n"), Kind.EQUALS, 3),
    ]  # fmt: skip
    compiled = program(guards)
    good = Base()
    good.n = 3  # type: ignore[attr-defined]
    assert compiled.check(([1, 2, good],)) == -1
    assert compiled.check(((1, 2, good),)) == 0
    assert compiled.check(([0, 2, good],)) == 1
    assert compiled.check(([1],)) == 2
    assert compiled.check(([1, 2, Base()],)) == 3
    assert compiled.check(([1, 2, 3],)) == 3
    assert compiled.check(()) == 0


def test_a_wanted_value_that_is_gone_fails_after_the_checks() -> None:
    compiled = program([Guard(X, Kind.TYPE, list)], [Index(X, 0)])
    assert compiled.check(([5],)) == -1 and compiled.values(([5],)) == (5,)
    assert compiled.check(([],)) == 1 and compiled.values(([],)) is None


def test_malformed_programs_are_refused() -> None:
    for nodes, checks, wanted in [
        ([(99, -1, None)], [], []), ([(0, 0, 0)], [], []), ([(6, 5, 0)], [], []), ([(0, -1, -1)], [], []),
        ([], [(0, 0, int)], []), ([(0, -1, 0)], [(0, 99, None)], []), ([(0, -1, 0)], [(0, 0, 3)], []),
        ([(0, -1, 0)], [(0, 3, (1, 2))], []), ([(0, -1, 0)], [], [1]), ([3], [], []), ([(0, -1, 0)], [(0, 5, [])], []),
        ([(0, -1, 0)], [(0, 6, "k")], []), ([(0, -1, 0), (8, 0, len)], [], []), ([], [(-1, 14, ())], []),
    ]:  # fmt: skip
        with pytest.raises((ValueError, TypeError)):
            _core.GuardProgram(nodes, checks, wanted, 1)


def test_checks_on_attributes_of_functions() -> None:
    def scaled(a: int, b: int = 2) -> int:
        return a * b

    guard = Guard(Index(Attr(X, "__defaults__"), 0), Kind.EQUALS, 2)
    assert holds(guard, scaled)
    scaled.__defaults__ = (3,)
    assert not holds(guard, scaled)
    assert holds(Guard(TypeOf(X), Kind.ID, types.FunctionType), scaled)


def test_many_nodes_use_the_large_frame() -> None:
    values = list(range(500))
    compiled = program([Guard(Index(X, i), Kind.EQUALS, i) for i in values], [Index(X, 499)])
    assert compiled.values((values,)) == (499,)
    values[300] = -1
    assert compiled.check((values,)) == 300


def test_the_state_check_is_silent_about_where_it_comes_from() -> None:
    assert holds(Guard(WORLD, Kind.GLOBAL_STATE, global_state()))
