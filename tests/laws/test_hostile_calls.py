"""Short programs that meet one unusual fact each, over several calls: each call beside eager's."""

from __future__ import annotations

import builtins
import functools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy
import pytest
import torch
from torch import nn

import stator
from tests.comparison import Surroundings, call, compare_worlds, require_same, stator_compiler
from tests.comparison.call_outcome import CLOSE, EXACT
from tests.comparison.eager_and_compiled import GraphCounter, World

Made = tuple[Callable[..., Any], Sequence[Any], Sequence[Callable[[], Any]], Callable[[], Any]]
PROGRAMS: list[Callable[[], Made]] = []


def program(make: Callable[[], Made]) -> Callable[[], Made]:
    PROGRAMS.append(make)
    return make


def nothing() -> list[Any]:
    return []


def inputs(*shape: int) -> torch.Tensor:
    return torch.arange(float(math.prod(shape))).reshape(shape)


@program
def builtins_of_its_own() -> Made:
    own = dict(vars(builtins))
    names: dict[str, Any] = {"__builtins__": own}
    exec("def inner(x):\n    return x * len([1, 2, 3])\n"
         "def function(x):\n    try: return inner(x)\n    except NameError as error: return str(error)", names)
    return names["function"], [call(inputs(3))], [lambda: own.update(len=lambda items: 10), lambda: own.pop("len")], nothing


@program
def hook_that_is_always_called() -> Made:
    class Raising(nn.Module):
        bad = False

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.bad:
                raise ValueError("bad")
            return x + 1

    module, log = Raising(), []  # type: ignore[var-annotated]
    module.register_forward_hook(lambda module, args, output: log.append(output is None), always_call=True)
    module.register_forward_hook(lambda module, args, output: log.append("ordinary"))

    def function(x: torch.Tensor) -> Any:
        try:
            return module(x)
        except ValueError as error:
            return str(error)

    return function, [call(inputs(3))], [lambda: setattr(module, "bad", True), lambda: setattr(module, "bad", False)], \
        lambda: log


@program
def hook_that_becomes_one_that_is_always_called() -> Made:
    """The loop over hooks is not reached where `forward` raises."""
    class Raising(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ValueError("bad")

    module, log = Raising(), []  # type: ignore[var-annotated]
    module.register_forward_hook(lambda module, args, output: log.append("ordinary"))

    def function(x: torch.Tensor) -> Any:
        try:
            return module(x)
        except ValueError as error:
            return str(error), x + 1

    def add() -> None:
        module.register_forward_hook(lambda module, args, output: log.append("always"), always_call=True)

    return function, [call(inputs(3))], [add], lambda: log


@program
def masked_encoder() -> Made:
    """Outside of compilers a TransformerEncoder asks whether the mask is aligned, and fills what it leaves out with 0."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 1).eval()

    def function(x: torch.Tensor, mask: torch.Tensor) -> Any:
        with torch.no_grad():
            return module(x, src_key_padding_mask=mask)

    masks = torch.tensor([[[0, 0, 1], [0, 1, 1]], [[0, 1, 0], [0, 1, 1]], [[0, 0, 0], [0, 0, 0]]]).bool()
    return function, [call(inputs(2, 3, 4).sin(), mask) for mask in masks], [], nothing


@program
def masked_encoder_with_gradients() -> Made:
    """The encoder takes the way of compilers where autograd follows a parameter, and no other."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 1).eval()
    masks = torch.tensor([[[0, 0, 1], [0, 1, 1]], [[0, 0, 0], [0, 1, 1]]]).bool()

    def function(x: torch.Tensor, mask: torch.Tensor) -> Any:
        return module(x, src_key_padding_mask=mask)

    return function, [call(inputs(2, 3, 4).sin(), mask) for mask in masks], [
        lambda: module.requires_grad_(False), lambda: module.requires_grad_(True)], nothing


@program
def masked_encoder_with_flags_of_the_call() -> Made:
    """The flags count as the call itself has changed them before."""
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True)
    module = nn.TransformerEncoder(layer, 1).eval()
    masks = torch.tensor([[[0, 0, 1], [0, 1, 1]], [[0, 0, 0], [0, 1, 1]]]).bool()

    def function(x: torch.Tensor, mask: torch.Tensor, follow: bool) -> Any:
        for parameter in module.parameters():
            parameter.requires_grad_(follow)
        y = module(x, src_key_padding_mask=mask)
        for parameter in module.parameters():
            parameter.requires_grad_(not follow)
        return y

    return function, [call(inputs(2, 3, 4).sin(), mask, follow) for mask in masks for follow in (False, True)], [], \
        lambda: [parameter.requires_grad for parameter in module.parameters()]


