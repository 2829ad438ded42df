"""Every step of a source, read by C++ and by the reference, on good, odd and hostile objects."""

import enum
import functools
import itertools
import types
from collections import OrderedDict, defaultdict, deque, namedtuple
from typing import Any

import pytest
import torch
from agreement import NOWHERE, program, read

from stator.source import (
    Attr,
    CallOf,
    CellOf,
    DictOf,
    Index,
    Key,
    KeyAt,
    Local,
    Pinned,
    SetAt,
    Slot,
    Source,
    TypeOf,
    ValueAt,
)

X = Local("x", 0)
Point = namedtuple("Point", "a b")


class Color(enum.Enum):
    RED = 1


class Plain:
    pass


class Slotted:
    __slots__ = ("a", "b", "__dict__")


class SlottedChild(Slotted):
    pass


class Hostile(dict):
    """Every hook of a mapping raises: raw reads must not notice."""

    def boom(self, *args: Any) -> Any:
        raise AssertionError("user code ran")

    __getitem__ = __contains__ = __len__ = __iter__ = __eq__ = __getattr__ = __missing__ = boom
    __hash__ = None  # type: ignore[assignment]

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise AssertionError("user code ran")


class HostileList(list):
    def __getitem__(self, index: Any) -> Any:
        raise AssertionError("user code ran")

    __len__ = __iter__ = __getitem__  # type: ignore[assignment]


