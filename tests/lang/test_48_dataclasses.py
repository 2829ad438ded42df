"""dataclasses: defaults, factories, frozen, order, slots, replace, asdict, inheritance."""

import dataclasses
import typing
from dataclasses import dataclass, field

from curriculum import call, case, ramp


@dataclass
class Config:
    size: int = 2
    scale: float = 1.0
    names: list = field(default_factory=list)
    hidden: int = field(default=0, repr=False, compare=False)


@dataclass(frozen=True)
class Frozen:
    n: int
    t: typing.Any = None


@dataclass(order=True)
class Ranked:
    score: int
    name: str = ""


@dataclass(slots=True)
class Slotted:
    a: typing.Any
    b: int = 3


@dataclass
class Derived(Config):
    extra: str = "e"
    total: int = field(init=False)

    def __post_init__(self):
        self.total = self.size * 10


@dataclass
class Output:
    loss: typing.Any
    logits: typing.Any = None


@dataclass
class WithInitVar:
    base: int
    factor: dataclasses.InitVar[int] = 2
    value: int = field(default=0, kw_only=True)

    def __post_init__(self, factor):
        self.value += self.base * factor


@case(lambda: call(Config(3, 2.0), ramp(2)), lambda: call(Config(), ramp(2)))
def argument(c, x):
    c.names.append(c.size)
    c.size += 1
    return x * c.scale + c.size


@case()
def made_inside(x):
    c = Config(x.dim(), scale=0.5)
    d = Config()
    return c, d, c.names is d.names, x * c.scale


@case()
def tensor_output(x):
    return Output(loss=x.sum(), logits=x * 2)


@case(lambda: call(Frozen(2, ramp(2))))
def frozen(f):
    return f.t * f.n, hash(Frozen(1)) == hash(Frozen(1)), Frozen(1) == Frozen(1), dataclasses.replace(f, n=5)


@case(lambda: call(Frozen(2, ramp(2))))
def frozen_refuses(f):
    y = f.t + 1
    f.n = 3
    return y


@case(call(ramp(2)))
def ordering_and_equality(x):
    a, b = Ranked(1, "b"), Ranked(1, "c")
    return a < b, a == Ranked(1, "b"), sorted([b, a])[0].name, max(a, b).name, a != b, x + a.score


@case(lambda: call(Slotted(ramp(2))))
def slots(s):
    s.b += 1
    try:
        s.c = 1
    except AttributeError as error:
        told = str(error)
    return s.a * s.b, told, hasattr(s, "__dict__")


@case(call(ramp(2)))
def inheritance_and_post_init(x):
    d = Derived(4, names=["n"])
    return d, d.total + x, [f.name for f in dataclasses.fields(d)]


@case(call(ramp(2)))
def repr_and_asdict(x):
    c = Config(1, names=[Ranked(2)])
    return repr(c), dataclasses.asdict(c), dataclasses.astuple(Ranked(1, "z")), dataclasses.is_dataclass(c), x + 1


@case(call(ramp(2)))
def replace(x):
    c = Config(1, names=["a"])
    d = dataclasses.replace(c, size=9)
    d.names.append("b")
    return c, d, c.names is d.names, x + d.size


@case(call(ramp(2)))
def init_var_and_keyword_only(x):
    w = WithInitVar(3, factor=4, value=1)
    return w.value + x, w, WithInitVar(1).value


@case(call(ramp(2)))
def wrong_construction(x):
    y = x + 1
    return y, Frozen()


@case(call(ramp(2)))
def dataclass_made_inside(x):
    @dataclass
    class Local:
        a: int
        b: list = field(default_factory=lambda: [1, 2])

        def apply(self, v):
            return v * self.a + len(self.b)

    local = Local(3)
    return local.apply(x), local == Local(3), repr(local).split(".")[-1]


@case(lambda: call([Output(ramp(2)), Output(ramp(2), 1)]))
def list_of_dataclasses(outputs):
    for i, o in enumerate(outputs):
        o.logits = o.loss * i
    return outputs[1].logits, [dataclasses.replace(o, loss=None) for o in outputs]


@case(lambda: call([Output(ramp(2)), Output(ramp(2), 1)]))
def fields_of_several_instances(outputs):
    made = Output(outputs[0].loss, 3)
    known = [dataclasses.fields(each) for each in (*outputs, made)]
    names = [f.name for fields in known for f in fields]
    return outputs[0].loss * len(names), names, known[0] == known[2], known[0] is known[1]


@case(lambda: call(ramp(2), Config()))
def fields_after_one_became_a_pseudo_field(x, config):
    before = [f.name for f in dataclasses.fields(Config(3))]
    changed = dataclasses.fields(config)[1]
    kind, changed._field_type = changed._field_type, dataclasses._FIELD_CLASSVAR
    between = [f.name for f in dataclasses.fields(config)]
    changed._field_type = kind
    return x + len(before) - len(between), before, between, [f.name for f in dataclasses.fields(config)]


@case(lambda: call(ramp(2), Config()))
def fields_that_an_instance_or_the_table_hides(x, config):
    first = dataclasses.fields(Config())
    config.__dataclass_fields__ = {}
    hidden = dataclasses.fields(config)
    table = Config.__dataclass_fields__
    whole = dict(table)
    table.pop("scale")
    less = [f.name for f in dataclasses.fields(Config())]
    table.clear()
    table.update(whole)
    return x * len(first), hidden, less


@case(lambda: call(ramp(2), Slotted(ramp(2))))
def slots_read_written_and_deleted(x, slotted):
    first, again = slotted.b, slotted.b
    slotted.b = 7
    written = slotted.b
    del slotted.b
    return x + first + again + written, hasattr(slotted, "b"), slotted.a * 2


@case(call(3), call(4), graphs=0)
def repr_of_a_field_with_the_missing_sentinel(n):
    made = dataclasses.field(default=n)
    return repr(made), repr(dataclasses.MISSING) in repr(made), made
