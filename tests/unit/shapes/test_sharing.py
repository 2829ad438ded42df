"""Size 1 is traced for itself, and served by the graph for larger sizes where the trace shows that it is the same."""

from __future__ import annotations

import contextlib

import pytest
import torch
import torch.nn.functional as F

import stator


class Counting:
    """A backend that runs graphs as they are and counts."""

    def __init__(self):
        self.graphs = 0

    def __call__(self, graph, inputs):
        self.graphs += 1
        return graph.forward


def attention(x):
    y = x.unsqueeze(1).expand(-1, 3, -1)
    return F.softmax(y @ y.transpose(1, 2), -1).sum(0) * x.shape[0]


def idle_expand(x):
    row = torch.arange(4.0)[None]
    if x.shape[0] != row.shape[0]:
        row = row.expand(x.shape[0], -1)
    return x * 2 + row


def outer(x):
    return torch.ones(3, 4)[:, None] * x


def branches(x):
    return x * 2 if x.shape[0] == 1 else x * 3


def squeezed(x):
    return (x + 1).squeeze().sum(0)


def at_least_two(x):
    return x * max(2, x.shape[0])


def flag(x):
    return x.t().is_contiguous(), x + 1


def strides(x):
    return x.t().contiguous().stride(), x + 1


def repeated(x):
    return x.repeat(1 if x.shape[0] > 1 else 5, 1)


def pads(x):
    return F.pad(x, (0, 0, 0, 1 if x.shape[0] == 1 else 0)) + 1


def other_operation(x):
    return x.sin() if x.shape[0] == 1 else x.cos()


def caught(x):
    try:
        return x.t().view(-1)
    except RuntimeError:
        return x * 7


SIZES = (3, 5, 1, 6, 1, 2, 0, 1)
SHARED = (attention, idle_expand, outer, at_least_two)
OWN = (branches, other_operation, squeezed, flag, repeated, pads, caught)


def same(fn, compiled, x):
    want, got = fn(x.clone()), compiled(x.clone())
    if type(want) is tuple:
        assert want[:-1] == got[:-1]
        want, got = want[-1], got[-1]
    torch.testing.assert_close(got, want)
    assert got.stride() == want.stride()


@pytest.mark.parametrize("fn", SHARED)
def test_served_by_the_larger_graph(fn):
    counting = Counting()
    compiled = stator.compile(fn, backend=counting, fullgraph=True)
    for size in SIZES:
        same(fn, compiled, torch.randn(size, 4))
    assert counting.graphs == 2 + (fn is outer)  # the first, the symbolic one; size 0 of what is computed from constants
    assert len(compiled.entries()) == 4


@pytest.mark.parametrize("fn", [*OWN, strides])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_what_depends_on_size_1_is_not(fn, backend):
    compiled = stator.compile(fn, backend=backend)
    for size in SIZES:
        same(fn, compiled, torch.randn(size, 4))


@pytest.mark.parametrize("fn", OWN)
def test_it_has_a_graph_of_its_own(fn):
    counting = Counting()
    compiled = stator.compile(fn, backend=counting)
    for size in (3, 5, 6):
        same(fn, compiled, torch.randn(size, 4))
    before, known = counting.graphs, len(compiled.entries())
    same(fn, compiled, torch.randn(1, 4))
    assert len(compiled.entries()) == known + 1
    assert counting.graphs == before + (fn is not flag)  # the graph of x + 1 is the same: the flag is not in it


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fn", SHARED)
def test_compilers_serve_it_right(fn, backend):
    compiled = stator.compile(fn, backend=backend)
    for size in SIZES:
        same(fn, compiled, torch.randn(size, 4))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_copy_that_is_a_view_at_size_1(backend):
    """contiguous() of a transposed tensor is the tensor itself where there is one row."""
    def program(x):
        return x.t().contiguous()

    compiled = stator.compile(program, backend=backend)
    for size in (3, 5, 1, 6, 1):
        x = torch.randn(size, 4)
        shares = [fn(x).data_ptr() == x.data_ptr() for fn in (program, compiled)]
        assert shares[0] == shares[1], size


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_write_to_what_may_be_a_view(backend):
    def program(x):
        y = x.t().reshape(-1)
        y.add_(1)
        return x * 2

    compiled = stator.compile(program, backend=backend)
    for size in SIZES:
        x = torch.randn(size, 4)
        mine, theirs = x.clone(), x.clone()
        torch.testing.assert_close(compiled(mine), program(theirs))
        torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_gradients(backend):
    compiled = stator.compile(attention, backend=backend)
    for size in SIZES[:6]:
        x = torch.randn(size, 4)
        grads = []
        for fn in (attention, compiled):
            leaf = x.clone().requires_grad_()
            fn(leaf).pow(2).sum().backward()
            grads.append(leaf.grad)
        torch.testing.assert_close(*grads)


def test_relations_of_the_larger_graph_are_kept():
    """A backend's own guard holds for every entry that uses its graph."""
    def picky(graph, inputs):
        length = inputs[-1].shape[1]
        general = type(length) is torch.SymInt and bool(length < 10)  # a guard of the backend's

        def run(*tensors):
            assert tensors[-1].shape[1] < 10 or not general
            return graph.forward(*tensors)
        return run

    compiled = stator.compile(lambda x: (x * 2).sum(0), backend=picky)
    for shape in ((3, 4), (5, 6), (1, 7), (1, 8), (1, 12), (1, 13), (2, 3)):
        x = torch.randn(shape)
        torch.testing.assert_close(compiled(x), (x * 2).sum(0))


def test_settings_of_torch_are_part_of_it():
    counting = Counting()
    compiled = stator.compile(attention, backend=counting)
    for size in (3, 5):
        compiled(torch.randn(size, 4))
    with torch.autocast("cpu", torch.bfloat16):
        torch.testing.assert_close(compiled(torch.ones(1, 4)), attention(torch.ones(1, 4)))
    assert counting.graphs == 3
    with deterministic():
        compiled(torch.ones(6, 4))  # sizes of the symbolic graph, which was compiled for another state
    assert counting.graphs == 4


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def writes_more(x):
    y = x * 2
    if x.shape[0] > 1:
        y.add_(1)
    return y.sum(0)


def another_operation(x):
    return x.sin().sum(0) if x.shape[0] == 1 else x.cos().sum(0)


def another_word(x):
    return torch.div(x, 3, rounding_mode="floor" if x.shape[0] == 1 else "trunc").sum(0)


def shows_a_copy(x):
    return x.t().contiguous()


def shows_a_view_of_a_copy(x):
    return x.t().flatten()[1:]


def writes_to_a_copy(x):
    y = x.t().reshape(-1)
    y.add_(1)
    return (x * 2).sum(0)


@pytest.mark.parametrize("fn", [writes_more, another_operation, another_word, shows_a_copy, shows_a_view_of_a_copy,
                                writes_to_a_copy])  # fmt: skip
def test_graphs_that_only_look_alike(fn):
    """A view at size 1 that is a copy otherwise is not left to the compiler of the other graph."""
    counting = Counting()
    compiled = stator.compile(fn, backend=counting)
    for size in (3, 5, 1, 6, 1):
        same(fn, compiled, torch.randn(size, 4))
    assert counting.graphs == 3