class HostileKey:
    """Claims the hash of a string, so that a lookup of that string meets it."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        raise AssertionError("user code ran")


def instance(**attributes: Any) -> Plain:
    made = Plain()
    made.__dict__.update(attributes)
    return made


def slotted() -> Slotted:
    made = SlottedChild()
    made.a = object()
    return made


def closure() -> types.CellType:
    return types.CellType([1])


def function(a: int, b: int = 2, *, c: int = 3) -> Any:
    return closure


MOVED = OrderedDict(a=1, b=2, c=3)
MOVED.move_to_end("a")
DIM = instance(dim=1)
OBJECTS: list[Any] = [
    0, 1.5, "s", b"b", None, True, 2j, (1, 2), [1, [2]], {"a": 1}, {1: "i", "a": 2, (1, "t"): 3, None: 4, 2.5: 5},
    {}, set(), {1, 2, 3}, frozenset({"x", "y"}), deque([1, 2]), deque(), Point(1, 2), MOVED, OrderedDict(),
    defaultdict(list, a=1), Hostile(a=1), HostileList([1, 2]), instance(), instance(a=1, b=[2]), slotted(),
    Slotted(), closure(), types.CellType(), function, function.__code__, Plain, Slotted, type, int, torch,
    types.ModuleType("m"), functools.partial(function, 1, b=3), instance().__init__, [].append, len,
    property(len), staticmethod(len), classmethod(len), slice(1, 2, 3), range(4), Color.RED, Color,
    torch.ones(2), torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(1)), torch.nn.Linear(1, 1),
    torch.Size([1, 2]), torch.float32, torch.device("cpu"), object(), ValueError("v"), list[int], int | str,
    {i: str(i) for i in range(300)}, {str(i): i for i in range(300)}, list(range(50)), iter([]), {}.keys(),
    types.MappingProxyType({"a": 1}), {torch.float32: 1, torch.device("cpu"): 2, Plain: 3, Color.RED: 4},
]  # fmt: skip

STEPS: list[Source] = [
    X, DictOf(X), TypeOf(X), CellOf(X), Local("missing", 5),
    *(Key(base, key) for base in (X, DictOf(X)) for key in ("a", "b", 1, True, 2.5, None, (1, "t"), "_modules", 299, "7")),
    Key(X, torch.float32), Key(X, torch.device("cpu")), Key(X, Plain), Key(X, Color.RED),
    *(step(X, index) for step in (KeyAt, ValueAt, Index, SetAt) for index in (0, 1, 2, 40, 299)),
    Slot(X, "a", Slotted), Slot(X, "b", Slotted),
    *(Attr(X, name) for name in (
        "__closure__", "__defaults__", "__kwdefaults__", "__code__", "__globals__", "__func__", "__self__",
        "func", "args", "keywords", "fget", "start", "stop", "step", "grad", "_base", "real", "maxlen",
        "co_varnames", "__origin__", "__args__", "cell_contents", "nothing", "__name__",
    )),
    CallOf(Pinned(len), (X,)), CallOf(Pinned(id), (X,)),
]  # fmt: skip


def readable(step: Source, obj: Any) -> bool:
    """Whether the two evaluators are meant to agree: see the exclusions."""
    if isinstance(step, (Key, KeyAt, ValueAt)) and isinstance(obj, (type, types.MappingProxyType)):
        return False  # Python shows a class's dict only through a proxy, which C++ does not follow
    if isinstance(step, DictOf) and (isinstance(obj, type) or type(obj) is Hostile):
        return False  # nor can it see a dict whose getter the class has hidden
    if isinstance(step, CallOf) and isinstance(obj, (Hostile, HostileList)):
        return False  # calling len() on these is user code
    # Values that are made anew at each read have no identity to compare.
    fresh = isinstance(step, Attr) and step.name in ("co_varnames", "real", "__origin__", "__args__")
    return not fresh


@pytest.mark.parametrize("step", STEPS, ids=[f"{type(step).__name__}-{n}" for n, step in enumerate(STEPS)])
def test_steps_agree_on_all_objects(step: Source) -> None:
    for obj in OBJECTS:
        if readable(step, obj):
            read(step, obj)


@pytest.mark.parametrize(
    ("step", "obj", "expected"),
    [
        (Key(DictOf(X), "dim"), DIM, 1),
        (Key(X, "a"), Hostile(a=7), 7),
        (Index(X, 1), HostileList([1, 8]), 8),
        (Index(X, 1), deque([1, 9]), 9),
        (Index(X, 1), Point(1, 10), 10),
        (KeyAt(X, 0), MOVED, "b"),
        (ValueAt(X, 2), MOVED, 1),
        (Key(X, True), {1: "one"}, "one"),
        (Key(X, (1, "t")), {(1, "t"): "pair"}, "pair"),
        (Attr(X, "__defaults__"), function, function.__defaults__),
        (CellOf(X), types.CellType("inside"), "inside"),
        (TypeOf(X), 3, int),
        (CallOf(Pinned(len), (X,)), [1, 2], 2),
    ],
    ids=lambda value: type(value).__name__,  # pytest would look inside the hostile ones
)
def test_steps_find_the_value(step: Source, obj: Any, expected: object) -> None:
    assert read(step, obj) == expected


@pytest.mark.parametrize(
    ("step", "obj"),
    [
        (Key(X, "absent"), {"a": 1}), (Index(X, 2), [1, 2]), (Index(X, 0), {"a": 1}), (CellOf(X), types.CellType()),
        (Slot(X, "b", Slotted), slotted()), (Slot(X, "a", Slotted), Plain()), (DictOf(X), 3), (SetAt(X, 0), set()),
        (Attr(X, "anything"), Plain()), (CallOf(Pinned(len), (X,)), 3), (KeyAt(X, 0), {}), (Local("y", 1), 1),
    ],
)  # fmt: skip
def test_steps_that_lead_nowhere(step: Source, obj: Any) -> None:
    assert read(step, obj) is NOWHERE


def test_a_hidden_dict_is_still_read() -> None:
    hidden = Hostile()
    object.__setattr__(hidden, "n", 4)
    assert program([], [Key(DictOf(X), "n")]).values((hidden,)) == (4,)
    assert program([], [Key(DictOf(X), "boom")]).values((Hostile,)) == (Hostile.boom,)


def test_a_colliding_key_is_never_asked() -> None:
    # Reading past it would need its __eq__: the read fails rather than run it.
    table = {HostileKey("k"): 1}
    assert program([], [Key(X, "k")]).values((table,)) is None
    assert read(Key(X, "other"), {HostileKey("k"): 1, "other": 2}) == 2


def test_mixed_dicts_of_every_size_agree_with_python() -> None:
    for size in (1, 5, 6, 11, 100, 300, 3000):
        keys = list(
            itertools.islice(
                itertools.chain.from_iterable((i, f"s{i}", i + 0.5, (i,)) for i in range(size)), size
            )
        )
        table = {key: object() for key in keys}
        for key in keys[:: max(1, size // 7)]:
            assert read(Key(X, key), table) is table[key]
        for key in keys[::3]:
            del table[key]
        assert read(Key(X, keys[0]), table) is NOWHERE


def test_tensor_attributes_skip_modes_and_subclasses() -> None:
    class Loud(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError("user code ran")

    leaf = torch.ones(2, requires_grad=True)
    (leaf * 2).sum().backward()
    with torch._C.DisableTorchFunction():
        loud = torch.ones(2).as_subclass(Loud)
    assert read(Attr(X, "grad"), leaf) is leaf.grad
    assert read(Attr(X, "grad"), loud) is None
    assert read(Attr(X, "_base"), leaf[:1]) is leaf
