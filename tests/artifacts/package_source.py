"""A package of six modules whose traced code reaches most kinds of facts.   package(rng) -> {file name: text}

In: random numbers, for its constants.  Out: sources.  `main` has the roots; functions called `unused...` are not traced.
"""

from __future__ import annotations

import random

NAME = "stator_mutated_package"
ROOTS = ("program", "bound", "net", "closed", "numbers", "wide", "classes", "breaking")  # the last one ends in a graph break
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
    # Classes: metaclasses, descriptors, special methods, decorators.
    "extras.Meta.scale = {}", "extras.Meta.__call__ = lambda cls, *args: extras.Plain()", "extras.First.factor = {}",
    "extras.Registered.known['First'] = extras.Second", "extras.Tagged.__len__ = lambda self: {}",
    "extras.Tagged.__getattr__ = lambda self, name: {}", "extras.Tagged.width = extras.Fixed({})",
    "extras.Fixed.__get__ = lambda self, *args: {}", "extras.Tagged.__slots__ = ()", "extras.ADDED.append({})",
    "extras.Tagged.__call__ = extras.Plain.__call__", "extras.First.run = extras.counted(extras.Second.run)",
    "extras.Second.run.__wrapped__ = extras.First.run", "main.classes = extras.counted(main.classes)",
    "extras.counted.__defaults__ = ({},)", "del extras.First.factor", "extras.Tagged.__bool__ = lambda self: False",
    "main.net.__class__ = type('Net', (layers.Net,), dict(slope={}.5))", "layers.Net.__call__ = lambda self, x: x * {}",
    "layers.Net.__getattr__ = lambda self, name: torch.nn.Module.__getattr__(self, 'linear')",
    # Parameters, buffers, hooks, adapters.
    "main.wide.out.weight = torch.nn.Parameter(main.wide.out.weight.detach() * {})", "main.wide.shift = torch.ones(4) * {}",
    "main.wide.shift = torch.ones(1) * {}", "main.wide.shift = None", "main.wide.double()", "main.wide.bfloat16()",
    "main.wide.shift = main.wide.shift.double()", "main.wide.adapters['a'] = torch.nn.Linear(4, 4)",
    "main.wide.adapters['old'] = torch.nn.Linear(4, 4)", "main.wide.adapters.clear()", "main.wide.requires_grad_(False)",
    "main.wide.embed.register_forward_pre_hook(lambda m, a: (a[0] * {},))", "main.wide.embed.register_forward_hook(lambda m, a, o: o * {})",
    "main.wide.register_full_backward_hook(lambda m, a, o: None)", "main.wide.out = torch.nn.Linear(4, 4)",
    "torch.nn.modules.module.register_module_forward_hook(lambda m, a, o: o + {} if m is main.wide.embed else None)",
    "torch.nn.utils.parametrize.register_parametrization(main.wide.embed, 'weight', torch.nn.Tanh())",
    "main.wide.embed.weight.data.mul_({})", "main.wide.embed.weight.register_hook(lambda grad: grad * {})",
    "main.wide.embed.forward = lambda x: x * {}", "main.wide.adapters['old'].scale = {}",
    # Functions of others, the environment, settings of torch.
    "torch.nn.functional.leaky_relu = lambda x, slope: x * {}", "torch.Tensor.clamp = lambda self, low, high: self + {}",
    "torch.nn.Linear.forward = lambda self, x: x * {}", "__import__('builtins').len = lambda value: {}",
    "__import__('os').environ['STATOR_TEST_MODE'] = 'fast'", "__import__('math').sqrt = lambda x: {}.0",
    "torch.set_default_dtype(torch.float64)", "torch.set_float32_matmul_precision('medium')", "torch.set_grad_enabled(False)",
    "torch.use_deterministic_algorithms(True)", "torch.use_deterministic_algorithms(True, warn_only=True)",
    "torch.set_num_threads(1)", "torch.autograd.set_detect_anomaly(True)", "torch._C._set_mkldnn_enabled(False)",
    "torch.backends.cuda.enable_flash_sdp(False)", "torch.set_autocast_enabled('cpu', True)",
    "torch.set_autocast_dtype('cpu', torch.float16)", "torch.inference_mode().__enter__()",
    "__import__('torch._inductor.config', fromlist=['']).max_autotune = True",
    "__import__('torch._functorch.config', fromlist=['']).donated_buffer = False", "torch.set_flush_denormal(True)",
    "__import__('sys').modules['math'].pi = {}", "settings.__dict__.update(SCALE={})", "settings.__class__ = extras.Odd",
    "main.settings = __import__('types').SimpleNamespace(**vars(settings), SCALE_={})", "tools.helper.__code__ = tools.other.__code__",
    "wrappers.TABLE = dict(reversed(wrappers.TABLE.items()))", "settings.LIMITS = dict(reversed(settings.LIMITS.items()))",
    "settings.LIMITS = type('Limits', (dict,), dict(items=lambda self: [('high', {})]))(settings.LIMITS)",
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
_EXTRAS = '''
import functools
import math
import os
import types

import torch

ADDED = [{}]


class Odd(types.ModuleType):
    SCALE = {}


def counted(function, more={}):
    @functools.wraps(function)
    def wrapper(*args):
        return function(*args) + more
    return wrapper


class Meta(type):
    scale = {}

    def __call__(cls, *args):
        made = super().__call__(*args)
        made.tag = cls.scale
        return made


class Registered:
    known = {{}}

    def __init_subclass__(cls, factor={}, **more):
        super().__init_subclass__(**more)
        cls.factor = factor
        Registered.known[cls.__name__] = cls


class First(Registered, factor={}):
    def run(self, x):
        return x * self.factor


class Second(Registered):
    @counted
    def run(self, x):
        return x - self.factor


class Fixed:
    def __init__(self, value):
        self.value = value

    def __get__(self, owner, cls=None):
        return self.value


class Tagged(metaclass=Meta):
    width = Fixed({})

    def __call__(self, x):
        return x + self.tag * self.width + len(self)

    def __len__(self):
        return {}


class Plain:
    def __call__(self, x):
        return x * {}


class Adapter(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.down, self.up, self.scale = torch.nn.Linear(4, 2, bias=False), torch.nn.Linear(2, 4, bias=False), {}.5

    def forward(self, x):
        return self.up(self.down(x)) * self.scale


class Wide(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = torch.nn.Linear(4, 4, bias=False), torch.nn.Linear(4, 4, bias=False)
        self.out.weight = self.embed.weight
        self.register_buffer("shift", torch.full((4,), {}.0))
        self.adapters = torch.nn.ModuleDict({{"old": Adapter()}})

    def forward(self, x):
        y = self.embed(x)
        for name, adapter in self.adapters.items():
            y = y + adapter(x) * len(name)
        if self.out.weight is self.embed.weight:
            y = y * math.sqrt({})
        if os.environ.get("STATOR_TEST_MODE") == "fast":
            y = y + {}
        return self.out(y) + self.shift
'''
_MAIN = '''
import torch
from . import extras, layers, settings, tools, wrappers
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


def classes(x):
    for name, cls in extras.Registered.known.items():
        x = cls().run(x) + len(name)
    tagged = extras.Tagged()
    return tagged(x) + sum(extras.ADDED) if tagged else x


closed = make({}.5)
torch.manual_seed(0)
net = layers.Net()
bound = layers.Child().apply
wide = extras.Wide()
'''


def package(rng: random.Random) -> dict[str, str]:
    """The sources of one package; all numbers are different."""
    count = iter(rng.sample(range(1, 190), 90))
    texts = {"settings": _SETTINGS, "tools": _TOOLS, "wrappers": _WRAPPERS, "layers": _LAYERS, "extras": _EXTRAS, "main": _MAIN}
    return {"__init__.py": "", **{
        f"{name}.py": text.format(*[next(count) for _ in range(text.replace("{{", "").count("{"))])
        for name, text in texts.items()}}