@program
def truth_that_a_kernel_returns() -> Made:
    def function(x: torch.Tensor, mask: torch.Tensor) -> Any:
        return torch._nested_tensor_from_mask_left_aligned(x, mask)

    masks = torch.tensor([[[1, 1, 0]], [[1, 0, 1]], [[1, 1, 1]]]).bool()
    return function, [call(inputs(1, 3, 4), mask) for mask in masks], [], nothing


@program
def equal_results_of_one_operation() -> Made:
    norm = nn.BatchNorm1d(3).eval()

    def function(x: torch.Tensor) -> Any:
        return norm(x), norm(x), x.max(0), x.max(0), nn.functional.layer_norm(x, (3,)), \
            nn.functional.layer_norm(x, (3,)) ** 2, x.sort(), x.sort()

    return function, [call(inputs(2, 3).requires_grad_())], [], nothing


def outcome_of(compute: Callable[[], Any]) -> Any:
    try:
        return compute()
    except ArithmeticError as error:
        return type(error), str(error)


@program
def numbers_that_raise() -> Made:
    def function(x: torch.Tensor, f: float, n: int) -> Any:
        computations = [lambda: f ** 2, lambda: 2.0 ** f, lambda: f ** -1, lambda: f ** n, lambda: divmod(f, n),
                        lambda: divmod(n, f), lambda: divmod(n, n), lambda: pow(n, -1), lambda: pow(n, 3), lambda: n ** -2,
                        lambda: pow(f, 2), lambda: f % n, lambda: n // f]
        return x * f, [outcome_of(each) for each in computations]

    numbers = [(3.0, 2), (5.5, 3), (1e300, 3), (0.0, 0), (2.5, -1), (-1e300, -7), (7.5, 2**40), (-0.0, 5)]
    return function, [call(inputs(3), *pair) for pair in numbers], [], nothing


@program
def item_of_data_and_new_axis() -> Made:
    def function(x: torch.Tensor, place: torch.Tensor) -> Any:
        x[place] = 5
        x[None, 1] = 3
        return x, x[None, place], x[..., None]

    return function, [call(inputs(3, 3), torch.tensor(0)), call(inputs(3, 3), torch.tensor(1))], [], nothing


@program
def assignment_that_may_fail() -> Made:
    def function(x: torch.Tensor, value: Any) -> Any:
        try:
            x[1:] = value
        except (TypeError, RuntimeError, ValueError) as error:
            return type(error), str(error)
        return x

    values = [1, 2.5, True, torch.ones(3), torch.ones(2, 1), torch.ones(4), torch.tensor(3), torch.ones(1, 2, 3), [1, 2, 3],
              numpy.ones(3), numpy.float64(2), "a", None, torch.ones(2, 3, requires_grad=True)]
    return function, [call(inputs(3, 3), value) for value in values], [], nothing


@program
def write_to_memory_of_an_argument() -> Made:
    """The second call is captured again, and takes the result for what it was in the first."""
    def function(x: torch.Tensor, part: torch.Tensor) -> Any:
        return torch.neg(part, out=x[0]) * 1, torch.exp(x[1], out=x[2]) * 1

    def shared() -> Any:
        x = inputs(3, 4)
        return (x, x[1]), {}

    return function, [shared, call(inputs(5, 4), inputs(4) + 1), call(inputs(4, 4), inputs(4) + 2)], [], nothing


def leaf() -> torch.Tensor:
    return inputs(4).requires_grad_()


def without_grad(make: Callable[[], torch.Tensor]) -> torch.Tensor:
    value = make()
    with torch.no_grad():
        return value.view(2, 2)


VIEWS: list[Callable[[], torch.Tensor]] = [
    lambda: inputs(4).view(2, 2), lambda: without_grad(leaf), leaf, lambda: leaf().view(2, 2), lambda: leaf().unbind()[0],
    lambda: leaf().detach().view(2, 2).requires_grad_(), lambda: (leaf() * 1).unbind()[0], lambda: (leaf() * 1).view(2, 2),
    lambda: without_grad(lambda: leaf() * 1)]


@program
def writes_to_views_of_before() -> Made:
    def function(x: torch.Tensor) -> Any:
        found: list[Any] = []
        for write in (lambda: x.add_(1), lambda: x.view(-1).add_(1), lambda: x.requires_grad_().mul_(2)):
            try:
                found.append(write().shape)
            except RuntimeError as error:
                found.append(str(error))
        return found

    return function, [functools.partial(lambda make: ((make(),), {}), each) for each in VIEWS], [], nothing


@program
def bytes_of_a_tensor() -> Made:
    return (lambda x: (x.nbytes, x.t().nbytes, x * 2)), [call(inputs(2, 3)), call(inputs(4, 5)), call(inputs(6, 7))], [], nothing


def hook_on_a_leaf(returned: Any, method: str) -> Callable[[], Made]:
    def make() -> Made:
        leaf, log = nn.Parameter(inputs(3)), []  # type: ignore[var-annotated]
        getattr(leaf, method)(lambda given: (log.append(given.shape), returned)[1])

        def function(x: torch.Tensor) -> Any:
            try:
                (leaf * x).sum().backward()
            except (TypeError, RuntimeError) as error:
                return type(error), str(error), leaf.grad
            return leaf.grad

        return function, [call(inputs(3))], [lambda: None], lambda: log
    make.__name__ = f"{method}_{type(returned).__name__}"
    return make


for returned in ((), 3, torch.zeros(3), None):
    program(hook_on_a_leaf(returned, "register_hook"))
    program(hook_on_a_leaf(returned, "register_post_accumulate_grad_hook"))


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, by: float) -> torch.Tensor:  # type: ignore[override]
        ctx.by = by
        ctx.mark_non_differentiable()
        ctx.save_for_backward(x)
        return x * x * by

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> Any:  # type: ignore[override]
        return 2 * ctx.saved_tensors[0] * grad * ctx.by, None


