"""Steps of async generators: awaited, dropped, closed and thrown into; the warnings of CPython about them."""

from __future__ import annotations

import gc
import warnings

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager


def ended(step):
    try:
        step.send(None)
    except BaseException as error:
        return type(error)
    return None


STEPS = {
    "__anext__": lambda agen: agen.__anext__(), "asend": lambda agen: agen.asend(None),
    "aclose": lambda agen: agen.aclose(), "athrow": lambda agen: agen.athrow(ValueError), "anext": lambda agen: anext(agen, 3),
    "athrow by parts": lambda agen: agen.athrow(ValueError, ValueError("thrown"), None),
}  # fmt: skip


@pytest.mark.parametrize("keeps", ["nothing", "a variable", "a begun one", "a closed one", "a thrown one"])
@pytest.mark.parametrize("name", STEPS)
def test_steps_of_async_generators_that_nothing_awaits_warn(name, keeps):
    async def numbers():
        yield 1

    def dropped(n):
        step = STEPS[name](numbers())
        if keeps == "nothing":
            step = None
        elif keeps == "a begun one":
            return n, ended(step)
        elif keeps == "a closed one" and name != "anext":
            step.close()
        elif keeps == "a thrown one":
            try:
                step.throw(KeyError, KeyError("thrown"), None)
            except KeyError:
                n += 1
        return n

    def outcomes_of(fn):
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            result = fn(1)
            gc.collect()
        return result, [(each.category, str(each.message)) for each in told]

    compiled = stator.compile(dropped, backend="eager")
    assert outcomes_of(compiled) == outcomes_of(compiled) == outcomes_of(dropped)


def awaited_steps_of_async_generators(x):
    async def numbers():
        yield 1
        yield 2

    async def walked():
        agen = numbers()
        found = [await agen.__anext__(), await anext(agen, 5), await anext(agen, 6)]
        await agen.aclose()
        return found + [n async for n in numbers()]

    step = numbers().__anext__()
    with pytest.raises(StopIteration):
        next(step)
    with pytest.raises(StopIteration) as stop:
        walked().send(None)
    return stop.value.value, x + 1


def test_awaited_steps_are_captured():
    same_as_eager(awaited_steps_of_async_generators, call(torch.ones(2)), call(torch.ones(3)))


@pytest.mark.parametrize("kind", [GeneratorExit, KeyboardInterrupt, SystemExit, ValueError])
@pytest.mark.parametrize("made", [False, True])
def test_exceptions_thrown_into_async_generators(kind, made):
    async def numbers():
        try:
            yield 1
        finally:
            seen.append("left")

    seen = []

    def thrown(begun):
        agen = numbers()
        found = [ended(agen.__anext__())] if begun else []
        return found + [ended(agen.athrow(kind("thrown") if made else kind)), ended(agen.__anext__())]

    compiled = stator.compile(thrown, backend="eager", fullgraph=True)
    for begun in (False, True, False):
        assert compiled(begun) == thrown(begun)
    assert seen == ["left"] * 2
