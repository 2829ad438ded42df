"""nn.Module: attributes, submodules, parameters, buffers, training flag, overrides."""

import torch
import torch.nn.functional as F
from torch import nn

from curriculum import call, case, ramp


def fixed(module):
    """Deterministic parameters, so that both sides compute the same numbers."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p) + 0.1 * i)
    return module


class Block(nn.Module):
    def __init__(self, size=3, scale=2.0):
        super().__init__()
        self.linear = nn.Linear(size, size)
        self.norm = nn.LayerNorm(size)
        self.scale = scale
        self.calls = 0
        self.register_buffer("seen", torch.zeros(()))
        self.extra = None

    def forward(self, x, residual=True):
        self.calls += 1
        y = self.norm(F.gelu(self.linear(x))) * self.scale
        return x + y if residual else y


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.last = None

    def forward(self, x):
        self.total += x.sum(0)
        self.last = x.shape
        return self.total * 2


class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = self.first
        self.bias = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.second(self.first(x)) + self.bias


class Called(nn.Linear):
    def __call__(self, x):
        return super().__call__(x) * 10


class Dynamic(nn.Module):
    def __init__(self):
        super().__init__()
        self.options = {"k": 2}

    def __getattr__(self, name):
        if name.startswith("opt_"):
            return self.options[name[4:]]
        return super().__getattr__(name)

    def forward(self, x):
        return x * self.opt_k


def with_module(make):
    return lambda: call(fixed(make()), ramp(2, 3)), lambda: call(fixed(make()), ramp(4, 3, start=0.0))


@case(*with_module(lambda: nn.Linear(3, 4)))
def builtin_layer(m, x):
    return m(x), m.weight.shape, m.bias is not None, m.in_features


@case(*with_module(Block))
def user_module(m, x):
    return m(x), m(x, residual=False), m.calls


@case(*with_module(Outer))
def shared_submodule(m, x):
    return m(x), m.first is m.second, m.first.calls


@case(*with_module(Counter))
def buffer_is_updated(m, x):
    m(x)
    return m(x), m.last


@case(*with_module(lambda: Called(3, 3)))
def call_override(m, x):
    return m(x), m.forward(x)


@case(*with_module(Dynamic))
def getattr_override(m, x):
    return m(x), m.opt_k


@case(*with_module(lambda: nn.Dropout(0.5).eval()), lambda: call(nn.Dropout(0.5).train(), ramp(2, 3)))
def training_flag(m, x):
    return m(x) * 2, m.training


@case(*with_module(lambda: nn.BatchNorm1d(3).eval()), lambda: call(fixed(nn.BatchNorm1d(3)).train(), ramp(4, 3)))
def batch_norm(m, x):
    return m(x)


@case(*with_module(Block))
def train_and_eval_inside(m, x):
    m.eval()
    a = m(x)
    m.train()
    return a, m.training, m.linear.training


@case(*with_module(Block))
def walking_the_tree(m, x):
    return ([n for n, _ in m.named_parameters()], [n for n, _ in m.named_modules()], [type(c).__name__ for c in m.children()],
            sum(p.numel() for p in m.parameters()), list(m.state_dict()), [n for n, _ in m.named_buffers()], x + 1)  # fmt: skip


@case(*with_module(Block))
def attributes_are_written(m, x):
    m.scale = 3.0
    m.extra = x + 1
    m.new_list = [1]
    m.seen = m.seen + 1
    return m(x)


@case(*with_module(Block))
def missing_attribute(m, x):
    y = m(x)
    return y + m.not_there


@case(*with_module(Block))
def parameters_used_directly(m, x):
    return F.linear(x, m.linear.weight, m.linear.bias), m.linear.weight.sum(), m.get_parameter("linear.bias"), m.linear.weight.requires_grad


@case(call(ramp(2, 3)))
def module_made_inside(x):
    class Scale(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.n = n

        def forward(self, v):
            return v * self.n

    m = Scale(3)
    return m(x), isinstance(m, nn.Module), m.training, nn.ReLU()(x)


@case(*with_module(Block))
def submodule_is_replaced(m, x):
    before = m(x)
    m.linear = nn.Identity()
    return before, m(x), type(m.linear).__name__


@case(*with_module(Block))
def error_in_forward(m, x):
    y = m(x)
    return m(y.sum(1))


model = fixed(Block())


@case(call(ramp(2, 3)), call(ramp(4, 3)))
def global_module(x):
    return model(x), model.calls


@case(*with_module(Block))
def methods_and_functions_of_a_module(m, x):
    forward = m.forward
    return forward(x, False), Block.forward(m, x), m.linear.extra_repr(), m._get_name(), "linear" in dict(m.named_children())