@program
def name_of_a_node() -> Made:
    def function(x: torch.Tensor) -> Any:
        y = Squared.apply(x, 2.0)
        y.sum().backward()
        return y, type(y.grad_fn).__name__, y.grad_fn.name(), x.grad

    return function, [call(inputs(3).requires_grad_())], [], nothing


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("make", PROGRAMS, ids=lambda make: make.__name__)
def test_is_as_in_eager(make: Callable[[], Made], dynamic: bool | None, backend: str) -> None:
    def world() -> World:
        function, calls, changes, state = make()
        calls = [*calls] + [calls[-1]] * max(2, len(changes) + 1 - len(calls))

        def before(number: int) -> Any:
            return changes[number - 1]() if 1 <= number <= len(changes) else None

        return World(function, calls, Surroundings(__name__, __file__, state), before)

    compiler = stator_compiler(GraphCounter(backend).backend, dynamic=dynamic)
    require_same(compare_worlds(world, compiler, checks=EXACT if backend == "eager" else CLOSE))


@pytest.mark.parametrize("function", [lambda x: nn.functional.softmax(x), lambda x: x[None].T, lambda x: torch.tensor(x)],
                         ids=["softmax", "T", "tensor"])
def test_a_capture_does_not_warn_beside_the_program(function: Callable[[torch.Tensor], Any]) -> None:
    torch.set_warn_always(True)
    try:
        compiled, texts = stator.compile(function, backend="eager"), []
        for run in (function, compiled, compiled):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                run(inputs(2, 3))
            texts.append([str(warning.message) for warning in caught])
    finally:
        torch.set_warn_always(False)
    assert len(texts[0]) == 1 and texts == [texts[0]] * 3
