"""Probes: a graph that fails for the values it is given, after it has written to its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from probing import RAISES, Scene, probe

import stator


def failing(fn: Callable[..., Any], **how: Any) -> Scene:
    """`fn(x, y, table, index, log)`; the index is within the table until the change."""
    world: dict[str, Any] = {"index": torch.tensor([1, 2]), "log": []}
    x, y = torch.zeros(4), torch.ones(4)

    def args() -> tuple[Any, ...]:
        torch.manual_seed(3)
        return x, y, torch.arange(10.0), world["index"], world["log"]

    return Scene(fn, args, lambda: world.update(index=torch.tensor([1, 20])), lambda: (x, y, world, torch.get_rng_state()),
                 **how)


@probe(RAISES)
def error_after_writes():
    def fn(x, y, table, index, log):
        print("before")
        log.append(1)
        x.add_(1)
        log.append(x.sum())
        print(x)
        found = table[index]
        log.append(3)
        print("after")
        y.add_(1)
        return found

    return failing(fn)


@probe(RAISES)
def error_after_writes_is_handled():
    def fn(x, y, table, index, log):
        x.add_(1)
        try:
            found = table[index]
        except IndexError as error:
            log.append(str(error))
            found = table
        y.mul_(3).add_(x)
        return found

    return failing(fn)


@probe(RAISES)
def error_after_writes_passes_a_finally():
    def fn(x, y, table, index, log):
        x.add_(1)
        try:
            return table[index]
        finally:
            log.append("left")
            y.add_(2)

    return failing(fn)


@probe(RAISES)
def error_after_writes_through_views():
    def fn(x, y, table, index, log):
        part = x[1:3]
        part += 2
        y.copy_(x)
        log.append(len(log))
        table[index] = 5
        y.zero_()
        return part

    return failing(fn)


@probe(RAISES)
def error_after_writes_to_data():
    def fn(x, y, table, index, log):
        x.data.add_(1)
        log.append(2)
        return table[index]

    return failing(fn)


@probe(RAISES)
def error_after_draws():
    def fn(x, y, table, index, log):
        x.normal_()
        log.append(1)
        return table[index].sum() + torch.rand(4)

    return failing(fn)


@probe(RAISES)
def error_after_draws_alone():
    def fn(x, y, table, index, log):
        noise = torch.rand(4)
        log.append(1)
        return table[index].sum() + noise

    return failing(fn)


@probe(RAISES)
def assertion_after_writes():
    def fn(x, y, table, index, log):
        x.add_(1)
        log.append(1)
        assert (index < 10).all(), f"after {len(log)}"
        y.add_(1)
        return table.sum()

    return failing(fn)


@probe(RAISES)
def division_after_writes():
    def fn(x, y, table, index, log):
        x.add_(1)
        log.append(1)
        return torch.arange(4) // (index[1] - 20), 1 / (index[0].item() - 7)

    return failing(fn)


@probe("SB009")
def error_after_writes_behind_a_break():
    def fn(x, y, table, index, log):
        x.add_(1)
        log.append(1)
        stator.graph_break()
        y.add_(x)
        log.append(2)
        found = table[index]
        log.append(3)
        return found

    return failing(fn)


@probe(RAISES)
def error_after_writes_in_inference_mode():
    with torch.inference_mode():
        state = torch.zeros(4)

    def fn(x, y, table, index, log):
        state.add_(1)
        log.append(1)
        return table[index]

    scene = failing(fn, around=torch.inference_mode)
    look = scene.look
    scene.look = lambda: (look(), state.tolist())
    return scene


@probe(RAISES)
def error_after_memory_overlaps():
    def fn(x, y, table, index, log):
        log.append(1)
        y.add_(1)
        x[1:3] = x[:2]
        return x

    return failing(fn)


def checked(fn: Callable[..., Any]) -> Scene:
    """`fn(x, log)`; the change makes the check of x fail."""
    world: dict[str, Any] = {"x": torch.ones(2), "log": [], "left": iter([1, 2, 3, 4, 5])}
    return Scene(lambda x: fn(x, world), lambda: (world["x"],), lambda: world.update(x=torch.full((2,), 100.0)),
                 lambda: (world["log"], world["left"].__length_hint__()))


@probe(RAISES)
def raise_after_a_note():
    def fn(x, world):
        if x.sum() > 100:
            world["log"].append("too big")
            raise ValueError("too big")
        return x + 1

    return checked(fn)


@probe(RAISES)
def raise_after_a_print():
    def fn(x, world):
        if x.sum() > 100:
            print("too big")
            raise ValueError("too big")
        return x + 1

    return checked(fn)


@probe(RAISES)
def raise_with_a_text_that_has_effects():
    def told(world):
        world["log"].append("told")
        return next(world["left"])

    def fn(x, world):
        assert x.sum() < 100, told(world)
        return x + 1

    return checked(fn)


@probe(RAISES)
def raise_of_an_exception_whose_init_has_effects():
    class Counted(ValueError):
        made: list[int] = []

        def __init__(self, text):
            super().__init__(text)
            self.made.append(len(text))

    def fn(x, world):
        world["log"].append(len(Counted.made))
        if x.sum() > 100:
            raise Counted("too big")
        return x + 1

    return checked(fn)


@probe(RAISES)
def raise_with_a_text_that_only_the_graph_knows():
    def fn(x, world):
        world["log"].append("before")
        assert x.sum() < 100, f"too big: {x.sum().item():.1f}"
        world["log"].append("after")
        return x + 1

    return checked(fn)
