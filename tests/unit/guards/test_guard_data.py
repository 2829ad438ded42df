"""Guards as data: words, keys, sets and pruning."""

import types
from dataclasses import replace

import pytest
import torch

from stator.guards.guard import (
    MISSING,
    Guard,
    Kind,
    global_state,
    is_constant,
    same_constant,
    tensor_meta,
    value_key,
)
from stator.guards.guard_set import GuardList, GuardSet
from stator.guards.lower import Op, lower
from stator.guards.tensor_meta import tensor_meta
from stator.source import WORLD, CallOf, DictOf, Global, Index, Key, Local, Pinned, Source

SELF, X, Y = Local("self", 0), Local("x", 1), Local("y", 2)


class Config:
    limit = 3


@pytest.mark.parametrize(
    ("guard", "text"),
    [
        (Guard(Key(DictOf(SELF), "n"), Kind.EQUALS, 3), "self.n == 3"),
        (Guard(X, Kind.EQUALS, None), "x is None"),
        (Guard(X, Kind.EQUALS, torch.float32), "x == torch.float32"),
        (Guard(X, Kind.EQUALS, ("a", 1)), "x == ('a', 1)"),
        (Guard(X, Kind.TYPE, Config), "type(x) is Config"),
        (Guard(X, Kind.ID, Config), "x is Config"),
        (Guard(X, Kind.NOT_ID, None), "x is not None"),
        (Guard(X, Kind.LEN, 4), "len(x) == 4"),
        (Guard(X, Kind.KEYS, ("a", 2)), "list(x) == ['a', 2]"),
        (Guard(X, Kind.ABSENT, "k"), "'k' not in x"),
        (Guard(DictOf(SELF), Kind.ABSENT, "k"), "'k' not in vars(self)"),
        (Guard(X, Kind.PRESENT, "k"), "'k' in x"),
        (Guard(Pinned(globals()), Kind.ABSENT, "k"), "'k' not in globals()"),
        (Guard(Pinned(Config), Kind.TYPE_ATTR, ("limit", 3)), "Config.limit is 3"),
        (Guard(Pinned(Config), Kind.TYPE_FIELD, ("__name__", "Config")), "Config.__name__ == 'Config'"),
        (Guard(Pinned(Config), Kind.TYPE_ATTR, ("speed", MISSING)), "Config has no 'speed'"),
        (Guard(X, Kind.ALIAS, Y), "x is y"),
        (Guard(X, Kind.NOT_ALIAS, Y), "x is not y"),
        (Guard(X, Kind.CELL_EMPTY), "x is an empty cell"),
        (Guard(X, Kind.SLOT_EMPTY, ("a", Config)), "x has no 'a'"),
        (Guard(CallOf(Pinned(len), (X,)), Kind.FRESH_CALL, 2), "len(x) == 2"),
        (Guard(X, Kind.SET_EQUALS, frozenset({2, 1})), "x == {1, 2}"),
        (
            Guard(X, Kind.TENSOR, tensor_meta(torch.ones(2, 3))),
            "tensor x: float32[2, 3] cpu requires_grad=False",
        ),
        (
            Guard(X, Kind.TENSOR, replace(tensor_meta(torch.ones(2, 3).t()), sizes=(None, 2), strides=(1, None))),
            "tensor x: float32[?, 2] cpu requires_grad=False strides (1, ?)",
        ),
    ],
)
def test_text(guard: Guard, text: str) -> None:
    assert guard.text() == text


def test_every_kind_has_words() -> None:
    said = {Kind.GLOBAL_STATE: Guard(WORLD, Kind.GLOBAL_STATE, global_state()).text()}
    assert "grad mode on" in said[Kind.GLOBAL_STATE]


@pytest.mark.parametrize(
    "values",
    [
        (1, True, 1.0, 1 + 0j),
        (0.0, -0.0),
        ((1,), (True,)),
        (b"a", "a"),
        (range(0), range(1, 1)),
        (slice(1), slice(1.0)),
    ],
)
def test_values_that_python_may_call_equal_guard_differently(values: tuple[object, ...]) -> None:
    assert len({value_key(value) for value in values}) == len(values)
    assert not any(same_constant(a, b) for i, a in enumerate(values) for b in values[i + 1 :])


def test_nan_equals_itself_bit_by_bit() -> None:
    assert same_constant(float("nan"), float("nan")) and not same_constant(float("nan"), -float("nan"))


def test_only_immutable_builtins_are_constants() -> None:
    assert is_constant((1, frozenset({"a"}), torch.Size([2]), slice(None, 2)))
    assert not is_constant(([],)) and not is_constant(Config) and not is_constant(type("S", (str,), {})("a"))


def test_adding_twice_keeps_the_first_line() -> None:
    guards = GuardSet()
    assert guards.add(Guard(X, Kind.EQUALS, 1, ("a.py", 1, "f")))
    assert not guards.add(Guard(X, Kind.EQUALS, 1, ("a.py", 9, "f")))
    assert guards.add(Guard(X, Kind.EQUALS, True))
    assert [guard.where for guard in guards] == [("a.py", 1, "f"), None]


def pruned(*guards: Guard) -> list[str]:
    collected = GuardSet(guards)
    collected.prune()
    return [guard.text() for guard in collected]


