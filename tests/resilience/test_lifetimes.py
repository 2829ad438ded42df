"""Objects that are collected between calls: entries hold nothing of the user's alive, and never mistake a newcomer."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import torch

import stator
from tests.own_process import in_new_interpreters


class Config:
    def __init__(self, scale: float) -> None:
        self.scale = scale


def test_arguments_are_not_kept_alive() -> None:
    def fn(x: torch.Tensor, config: Config) -> torch.Tensor:
        return x * config.scale

    compiled = stator.compile(fn, backend="eager")
    x, config = torch.ones(2), Config(2.0)
    compiled(x, config)
    gone = [weakref.ref(x), weakref.ref(config)]
    del x, config
    gc.collect()
    assert [ref() for ref in gone] == [None, None]


def test_a_newcomer_at_the_same_address() -> None:
    """Identity guards must not accept a new object that took the address of a dead one."""
    marks: dict[int, float] = {}

    def fn(x: torch.Tensor, config: Any) -> torch.Tensor:
        return x + (1 if config is table["chosen"] else 0)

    table: dict[str, Any] = {"chosen": Config(1.0)}
    compiled = stator.compile(fn, backend="eager", recompile_limit=64)
    x = torch.zeros(1)
    for i in range(30):
        table["chosen"] = Config(1.0)
        other = Config(1.0)
        which = table["chosen"] if i % 2 else other
        assert torch.equal(compiled(x, which), fn(x, which)), i
        marks[id(which)] = 1.0
        del which, other
        gc.collect()


def test_modules_come_and_go() -> None:
    def fn(model: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
        return model(x)

    compiled = stator.compile(fn, backend="eager", recompile_limit=64)
    x = torch.randn(2, 3)
    for i in range(12):
        torch.manual_seed(i)
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU() if i % 2 else torch.nn.Tanh())
        assert torch.equal(compiled(model, x), model(x))
        gone = weakref.ref(model)
        del model
        gc.collect()
        assert gone() is None, "a compiled entry keeps a module of the user's alive"


def test_a_compiled_function_goes_with_its_entries() -> None:
    def make() -> tuple[Any, Any]:
        big = torch.zeros(100)

        def fn(x: torch.Tensor) -> torch.Tensor:
            return x + big

        return stator.compile(fn, backend="eager"), weakref.ref(big)

    compiled, big = make()
    compiled(torch.ones(100))
    assert big() is not None
    del compiled
    gc.collect()
    assert big() is None


def test_weakly_held_target_dies_between_calls() -> None:
    class Target:
        value = 3.0

    target: Any = Target()
    ref = weakref.ref(target)

    def fn(x: torch.Tensor) -> torch.Tensor:
        alive = ref()
        return x * alive.value if alive is not None else x - 1

    compiled = stator.compile(fn, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), fn(x))
    del target
    gc.collect()
    assert torch.equal(compiled(x), x - 1)


_GROUP_ENDS = """
import atexit, tempfile, weakref
import torch, torch.distributed as dist, stator
said = lambda: print("group alive" if group() is not None else "group gone")
atexit.register(said)  # after the handlers of modules that are imported from here on
dist.init_process_group("gloo", init_method=f"file://{tempfile.mkdtemp()}/store", rank=0, world_size=1)
group = weakref.ref(dist.group.WORLD)

@stator.compile(backend="eager")
def summed(x):
    dist.all_reduce(x)
    return x + dist.get_rank()

assert torch.equal(summed(torch.ones(2)), torch.ones(2))
dist.destroy_process_group()
"""


def test_a_process_group_ends_before_the_interpreter() -> None:
    """Gloo's threads need the GIL: one that outlives the interpreter's exit handlers may abort the process."""
    assert in_new_interpreters(["-c", _GROUP_ENDS]) == ["group gone\n"]
