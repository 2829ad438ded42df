"""Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict; forward hooks."""

import torch
from torch import nn

from curriculum import call, case, ramp


def fixed(module):
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(torch.linspace(-1, 1, p.numel()).view_as(p) + 0.1 * i)
    return module


class Stack(nn.Module):
    def __init__(self, depth=2):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(depth)])
        self.by_name = nn.ModuleDict({"relu": nn.ReLU(), "tanh": nn.Tanh()})
        self.scales = nn.ParameterList([nn.Parameter(torch.ones(())) for _ in range(depth)])
        self.named = nn.ParameterDict({"shift": nn.Parameter(torch.zeros(3))})

    def forward(self, x, act="relu"):
        for layer, scale in zip(self.layers, self.scales):
            x = self.by_name[act](layer(x)) * scale
        return x + self.named["shift"]


seen = []


def remember(module, args, output):
    seen.append((type(module).__name__, args[0].shape[0], tuple(output.shape)))


def double_output(module, args, output):
    return output * 2


def shift_input(module, args):
    return (args[0] + 1,)


def hooked(*hooks, pre=()):
    def make():
        m = fixed(nn.Linear(3, 3))
        for hook in hooks:
            m.register_forward_hook(hook)
        for hook in pre:
            m.register_forward_pre_hook(hook)
        return call(m, ramp(2, 3))

    return make


def sequential():
    return call(fixed(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))), ramp(2, 3))


def stack(depth=2):
    return lambda: call(fixed(Stack(depth)), ramp(2, 3))


@case(sequential)
def sequential_call(m, x):
    return m(x), len(m), type(m[1]).__name__, m[0](x), m[-1].out_features


@case(sequential)
def sequential_iteration_and_slices(m, x):
    for layer in m:
        x = layer(x)
    return x, [n for n, _ in m.named_children()], len(m[:2])


@case(stack(), stack(3))
def lists_and_dicts(m, x):
    return m(x), m(x, act="tanh"), len(m.layers)


@case(stack())
def module_list_operations(m, x):
    return m.layers[0](x), m.layers[-1](x), [l.in_features for l in m.layers], isinstance(m.layers, nn.ModuleList), len(m.layers[1:])


@case(stack())
def module_dict_operations(m, x):
    return list(m.by_name), "relu" in m.by_name, [k for k, _ in m.by_name.items()], m.by_name["tanh"](x), len(m.by_name)


@case(stack())
def missing_module_name(m, x):
    y = x + 1
    return m(y, act="gelu")


@case(stack())
def parameter_containers(m, x):
    return sum(p for p in m.scales) * x, list(m.named.keys()), m.named["shift"] + x, [tuple(p.shape) for p in m.scales]


@case(hooked(remember))
def forward_hook(m, x):
    return m(x), len(seen)


@case(hooked(double_output, remember))
def forward_hook_changes_the_output(m, x):
    return m(x)


@case(hooked(pre=(shift_input,)))
def forward_pre_hook(m, x):
    return m(x), m.forward(x)


@case(hooked(remember, double_output, pre=(shift_input, shift_input)))
def many_hooks_in_order(m, x):
    return m(m(x))


@case(lambda: call(fixed(nn.Linear(3, 3)), ramp(2, 3)))
def hook_registered_and_removed_inside(m, x):
    log = []
    handle = m.register_forward_hook(lambda mod, args, out: log.append("hook"))
    a = m(x)
    handle.remove()
    b = m(x)
    return a, b, log


def hooked_stack():
    m = fixed(Stack())
    m.layers[1].register_forward_hook(remember)
    m.by_name["relu"].register_forward_hook(double_output)
    return call(m, ramp(2, 3))


@case(hooked_stack)
def hook_on_a_submodule(m, x):
    return m(x), len(seen)


@case(call(ramp(2, 3)))
def containers_made_inside(x):
    layers = nn.Sequential(nn.ReLU(), nn.Sequential(nn.Tanh(), nn.Identity()))
    table = nn.ModuleDict({"a": nn.ReLU()})
    table["b"] = nn.Tanh()
    return layers(x), [k for k in table], table["b"](x), len(layers)


@case(stack())
def apply_and_modules(m, x):
    names = []
    m.apply(lambda mod: names.append(type(mod).__name__))
    return names, len(list(m.modules())), x + len(names)
