"""typing at run time: NamedTuple, Generic, Protocol, TypedDict, cast, annotations."""

import abc
import types
import typing
from typing import Any, Generic, NamedTuple, Optional, Protocol, TypedDict, TypeVar, Union

import torch

import stator
from curriculum import call, case, ramp

T = TypeVar("T")


class Output(NamedTuple):
    loss: Any
    logits: Any = None

    def scaled(self, n):
        return self._replace(loss=self.loss * n)


class Box(Generic[T]):
    def __init__(self, value: T):
        self.value = value

    def get(self) -> T:
        return self.value


class IntBox(Box[int]):
    def double(self):
        return self.value * 2


@typing.runtime_checkable
class Scalable(Protocol):
    def scale(self, n): ...


Scalable.__annotations__  # noqa: B018  made as they are read first: a call that makes them runs eagerly


class Good:
    def scale(self, n):
        return n * 2


class Options(TypedDict, total=False):
    size: int
    name: str


Options.__annotations__  # since 3.14, the first read computes them, in an eager call


@case()
def named_tuple(x):
    out = Output(x.sum(), logits=x)
    loss, logits = out
    return out, out.scaled(2), loss + 1, out._fields, out._asdict()


@case(lambda: call(Output(ramp(2))), lambda: call(Output(ramp(3), 1)))
def named_tuple_argument(out):
    return out.loss * 2 if out.logits is None else out.loss + out.logits


@case()
def generic_class(x):
    return Box[int](3).get(), Box(x).get() + 1, IntBox(4).double(), Box[str].__origin__ is Box


@case(lambda: call(Good(), ramp(2)), lambda: call(3, ramp(2)))
def protocol_isinstance(thing, x):
    if isinstance(thing, Scalable):
        return x * thing.scale(3)
    return x


@typing.runtime_checkable
class Named(Protocol):
    name: str

    def scale(self, n): ...


class NamedGood(Good):
    name = "good"


# Asking a protocol makes them from 3.12 on, where a class has none: such a call is not captured.
MADE_BEFORE = Good.__annotations__, NamedGood.__annotations__


@case(lambda: call(Good(), ramp(2)), lambda: call(NamedGood(), ramp(2)), lambda: call(3, ramp(2)))
def protocol_with_a_data_member(thing, x):
    return x * thing.scale(3) if isinstance(thing, Named) else x + 1


@case(call({"size": 3}, ramp(2)), call({}, ramp(2)))
def typed_dict(options: Options, x):
    made = Options(size=1, name="n")
    return x + options.get("size", 0), made, type(made) is dict, Options.__annotations__["size"]


@case()
def cast_and_annotations(x):
    y: torch.Tensor = typing.cast(torch.Tensor, x + 1)
    n: "int" = 3
    z: float  # noqa: F842
    return y * n


@case(call(ramp(2)))
def aliases(x):
    return Optional[int] == Union[int, None], typing.get_args(dict[str, int]), typing.get_origin(list[int]), int | None, x + 1


@case(call(ramp(2)), call(None))
def optional_argument(x: Optional[torch.Tensor]):
    if x is None:
        return torch.zeros(1) + 1
    return x + 1


@case(call(ramp(2)))
def class_annotations(x):
    class Local:
        a: int
        b: str = "b"
        c: list[int] = [1]

    return Local.__annotations__, hasattr(Local, "a"), Local.b, x + Local.c[0]


@case(call(ramp(2)))
def overloads_and_final(x):
    @typing.final
    class Leaf:
        limit: typing.Final = 3

    @typing.no_type_check
    def f(v):
        return v + Leaf.limit

    return f(x), typing.TYPE_CHECKING


@case(call(ramp(2)))
def generic_made_inside(x):
    class Stack(Generic[T]):
        def __init__(self):
            self.items: list[T] = []

        def push(self, v: T):
            self.items.append(v)
            return self

    return Stack[int]().push(x).push(x + 1).items


@case(call(ramp(2)))
def callable_and_literal(x):
    Fn = typing.Callable[[int], int]
    Kind = typing.Literal["a", "b"]
    return typing.get_args(Kind), typing.get_args(Fn)[1] is int, isinstance(len, typing.Callable), x + 1


def fill_caches():
    """Subscribe so often that the caches of typing push out what they had."""
    for number in range(200):
        typing.Unpack[typing.TypeVarTuple(f"Ts{number}")]


@case(lambda: fill_caches() or call(ramp(2)), lambda: call(ramp(3)))
def unpacked_in_a_full_cache(x):
    made = typing.TypeVarTuple("made")
    first, second = tuple[typing.Unpack[made]], tuple[*made]
    return x + len(first.__parameters__), first == second, first.__parameters__[0] is made, str(second), second[int, str]


def refusal(make):
    try:
        make()
    except TypeError as error:
        return str(error)


@case(call(ramp(2)), call(ramp(3)))
def type_parameters_in_c(x):
    item, names, items = typing.TypeVar("item"), typing.ParamSpec("names"), typing.TypeVarTuple("items")
    called = typing.Callable[names, item]
    substituted = called[[int, str], bytes], called[..., item], tuple[item, *items][int, str, bytes]
    concatenated = typing.Callable[typing.Concatenate[item, names], int][str, [bytes]]
    refused = [refusal(lambda: types.new_class("Made", (parameter,))) for parameter in (item, names, items)]
    return x + 1, str(substituted), str(concatenated), item | None, str("later" | item), names.args == names.args, refused


@case(call(ramp(2)), call(ramp(3)))
def registrations_removed(x):
    class Number(abc.ABC):
        pass

    Number.register(int)
    before = issubclass(int, Number), issubclass(str, Number)
    Number._abc_registry_clear()
    Number._abc_caches_clear()
    Number.register(str)
    return x + 1, before, issubclass(int, Number), issubclass(str, Number), isinstance("", Number)


@case(call(ramp(2)), call(ramp(3)))
def class_with_registrations_removed(x):
    class Number(abc.ABC):
        pass

    Number.register(int)
    Number._abc_registry_clear()
    Number._abc_caches_clear()
    Number.register(str)
    kept = Number
    return x + 1, issubclass(int, kept), (lambda value: isinstance(value, kept))("")


def test_aliases_around_objects_from_outside():
    class Config:
        def __init__(self, n):
            self.n = n

    def made(config):
        config.n += 1

        class Local:
            pass

        return (types.GenericAlias(list, (config,)), list[config], typing.Annotated[int, config, 3], typing.Literal[config],
                typing.List[typing.Annotated[str, config]], Local | None, list[Local], Local)  # fmt: skip

    compiled = stator.compile(made, backend="eager", fullgraph=True)
    for n in range(2):
        config = Config(n)
        plain, listed, annotated, literal, nested, union, local, cls = compiled(config)
        assert config.n == n + 1 and plain.__args__[0] is config and listed.__args__[0] is config
        assert annotated.__metadata__[0] is config and annotated == typing.Annotated[int, config, 3]
        assert literal.__args__[0] is config and nested.__args__[0].__metadata__[0] is config
        assert union == cls | None and local == list[cls] and type(union) is type(int | None)
