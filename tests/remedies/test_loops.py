"""A `while` on a tensor becomes torch.while_loop, with the results of the loop; loops that never end stop a trial."""

from __future__ import annotations

import pytest
import torch

import stator
from stator.remedies.recorded_calls import Call, Calls, TooLong
from tests.own_process import in_own_process

X = torch.full((3,), 9.0)


def halved(x):
    while x.norm() > 1:
        x = x / 2
    return x


def counted(x):
    n = 0
    while x.norm() > 1:
        x /= 2
        n += 1
    return x, n


def root(a):
    guess = a / 2
    err = (guess * guess - a).abs().max()
    while err.item() > 1e-4:
        guess = 0.5 * (guess + a / guess)
        err = (guess * guess - a).abs().max()
    return guess


def exchanged(a):
    x, y = a, a
    while (x < 50).all():
        x, y = y, x + y
    return x


def stopped(x):
    while x.norm() > 1:
        x = x / 2
        if x.sum() < 2:
            break
    return x


@pytest.mark.parametrize("program", [halved, root, exchanged])
def test_a_loop_becomes_an_operator(program) -> None:
    def work() -> None:  # torch.while_loop that runs eagerly compiles itself with torch._dynamo
        text = str(stator.propose(program)(X.clone()))
        assert "torch.while_loop" in text and "0 breaks, 0 recompiles, 1 graphs" in text.splitlines()[-1], text
    in_own_process(work)


def test_numbers_are_carried_as_tensors() -> None:
    def fresh(x):
        n = 0
        while x.norm() > 1:
            x = x / 2
            n += 1
        return x, n
    text = str(stator.propose(fresh)(X.clone()))
    assert "n = n.item()" in text and "0 breaks" in text.splitlines()[-1]


def test_a_write_to_the_argument_is_not_lost() -> None:
    """`x /= 2` writes to the caller's tensor; the operator would not."""
    assert "1 breaks" in str(stator.propose(counted)(X.clone())).splitlines()[-1]


def test_a_loop_that_breaks_off_stays() -> None:
    assert "torch.while_loop" not in str(stator.propose(stopped)(X.clone()))


def test_calls_that_do_not_end_are_stopped() -> None:
    def endless(x):
        while x.sum() < 1:
            x = x * 2
        return x
    x = torch.ones(2)
    calls = Calls(endless, [Call((x,))])
    with pytest.raises(TooLong):
        calls.run(endless, torch.neg, seconds=0.2)
    assert torch.equal(x, torch.ones(2))
    assert calls.run(endless, seconds=5.0).error is None


def test_results_of_loops_in_the_graph_are_no_constants() -> None:
    def work() -> None:  # see above
        def looped(x):
            y, n = torch.while_loop(lambda x, n: x.norm() > 1, lambda x, n: (x / 2, n + 1), (x, torch.tensor(0)))
            return y, n, n.item()

        def scanned(xs):
            from torch._higher_order_ops.scan import scan
            total, rows = scan(lambda c, x: (c + 1, x + c), torch.tensor(0), xs)
            return total, rows, total.item()
        for program, calls in ((looped, (X, X * 100)), (scanned, (torch.ones(4, dtype=torch.int64), torch.arange(6)))):
            compiled = stator.compile(program, backend="eager")
            for given in calls:
                eager, found = program(given.clone()), compiled(given.clone())
                assert all(torch.equal(torch.as_tensor(a), torch.as_tensor(b)) and type(a) is type(b)
                           for a, b in zip(eager, found, strict=True))

    in_own_process(work)
