"""Numbers in integer inputs, once a guard on them has failed: symbols that are read at entry."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from counting import run

import stator
from stator import events
from stator.errors import BackendError


def attended(q, cache, start):
    end = start + 2
    keys = cache[:, :end].transpose(1, 2)
    return F.scaled_dot_product_attention(q.transpose(1, 2), keys, keys)


def branch(x, n):
    return x + 1 if n.item() > 3 else x - 1


def several(x, n):
    first, second = n.tolist()
    if first + 2 * second > 10:
        return x * first
    return x - second


def product(x, n):
    return x[: (n * 2 - 1).item()] + 1 if (n * 2 - 1).item() < 5 else x


def written_first(x, n):
    n = n.clone()
    n += 1
    if n.item() > 3:
        return x + 1
    return x[: n.item()]


def written_input(x, n):
    n.add_(1)
    return x + 1 if n.item() > 3 else x - 1


def read_then_written(x, n):
    before = n.item()
    n.add_(2)
    after = n.item()
    return (x * before, after) if before > 3 else (x - after, before)


def truth(x, n):
    if n == 0:
        return x * 2
    return x + 1 if 3 < n else x - 1


def truth_of_itself(x, n):
    return x + 1 if n else x - 1


def truth_of_elements(x, n):
    return x + 1 if n[0] + 1 >= n[1] * 2 else x - 1


def truth_of_what_is_written(x, n):
    n.add_(1)
    return x + 1 if n > 3 else x - 1


def truth_then_written(x, n):
    y = x + 1 if n > 3 else x - 1
    n.add_(1)
    return y


def truth_and_number(x, n):
    return x * n.item() if n != 2 else x / (n + 1)


def numbers(dtype, *values):
    return [(torch.arange(8.0), torch.tensor(value, dtype=dtype)) for value in values]


CASES = {
    "branch": (branch, numbers(torch.int64, 1, 2, 3, 4, 5, 6, -7, 3), 3),
    "int32": (branch, numbers(torch.int32, 1, 2, 3, 4, 5, 6, -7, 3), 3),
    "uint8": (branch, numbers(torch.uint8, 1, 2, 3, 4, 5, 6, 200, 3), 3),
    "huge": (branch, numbers(torch.int64, 1, 2, 1 << 40, 3, -(1 << 62), (1 << 63) - 1, 2), 8),
    "several": (several, numbers(torch.int64, [1, 2], [2, 3], [9, 1], [7, 7], [0, 0], [8, 2]), 3),
    "product": (product, numbers(torch.int64, 1, 2, 3, 4, 5, 2, 1), 5),
    "written first": (written_first, numbers(torch.int64, 1, 2, 3, 4, 5, 2, 1, 0), 6),
    "written input": (written_input, numbers(torch.int64, 1, 2, 3, 4, 5, 2, 1, 0), 6),
    "read, then written": (read_then_written, numbers(torch.int64, 1, 2, 3, 4, 5, 2, 1, 0), 6),
    "truth": (truth, numbers(torch.int64, 1, 2, 0, 4, 5, 6, -7, 3, 0), 4),
    "truth of one row": (truth, numbers(torch.int64, [1], [2], [0], [4], [5], [6], [-7], [3], [0]), 4),
    "truth of itself": (truth_of_itself, numbers(torch.int64, 1, 2, 0, 4, 5, 6, -7, 3, 0), 3),
    "truth of elements": (truth_of_elements, numbers(torch.int64, [1, 2], [2, 3], [9, 1], [7, 7], [0, 0], [8, 2]), 3),
    "truth of huge": (truth, numbers(torch.int64, 1, 2, 1 << 40, 3, -(1 << 62), (1 << 63) - 1, 2), 8),
    "truth of what is written": (truth_of_what_is_written, numbers(torch.int64, 1, 2, 3, 4, 5, 2, 1, 0), 6),
    "truth, then written": (truth_then_written, numbers(torch.int64, 1, 2, 3, 4, 5, 2, 1, 0), 3),
    "truth and number": (truth_and_number, numbers(torch.int64, 1, 2, 3, 4, 2, 5, 6, 2), 4),
}
MAY_BREAK = ("huge", "written first", "written input", "truth of huge", "truth of what is written")  # the input's own number is not the one that is asked for


@pytest.mark.parametrize("name", CASES)
def test_equal_to_eager(name):
    fn, calls, most = CASES[name]
    compiles, _ = run(fn, calls, fullgraph=name not in MAY_BREAK)
    assert compiles <= most


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("grad", [False, True])
def test_attention_over_a_cache_of_tensor_bounds(backend, grad):
    compiled = stator.compile(attended, backend=backend)
    with events.record() as log:
        for start in (0, 2, 4, 6, 8, 3, 1, 0):
            args = (torch.randn(1, 2, 2, 4, requires_grad=grad), torch.randn(1, 10, 2, 4), torch.tensor(start))
            torch.testing.assert_close(compiled(*args), attended(*args))
    assert sum(type(event) is events.CaptureFinished for event in log) <= 2
    assert not [event for event in log if type(event) is events.GraphBreak]


def test_a_length_of_zero_is_noticed():
    """Which kernel fits depends on whether there are keys: AOTAutograd's graph asserts it, and the call is redone."""
    compiled = stator.compile(attended, backend="aot_eager")
    with pytest.warns(RuntimeWarning, match="a compiled graph raised RuntimeError: Runtime assertion failed"):
        for start in (3, 4, 5, -2, 2, -2):
            args = (torch.randn(1, 2, 2, 4), torch.randn(1, 10, 2, 4), torch.tensor(start))
            torch.testing.assert_close(compiled(*args), attended(*args))


def test_the_guard_reads_as_the_program_does():
    compiled = stator.compile(branch, backend="eager")
    for args in numbers(torch.int64, 1, 2):
        compiled(*args)
    shown = [guard.text() for guard in compiled.entries()[0][2].guards]
    assert "n.item() <= 3" in shown


def test_views_of_one_storage():
    both = torch.tensor([1, 2])

    def program(x, a, b):
        a.add_(1)
        return x + 1 if b.item() > 2 else x - 1

    compiled = stator.compile(program, backend="eager")
    for value in (1, 2, 3, 4, 1):
        results = []
        for fn in (program, compiled):
            both = torch.tensor([value, value])
            results.append((fn(torch.ones(3), both[0], both[0]), both))
        torch.testing.assert_close(*results)


def test_a_backend_that_refuses_numbers_of_the_graph():
    """It gets them as inputs, without a break."""
    def picky(graph, inputs):
        if any(node.target == "item" for node in graph.graph.nodes):
            raise BackendError("picky", "no items")
        return graph.forward

    def program(x, n):
        return x[: n.item()] * n.item()

    compiled = stator.compile(program, backend=picky, fullgraph=True)
    for args in numbers(torch.int64, 2, 3, 4, 5):
        torch.testing.assert_close(compiled(*args), program(*args))
    assert len(compiled.entries()) == 1


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_attention_over_nothing(backend):
    """A length that no guard can know: kernels for filled operands must not see an empty one."""
    def program(q, cache, n):
        end = n.sum().to(torch.int64)
        keys = cache[:, :end].transpose(1, 2)
        return F.scaled_dot_product_attention(q.transpose(1, 2), keys, value=keys)

    compiled = stator.compile(program, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # that such a call was made eagerly
        for length in (3.0, 4.0, 0.0, 2.0, 0.0):
            args = (torch.randn(1, 2, 2, 4), torch.randn(1, 10, 2, 4), torch.tensor([length, 0.0]))
            torch.testing.assert_close(compiled(*args), program(*args))
