"""Python kernels that operators are composed of: captured like functions, with the conversions of the dispatcher."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import stator
from tests.comparison import call, same_as_eager

LIBRARY = torch.library.Library("stator_composite", "DEF")
SEEN: list[Any] = []
BOUNDS = {torch.uint8: (0, 255), torch.int8: (-128, 127)}


class Rounding(enum.Enum):
    UP = "up"
    NEAR = "near"


def quantize(x: torch.Tensor, scale: float, sizes: list[int], dtype: torch.dtype, rounding: str = "near",
             shift: torch.Tensor | None = None, low: int | None = None) -> tuple[torch.Tensor, torch.Tensor]:
    SEEN.append((type(scale).__name__, type(sizes).__name__, rounding, low))
    least, most = BOUNDS[dtype]
    rows = x.reshape(sizes) / scale
    rows = rows.ceil() if Rounding(rounding) is Rounding.UP else rows.round()
    if shift is not None:
        rows = rows + shift
    return torch.clamp(rows, least if low is None else low, most).to(dtype), rows.sum()


def halves(x: torch.Tensor, n: int = 2) -> list[torch.Tensor]:
    return [x / n, x * n]


def passes_on(x: torch.Tensor) -> torch.Tensor:
    return x


def copies(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


def wrong(x: torch.Tensor) -> torch.Tensor:
    if x.dim() > 1:
        raise ValueError(f"{x.dim()} dimensions")
    return x + 1


def operator(name: str, kernel: Callable[..., Any], schema: str, key: str = "CompositeImplicitAutograd") -> Any:
    LIBRARY.define(name + schema)
    LIBRARY.impl(name, kernel, key)
    return getattr(torch.ops.stator_composite, name)


QUANTIZE = operator("quantize", quantize, "(Tensor x, float scale, SymInt[] sizes, ScalarType dtype, str rounding='near', "
                    "Tensor? shift=None, *, int? low=None) -> (Tensor, Tensor)")
PAIR = operator("pair", halves, "(Tensor x, int n=2) -> (Tensor, Tensor)")
SAME = operator("same", passes_on, "(Tensor x) -> Tensor")
WRONG = operator("wrong", wrong, "(Tensor x) -> Tensor")


def breaks(code: Any, *args: Any) -> int:
    return stator.explain(code, backend="eager")(*args).graph_break_count


def test_a_kernel_that_reads_state_of_the_program_is_captured() -> None:
    def program(x: torch.Tensor, how: Rounding, scale: Any, sizes: Any) -> Any:
        values, total = QUANTIZE(x, scale, sizes, torch.int8, how.value, low=-2)
        return values, total, QUANTIZE.default(x, 2, (4, -1), torch.uint8, shift=x.reshape(4, -1))[0]

    def numbers(n: int) -> torch.Tensor:
        return torch.arange(n, dtype=torch.float32) - 3

    same_as_eager(program, call(numbers(8), Rounding.UP, 0.5, [2, 4]), call(numbers(8), Rounding.NEAR, 3, (8,)),
                  call(numbers(12), Rounding.NEAR, 0.25, torch.Size([12])))
    assert breaks(program, numbers(8), Rounding.UP, 0.5, [2, 4]) == 0
    SEEN.clear()
    stator.compile(program, backend="eager", fullgraph=True)(numbers(8), Rounding.UP, 1, (2, 4))
    assert SEEN == [("float", "list", "up", -2), ("float", "list", "near", None)]


def test_results_are_what_the_dispatcher_makes_of_them() -> None:
    def program(x: torch.Tensor) -> Any:
        pair = PAIR(x)
        return pair, type(pair).__name__, SAME(x) is x, SAME(x)

    same_as_eager(program, call(torch.ones(3)), call(torch.ones(2, 2)))
    assert breaks(program, torch.ones(3)) == 0


def test_exceptions_and_gradients_pass_through() -> None:
    def program(x: torch.Tensor) -> Any:
        try:
            return WRONG(x * 2)
        except ValueError as error:
            return str(error), x.sum()

    same_as_eager(program, call(torch.ones(3, requires_grad=True)), call(torch.ones(2, 2)))
    assert breaks(program, torch.ones(2, 2)) == 0


@contextmanager
def overridden(name: str, kernel: Callable[..., Any], key: str) -> Iterator[None]:
    """Another kernel of the operator, which goes with its library."""
    library = torch.library.Library("stator_composite", "IMPL")
    library.impl(name, kernel, key)
    try:
        yield
    finally:
        library._destroy()


@pytest.mark.filterwarnings("ignore")
def test_a_kernel_that_is_registered_later_is_called() -> None:
    fresh = operator("fresh", lambda x: x + 1, "(Tensor x) -> Tensor")

    def program(x: torch.Tensor) -> Any:
        return fresh(x) * 2

    compiled, x = stator.compile(program, backend="eager"), torch.ones(2)
    assert compiled(x).tolist() == program(x).tolist() == [4, 4]
    with overridden("fresh", lambda x: x + 10, "CPU"):
        assert compiled(x).tolist() == program(x).tolist() == [22, 22]
    assert compiled(x).tolist() == program(x).tolist() == [4, 4]


def test_operators_that_one_line_registers_again_have_kernels_of_their_own() -> None:
    def registered(step: int) -> Any:
        library = torch.library.Library("stator_composite_again", "DEF")
        library.define("shift(Tensor x) -> Tensor")
        library.impl("shift", lambda x: x + step, "CompositeImplicitAutograd")
        return library

    def program(x: torch.Tensor) -> Any:
        return torch.ops.stator_composite_again.shift(x) * 2

    compiled, x = stator.compile(program, backend="eager"), torch.ones(2)
    for step in (1, 10):
        library = registered(step)
        assert compiled(x).tolist() == program(x).tolist() == [2 * (1 + step)] * 2
        library._destroy()


def shifted_by(step: int) -> Callable[[torch.Tensor], torch.Tensor]:
    return lambda x: x + step


def test_a_kernel_that_one_line_registers_again_is_called() -> None:
    """The operator stays: its definition is another library's."""
    definition = torch.library.Library("stator_composite_kept", "DEF")
    definition.define("shift(Tensor x) -> Tensor")

    def program(x: torch.Tensor) -> Any:
        return torch.ops.stator_composite_kept.shift(x) * 2

    compiled, x = stator.compile(program, backend="eager"), torch.ones(2)
    for step in (1, 10):
        library = torch.library.Library("stator_composite_kept", "IMPL")
        library.impl("shift", shifted_by(step), "CompositeImplicitAutograd")
        assert compiled(x).tolist() == program(x).tolist() == [2 * (1 + step)] * 2
        library._destroy()


def test_kernels_of_other_kinds_stay_operators_in_the_graph() -> None:
    explicit = operator("explicit", copies, "(Tensor x) -> Tensor", "CompositeExplicitAutograd")

    def program(x: torch.Tensor) -> Any:
        return explicit(x) + 1

    graphs: list[Any] = []

    def keep(gm: Any, inputs: Any) -> Any:
        graphs.append(gm)
        return gm.forward

    x = torch.ones(2)
    assert stator.compile(program, backend=keep)(x).tolist() == program(x).tolist()
    assert any(node.target in (explicit, explicit.default) for node in graphs[0].graph.nodes)
