"""A package of five modules whose traced code reaches most kinds of facts.   package(rng) -> {file name: text}

In: random numbers, for its constants.  Out: sources.  `main` has the roots; functions called `unused...` are not traced.
"""

from __future__ import annotations

import random

NAME = "stator_mutated_package"
ROOTS = ("program", "bound", "net", "closed", "numbers", "breaking")  # the last one ends in a graph break
STATE = [  # statements that change the imported package, without its sources
    "settings.SCALE = {}", "settings.LIMITS['low'] = {}.5", "settings.LIMITS['new'] = {}", "settings.CONFIG.alpha = {}.25",
    "settings.NAMES = settings.NAMES[:{} % 3]", "settings.CONFIG.sizes.append({})", "tools.helper.__defaults__ = ({},)",
    "tools.helper.__kwdefaults__ = {{'shift': {}.5}}", "tools.helper = tools.other", "layers.Base.factor = {}",
    "layers.Base.bend = staticmethod(lambda x: x - {})", "layers.Child.doubled = property(lambda self: {})",
    "layers.Child.apply = layers.Base.apply", "main.closed.__closure__[0].cell_contents = {}.75",
    "main.net.size = {}", "main.net.child = layers.Base()", "main.net.register_forward_hook(lambda m, a, o: o + {})",
    "main.net.training = not main.net.training", "main.net.linear = None", "wrappers.TABLE['sin'] = wrappers.TABLE['cos']",
    "main.bound = layers.Base().apply", "layers.Net.forward = lambda self, x: x * {}", "main.helper = tools.other",
    "tools.PARTIAL = __import__('functools').partial(tools.other, n={})", "settings.Mode.FAST._value_ = {}",
    "layers.Child.__bases__ = (layers.Middle,)", "main.numbers.__code__ = main.unused_numbers.__code__",
]

_SETTINGS = '''
import dataclasses
import enum

SCALE = {}
LIMITS = {{"low": -{}.5, "high": {}.25}}
NAMES = ("a", "b")


class Mode(enum.Enum):
    FAST = {}
    SLOW = {}


@dataclasses.dataclass
class Config:
    alpha: float = {}.5
    mode: Mode = Mode.FAST
    sizes: list = dataclasses.field(default_factory=lambda: [{}, {}])


CONFIG = Config()
UNUSED = {}
'''
_TOOLS = '''
import functools


def helper(x, n={}, *, shift={}.5):
    return x * n + shift


def other(x, n={}, *, shift={}.5):
    return x * n - shift


PARTIAL = functools.partial(helper, n={})


def steps(count):
    for number in range(count):
        yield number * {}


def unused_tool(x):
    return x - {}
'''
_WRAPPERS = '''
import functools
import torch

TABLE = {{"sin": torch.sin, "cos": torch.cos}}


def scaled(offset={}):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(x, *rest, **named):
            return function(x, *rest, **named) * {} + offset
        return wrapper
    return decorate


def chosen(name):
    return lambda x: TABLE[name](x) + {}
'''
_LAYERS = '''
import torch
from . import settings, tools


class Base:
    factor = {}

    @property
    def doubled(self):
        return self.factor * 2

    @staticmethod
    def bend(x):
        return x.clamp(-{}, {})

    def apply(self, x):
        return self.bend(x) * self.doubled


class Middle(Base):
    factor = {}


class Child(Base):
    extra = {}

    def apply(self, x):
        return super().apply(x) + self.extra


class Net(torch.nn.Module):
    slope = 0.{}

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        self.child = Child()
        self.size = 3

    def forward(self, x):
        y = torch.nn.functional.leaky_relu(self.linear(x), self.slope)
        if len(settings.NAMES) > 1 and self.size == 3:
            y = y + sum(tools.steps(self.size))
        if settings.CONFIG.mode is settings.Mode.FAST:
            y = y * settings.CONFIG.alpha
        return self.child.apply(y)

    def unused_method(self, x):
        return x * {}
'''
_MAIN = '''
import torch
from . import layers, settings, tools, wrappers
from .tools import helper


@wrappers.scaled(offset={})
def decorated(x):
    return helper(x, settings.SCALE) - settings.LIMITS["low"]


def program(x):
    y = decorated(x) + tools.PARTIAL(x)
    for name, value in settings.LIMITS.items():
        y = y + value if name == "high" else y * {}.5
    return wrappers.chosen("sin")(y) + len(settings.CONFIG.sizes)


def make(weight):
    step = weight + {}
    def inner(x, more=({}, "text")):
        return x * weight + step * more[0]
    return inner


def numbers(x):
    total = settings.Mode.FAST.value
    for size in settings.CONFIG.sizes:
        total += size if size > {} else -size
    return x + total, total, [name.upper() for name in settings.NAMES]


def unused_numbers(x):
    return x, {}, []


def breaking(x):
    y = helper(x) * settings.SCALE
    stop()
    return tools.other(y).cos()


def stop():
    torch._dynamo.graph_break()


closed = make({}.5)
torch.manual_seed(0)
net = layers.Net()
bound = layers.Child().apply
'''


def package(rng: random.Random) -> dict[str, str]:
    """The sources of one package; all numbers are different."""
    count = iter(rng.sample(range(1, 90), 60))
    texts = {"settings": _SETTINGS, "tools": _TOOLS, "wrappers": _WRAPPERS, "layers": _LAYERS, "main": _MAIN}
    return {"__init__.py": "", **{
        f"{name}.py": text.format(*[next(count) for _ in range(text.replace("{{", "").count("{"))])
        for name, text in texts.items()}}
