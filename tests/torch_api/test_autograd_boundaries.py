"""Operations of autograd alone: backward hooks of modules, new Parameters, retained gradients, flags of leaves."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import stator
from stator import events
from tests.torch_api.beside_eager import BACKENDS, check, values
from tests.torch_api.side_by_side import World, compare


def gradients(module):
    return [parameter.grad for parameter in module.parameters()]


def noting(log):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))
    for number, layer in enumerate(model):
        layer.register_full_backward_hook(
            lambda module, before, after, n=number: log.append((n, before[0].sum().item(), after[0].sum().item())))
        layer.register_full_backward_pre_hook(lambda module, after, n=number: log.append((n, "before")))
    return lambda x: model(x).sum(), values(7, (5, 4))


def changing(log):
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 2))
    model[2].register_full_backward_hook(lambda module, before, after: (before[0] * 2,))
    model[0].register_full_backward_pre_hook(lambda module, after: (after[0] + 1,))
    return lambda x: (model(x).sum(), *model.parameters()), values(7, (5, 4))


def several_arguments(log):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x, y, scale):
            return self.layer(x) * scale, x + y, scale

    model = Pair()
    model.register_full_backward_hook(lambda module, before, after: (before[0] * 2, before[1] * 3, None))

    def program(x, y):
        a, b, scale = model(x, y, 2)
        return (a * b).sum() * scale
    return program, values(7, (3, 4), (3, 4))


def inputs_without_gradients(log):
    layer = nn.Linear(4, 4)
    layer.register_full_backward_hook(lambda module, before, after: log.append((before, after[0].sum().item())))
    return lambda x: layer(x).sum(), values(wants_grad=False)


def module_counts(log):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.n = nn.Linear(4, 4), 0
            self.layer.register_full_backward_hook(self.count)

        def count(self, module, before, after):
            self.n += 1
            log.append(self.n)

        def forward(self, x):
            return self.layer(x)
    return Counting(), values()


def new_parameter(log):
    def program(x):
        weight = nn.Parameter(torch.ones(4) * 2)
        return (x * weight).sum(), weight, isinstance(weight, nn.Parameter)
    return program, values()


def new_module(log):
    def program(x):
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
        return model(x).square().sum(), dict(model.state_dict()), list(model.parameters())
    return program, values()


def retained(log):
    def program(x):
        a = x * 2
        a.retain_grad()
        b = a.sin()
        b.retain_grad()
        return (b * b).sum(), a, b
    return program, values()


def retained_and_changed(log):
    def program(x):
        a = x * 2
        a.retain_grad()
        b = a * 3
        a.mul_(2)
        return (a + b).sum(), a
    return program, values()


def parameter_on_the_memory_of_an_input(log):
    def program(x):
        weight = nn.Parameter(x)
        with torch.no_grad():
            weight.add_(1)
        return x * 2, weight
    return program, values(wants_grad=False)


def write_behind_a_boundary(log):
    def program(x):
        y = x * 2
        flat = y.view(-1)
        weight = nn.Parameter(torch.ones(4))
        y.add_(1)
        return (flat.view(3, 4) * weight).sum(), weight
    return program, values(wants_grad=False)


def identity(log):
    module = nn.Identity()
    module.register_full_backward_hook(lambda module, before, after: (before[0] * 5,))

    def program(x):
        y = module(x)
        return y is x, (y * y).sum(), module(y).sum()
    return program, values()


CAPTURED = [parameter_on_the_memory_of_an_input, write_behind_a_boundary, identity, noting, changing, several_arguments,
            inputs_without_gradients, module_counts, new_parameter, new_module, retained, retained_and_changed]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("make", CAPTURED)
@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
def test_captured(make, backend):
    check(make, backend)


def test_a_compiler_gets_the_pieces():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    model[0].register_full_backward_hook(lambda module, before, after: None)
    with events.record() as log:
        stator.compile(model, backend="aot_eager", fullgraph=True)(torch.randn(3, 4, requires_grad=True))
    assert sum(isinstance(event, events.BackendCompiled) for event in log) == 2
    assert not any(isinstance(event, events.EagerFallback) for event in log)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_that_comes_and_goes(backend):
    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
        handles = []

        def arguments(number):
            if number == 1:
                handles.append(model[2].register_full_backward_hook(lambda module, before, after: (before[0] * 2,)))
            if number == 3:
                handles[0].remove()
            return (torch.ones(3, 4, requires_grad=True),)

        def program(x):
            loss = model(x).sum()
            loss.backward()
            return loss.detach()
        return World(program, arguments, lambda: gradients(model))
    seen = compare(make, calls=5, backend=backend)
    assert not seen.breaks and seen.captures[0] and seen.captures[1]
    assert not seen.fallbacks


@pytest.mark.parametrize("backend", BACKENDS)
def test_global_hooks(backend):
    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        log, handles = [], []

        def arguments(number):
            while handles:
                handles.pop().remove()
            if number < 2:
                handles.append(nn.modules.module.register_module_full_backward_hook(
                    lambda module, before, after: log.append(type(module).__name__)))
                handles.append(nn.modules.module.register_module_full_backward_pre_hook(
                    lambda module, after: log.append(f"before {type(module).__name__}")))
            return (torch.ones(3, 4, requires_grad=True),)

        def program(x):
            model(x).sum().backward()
            return x.grad
        return World(program, arguments, lambda: (log, gradients(model)))
    compare(make, calls=4, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_break_inside_a_hooked_module(backend):
    def make(log):
        class Branching(nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = nn.Linear(4, 4)

            def forward(self, x):
                y = self.layer(x)
                return (y * 2 if y.sum() > 0 else y).relu()
        model = Branching()
        model.register_full_backward_hook(lambda module, before, after: log.append(before[0].sum().item()))
        return lambda x: model(x).sum(), values()
    check(make, backend)


# ---------------------------------------------------------------------- requires_grad of leaves from outside


def freezing(layer, x):
    layer.requires_grad_(False)
    y = layer(x).sum()
    layer.requires_grad_(True)
    return y


def switching(layer, x):
    flag = layer.weight.requires_grad
    layer.weight.requires_grad = not flag
    return flag, layer.weight.requires_grad, layer(x).sum()


def input_becomes_leaf(layer, x):
    x.requires_grad_()
    return (layer(x) * x).sum()


def between_two_uses(layer, x):
    first = layer(x).sum()
    layer.weight.requires_grad = False
    second = layer(x * 2).sum()
    layer.weight.requires_grad = True
    return first + second


def error_afterwards(layer, x):
    layer.weight.requires_grad = not layer.weight.requires_grad
    return layer(x)[torch.tensor([9])]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("function, whole", [(freezing, True), (switching, True), (input_becomes_leaf, True),
                                             (between_two_uses, True), (error_afterwards, True)])
def test_flags_of_leaves(function, whole, backend):
    def make():
        layer = nn.Linear(4, 4)

        def program(x):
            out = function(layer, x)
            return out

        def arguments(number):
            layer.zero_grad()
            return (torch.ones(3, 4),)

        def look():
            return [(p.requires_grad, p.is_leaf) for p in layer.parameters()]
        return World(program, arguments, look)
    seen = compare(make, calls=3, backend=backend)
    assert (not seen.breaks) is whole


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_flag_decided_by_a_number_that_changes(backend):
    def make():
        layer = nn.Linear(4, 2)

        def program(number, x):
            layer.weight.requires_grad_(number >= 2)
            loss = layer(x).square().sum()
            loss.backward()
            return loss.detach(), layer.weight.requires_grad
        return World(program, lambda number: (number, torch.ones(3, 4)), lambda: gradients(layer))
    for captured in (True, False):
        with stator.config.patch(capture_backward=captured):
            found = compare(make, calls=4, backend=backend, tolerance=1e-6).breaks
        assert set(found) == (set() if captured else {"SB016"})


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_players(backend):
    def make():
        one, other = nn.Linear(4, 4), nn.Linear(4, 1)
        first, second = (torch.optim.SGD(each.parameters(), 0.1) for each in (one, other))

        def switch(module, flag):
            for parameter in module.parameters():
                parameter.requires_grad = flag

        def program(x, z):
            switch(other, True)
            second.zero_grad()
            loss = other(x).mean() - other(one(z).detach()).mean()
            loss.backward()
            second.step()
            switch(other, False)
            first.zero_grad()
            answer = -other(one(z)).mean()
            answer.backward()
            first.step()
            return loss.detach(), answer.detach()
        return World(program, lambda number: (torch.ones(3, 4) * number, torch.ones(3, 4)),
                     lambda: (list(one.parameters()), list(other.parameters())))
    seen = compare(make, calls=4, backend=backend, tolerance=1e-6)
    assert not seen.breaks


# ---------------------------------------------------------------------- graphs that no compiler gets


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_input_whose_old_value_the_backward_needs(backend):
    def trained(function):
        weight = torch.full((4,), 3.0, requires_grad=True)
        function(torch.ones(3, 4) * 2, weight).backward()
        return weight.grad

    def scale(x, weight):
        x.mul_(weight)
        return x.sum()
    assert torch.equal(trained(scale), trained(stator.compile(scale, backend=backend)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_memory_of_an_input_is_exchanged(backend):
    def program(x, y):
        with torch.no_grad():
            x.set_(y)
        return x * 2
    check(lambda log: (program, [torch.ones(3, 4), torch.ones(2, 2)]), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore:stator. AOTAutograd cannot trace")
@pytest.mark.filterwarnings("ignore:Sparse")
def test_what_autograd_cannot_trace_is_run_as_it_is(backend):
    def sparse(log):
        def program(x):
            places = torch.tensor([[0, 1, 2], [0, 1, 2]])
            return torch.sparse.mm(torch.sparse_coo_tensor(places, x[:, 0], (3, 3)), x).sum()
        return program, values()
    check(sparse, backend)

    def fused():
        layer = nn.Linear(4, 4)
        optimiser = torch.optim.Adam(layer.parameters(), fused=True)

        def arguments(number):
            optimiser.zero_grad()
            layer(torch.ones(2, 4)).sum().backward()
            return ()
        return World(lambda: optimiser.step(), arguments, lambda: list(layer.parameters()))
    assert not compare(fused, calls=3, backend=backend).breaks


# ---------------------------------------------------------------------- inputs that overlap


def write_one(a, b):
    a.add_(1)
    return b * 2


def write_both(a, b):
    a.mul_(2)
    b.add_(a.sum())
    return (a * 2).sum() + b.sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [write_one, write_both])
@pytest.mark.parametrize("places", [(4, 3, 2), (3, 4, 2), (4, 5, 4), (0, 4, 0)])
def test_overlaps_that_come_and_go(program, places, backend):
    def make():
        def arguments(number):
            base = torch.arange(10.0)
            return base[:4], base[places[number]:places[number] + 4]
        return World(program, arguments)
    compare(make, calls=3, backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", [write_one, write_both])
def test_overlaps_of_changing_sizes(program, backend):
    def make():
        def arguments(number):
            base = torch.arange(6.0 + number)
            return base[:4 + number], base[1:5 + number]
        return World(program, arguments)
    seen = compare(make, calls=4, backend=backend)
    assert sum(seen.captures) <= 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_parts_of_one_buffer_that_lie_apart_need_one_graph(backend):
    def make():
        buffer = torch.arange(40.0)
        return World(write_one, lambda number: (buffer[8 * number:8 * number + 4], buffer[8 * number + 4:8 * number + 8]))
    assert sum(compare(make, calls=4, backend=backend).captures) == 1


def retained_before_any_use(x):
    a = x * 2
    a.retain_grad()
    return (a.sin() * 3).sum(), a


def retained_after_a_use(x):
    a = x * 2
    b = a.sin()
    a.retain_grad()
    return (b * a).sum(), a


@pytest.mark.parametrize("program, compiled", [(retained_before_any_use, True), (retained_after_a_use, False)])
def test_a_compiler_gets_a_retained_gradient_where_nothing_was_computed_before(program, compiled):
    with events.record() as log:
        run = stator.compile(program, backend="aot_eager", fullgraph=True)
        x, y = torch.arange(3.0, requires_grad=True), torch.arange(3.0, requires_grad=True)
        (found, kept), (expected, other) = run(x), program(y)
        found.backward()
        expected.backward()
    assert torch.equal(x.grad, y.grad) and torch.equal(kept.grad, other.grad)
    assert {event.backend for event in log if isinstance(event, events.BackendCompiled)} == \
        ({"aot_eager"} if compiled else {"eager"})


def written_under_two_names(x, memory, part):
    memory = memory * 1
    part = memory[1:]
    weight = nn.Parameter(torch.ones(4))
    memory.add_(1)
    part.mul_(2)
    return (x * 2 * weight).sum() + part.sum() + memory.sum()


def written_with_a_history(x, memory, part):
    y = x * 2
    weight = nn.Parameter(torch.ones(4))
    flat = y.view(-1)
    flat.mul_(3)
    return (y * weight).sum()


@pytest.mark.parametrize("program, why", [(written_under_two_names, "memory with several names"), (written_with_a_history, "a history")])
def test_a_write_that_a_piece_could_not_show_keeps_the_graph_whole(program, why):
    compiled, causes = stator.compile(program, backend="aot_eager"), []
    for _ in range(2):
        told = []
        for run in (program, compiled):
            x, memory = torch.arange(12.0).reshape(3, 4).requires_grad_(), torch.arange(5.0)
            with events.record() as log:
                run(x, memory, memory[1:]).backward()
            told.append((x.grad.tolist(), memory.tolist()))
            causes += [event.why for event in log if isinstance(event, events.EagerFallback)]
        assert told[0] == told[1]
    assert any(why in cause for cause in causes)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_gradient_inside_passes_a_boundary(backend):
    def program(x):
        weight = torch.ones(4, requires_grad=True)
        loss = (weight * x.exp()).sum()
        made = nn.Parameter(x)
        return torch.autograd.grad(loss + (weight * made).sum(), (weight, made))

    x = torch.arange(4.0)
    for got, expected in zip(stator.compile(program, backend=backend, fullgraph=True)(x), program(x), strict=True):
        assert torch.equal(got, expected)