def test_pruning_drops_what_is_implied() -> None:
    assert pruned(Guard(X, Kind.TYPE, int), Guard(X, Kind.EQUALS, 3)) == ["x == 3"]
    meta = tensor_meta(torch.ones(2))
    assert len(pruned(Guard(X, Kind.TENSOR, meta), Guard(X, Kind.TYPE, torch.Tensor))) == 1
    keys = Guard(X, Kind.KEYS, ("a", "b"))
    others = [Guard(X, Kind.LEN, 2), Guard(X, Kind.PRESENT, "a"), Guard(X, Kind.ABSENT, "c")]
    assert pruned(keys, *others) == ["list(x) == ['a', 'b']"]
    assert pruned(Guard(X, Kind.ID, len), Guard(X, Kind.TYPE, type(len))) == ["x is len"]
    # What is there under a key can only be read where the key is.
    assert pruned(Guard(X, Kind.PRESENT, "k"), Guard(Key(X, "k"), Kind.EQUALS, 3)) == ["x['k'] == 3"]
    assert len(pruned(Guard(X, Kind.PRESENT, "k"), Guard(Key(X, "other"), Kind.EQUALS, 3))) == 2


def test_a_guard_is_frozen() -> None:
    guard = Guard(X, Kind.EQUALS, 1)
    with pytest.raises(AttributeError, match="frozen"):
        guard.value = 2  # type: ignore[misc]
    assert guard.value == 1


def test_pruning_keeps_what_can_still_change() -> None:
    instance, module = Config(), types.ModuleType("m")
    # The class of an instance, and of a module, can be assigned.
    assert len(pruned(Guard(X, Kind.ID, instance), Guard(X, Kind.TYPE, Config))) == 2
    assert len(pruned(Guard(X, Kind.ID, module), Guard(X, Kind.TYPE, types.ModuleType))) == 2
    assert len(pruned(Guard(X, Kind.KEYS, ("a",)), Guard(X, Kind.TYPE, dict))) == 2
    assert len(pruned(Guard(X, Kind.KEYS, ("a",)), Guard(X, Kind.LEN, 2))) == 2
    assert len(pruned(Guard(X, Kind.TYPE, int), Guard(X, Kind.EQUALS, 3.0))) == 2


def test_parents_are_checked_before_children() -> None:
    deep = Index(Key(DictOf(SELF), "xs"), 0)
    guards = GuardSet(
        [
            Guard(X, Kind.ALIAS, deep),
            Guard(deep, Kind.EQUALS, 1),
            Guard(Global(Pinned(globals()), "Config"), Kind.ID, Config),
            Guard(Key(DictOf(SELF), "xs"), Kind.LEN, 1),
            Guard(WORLD, Kind.GLOBAL_STATE, global_state()),
            Guard(SELF, Kind.TYPE, Config),
        ]
    )
    texts = [guard.text() for guard in guards]
    assert texts[0] == "type(self) is Config" and texts[-1] == "x is self.xs[0]"
    assert texts.index("len(self.xs) == 1") < texts.index("self.xs[0] == 1") < texts.index("Config is Config")


def test_lowering_shares_prefixes() -> None:
    scope = Key(DictOf(SELF), "a")
    sources: list[Source] = [Key(DictOf(scope), "b"), Key(DictOf(scope), "c")]
    program = lower([Guard(source, Kind.EQUALS, 1) for source in sources], [SELF])
    assert [op for op, _, _ in program.nodes] == [Op.ARG, Op.DICT_OF, Op.KEY, Op.DICT_OF, Op.KEY, Op.KEY]
    assert all(parent < number for number, (_, parent, _) in enumerate(program.nodes))
    assert program.wanted == [0] and len(program.checks) == 2


def test_lowering_refuses_what_would_run_code() -> None:
    class Key1:
        def __hash__(self) -> int:
            return 1

    with pytest.raises(ValueError, match="without running its code"):
        lower([Guard(Key(X, Key1()), Kind.ID, None)])
    with pytest.raises(ValueError, match="guard it by ID"):
        lower([Guard(X, Kind.EQUALS, [1])])


def test_a_list_of_guards_is_pruned_in_checking_order_and_made_once() -> None:
    found = GuardList(GuardSet([Guard(X, Kind.TYPE, int), Guard(Key(X, "k"), Kind.EQUALS, 3), Guard(X, Kind.EQUALS, 3)]))
    assert len(found) == 2
    assert [found[0].text(), found[1].text()] == ["x == 3", "x['k'] == 3"] == [guard.text() for guard in found[0:2]]
    assert found[0] is found[0] and list(found) == [found[0], found[1]]


def test_metadata_is_read_past_properties_of_a_subclass() -> None:
    """The explanation of a miss runs no code of the program, which may raise."""
    lazy = torch.nn.parameter.UninitializedBuffer()
    with pytest.raises(RuntimeError, match="uninitialized"):
        lazy.shape  # noqa: B018
    assert tensor_meta(lazy).sizes == (0,)
    assert tensor_meta(torch.ones(2, 3, requires_grad=True)).text() == "float32[2, 3] cpu requires_grad=True"
