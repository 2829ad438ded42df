"""After a compiled call, inputs say they were written to as often as the program wrote to them."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stator
from stator.emit.residual import kept_inputs


def once(x):
    x.add_(1)
    return x.sum()


def often(x):
    for _ in range(5):
        x.add_(1)
    return x


def through_views(x):
    x.view(-1).add_(1)
    x[0].mul_(2)
    x.t()[1:].zero_()
    return x + 1


def through_views_of_views(x):
    x.view(-1)[1:][::2].add_(1)
    return x + 1


def detached(x):
    y = x.detach()
    y.add_(1)
    y.view(-1).mul_(2)
    return y.sum()


def by_data(x):
    x[0] = 1
    x.data.add_(1)
    return x.sum()


def copied(x):
    x.copy_(x + 0)
    return x * 2


def moved(x):
    x.add_(1)
    x.data = torch.ones(3, 3)
    x.mul_(2).view(-1).add_(1)
    return x + 1


def not_at_all(x):
    y = x.view(-1) + 1
    y.add_(1)
    x.t().contiguous().reshape(-1).add_(1)
    return y


def each(x):
    torch._foreach_mul_([x, x[0]], 2.0)
    torch._foreach_add_([x.view(-1)], 1)
    return x + 1


def statistics_of_instances(x):
    return F.instance_norm(torch.arange(72.0).view(2, 9, 4), x.view(-1), torch.ones(9))


PROGRAMS = [each, statistics_of_instances, once, often, through_views, through_views_of_views, detached, by_data, copied, moved, not_at_all]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS)
def test_writes_are_counted_as_in_eager(program, backend):
    expected, found = torch.ones(3, 3), torch.ones(3, 3)
    for _ in range(2):  # the second capture knows the operations
        compiled = stator.compile(program, backend=backend)
        for _ in range(2):
            torch.testing.assert_close(compiled(found), program(expected))
            assert found._version == expected._version
            assert torch.equal(found, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_writes_beside_differentiable_results_are_counted_unless_autograd_has_saved_the_memory(backend):
    def program(w, count, scale):
        count.add_(1).mul_(2).view(-1)[1:].zero_()
        scale.add_(1)
        return w * 2 + count.sum(), w * scale.sin()

    found = []
    for function in (program, stator.compile(program, backend=backend)):
        w, count, scale = torch.ones(3, requires_grad=True), torch.zeros(3), torch.ones(3)
        for _ in range(2):
            sum(function(w, count, scale)).sum().backward()
        found.append((count._version, count, scale, w.grad))
    assert found[0][0] == found[1][0]
    torch.testing.assert_close(found[0][1:], found[1][1:])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_results_of_inference_mode_are_inference_tensors(backend):
    def program(x):
        x = x * 3
        with torch.inference_mode():
            made = x * 2
            part = made[1:]
        return x + 1, made, part, x[:1]

    for x in (torch.ones(3), torch.ones(3, requires_grad=True), torch.ones(4)):
        expected, found = program(x), stator.compile(program, backend=backend)(x)
        torch.testing.assert_close(found, expected)
        assert [each.is_inference() for each in found] == [each.is_inference() for each in expected]
        assert [each.requires_grad for each in found] == [each.requires_grad for each in expected]
        assert found[2].untyped_storage().data_ptr() == found[1].untyped_storage().data_ptr()


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_an_optimiser_writes_once_a_step(backend):
    def versions(wrap):
        weight = nn.Parameter(torch.ones(3))
        weight.grad = torch.ones(3)
        step = wrap(torch.optim.SGD([weight], lr=0.1, momentum=0.9).step)
        found = []
        for _ in range(3):
            step()
            found.append(weight._version)
        return found

    assert versions(lambda step: stator.compile(step, backend=backend)) == versions(lambda step: step)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_running_statistics_do_not_count(backend):
    def versions(wrap):
        norm = nn.BatchNorm1d(3)
        with torch.no_grad():
            wrap(lambda x: norm(x))(torch.arange(12.0).view(4, 3))
        return norm.running_mean._version, norm.num_batches_tracked._version, norm.running_mean

    expected, found = versions(lambda f: f), versions(lambda f: stator.compile(f, backend=backend))
    assert found[:2] == expected[:2]
    torch.testing.assert_close(found[2], expected[2])


def test_autograd_inside_allows_what_no_counter_shows():
    def program(x, w):
        y = (x * w).sum()
        torch._fused_sgd_([w], [torch.ones(3)], [], weight_decay=0.0, momentum=0.0, lr=0.5, dampening=0.0,
                          nesterov=False, maximize=False, is_first_step=True)
        return torch.autograd.grad(y, x)[0], w * 2

    results = []
    for function in (program, stator.compile(program, backend="eager", fullgraph=True)):
        w = torch.arange(3.0)
        results.append([*function(torch.ones(3, requires_grad=True), w), w, torch.tensor(w._version)])
    assert all(map(torch.equal, *results))


def test_autograd_inside_refuses_what_eager_counts():
    def program(x, w):
        y = (x * w).sum()
        torch._foreach_add_([w], 1)
        return torch.autograd.grad(y, x)[0]

    for function in (program, stator.compile(program, backend="eager")):
        with pytest.raises(RuntimeError, match="inplace operation"):
            function(torch.ones(3, requires_grad=True), torch.arange(3.0))


def test_statistics_are_updated_once_by_a_graph_that_fails(monkeypatch):
    def program(x, mean, var, index):
        return F.batch_norm(x, mean, var, training=True)[0][index]

    monkeypatch.setattr(kept_inputs, "KEPT_BYTES", 0)
    results = []
    for function in (program, stator.compile(program, backend="eager")):
        mean, var = torch.zeros(50), torch.ones(50)
        with pytest.raises(IndexError):
            function(torch.arange(100.0).view(2, 50), mean, var, torch.tensor([55]))
        results.append([mean, var])
    assert all(map(torch.equal, *results))


def test_a_write_through_a_view_is_not_made_twice_by_a_gradient_of_a_gradient():
    def program(weight, count):
        count.view(-1).add_(1)
        return (weight ** 4).sum()

    weight, count = torch.ones(2, requires_grad=True), torch.zeros(2, 2)
    grad, = torch.autograd.grad(stator.compile(program, backend="aot_eager")(weight, count), weight, create_graph=True)
    with pytest.raises(RuntimeError, match="double backward"):
        torch.autograd.grad(grad.sum(), weight)
    assert torch.equal(count, torch.ones(2, 2))
