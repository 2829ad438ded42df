"""Programs that write to memory with several names, inputs that share memory, and all that can be seen of a call."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from tests.comparison import tensors_in

Inputs = tuple[list[torch.Tensor], list[torch.Tensor]]  # arguments, and the leaves behind them


def apart() -> Inputs:
    return [torch.arange(4.0) + 1, torch.arange(4.0) * 2], []


def same() -> Inputs:
    x = torch.arange(4.0) + 1
    return [x, x], []


def another_view() -> Inputs:
    x = torch.arange(4.0) + 1
    return [x, x.view(4)], []


def shifted() -> Inputs:
    x = torch.arange(6.0) + 1
    return [x[:4], x[2:]], []


def apart_with_history() -> Inputs:
    leaf = (torch.arange(8.0) + 1).requires_grad_()
    return [leaf[:4] * 1, leaf[4:] * 1], [leaf]


def same_with_history() -> Inputs:
    leaf = (torch.arange(4.0) + 1).requires_grad_()
    x = leaf * 1
    return [x, x], [leaf]


def another_view_with_history() -> Inputs:
    leaf = (torch.arange(4.0) + 1).requires_grad_()
    x = leaf * 1
    return [x, x.view(4)], [leaf]


def shifted_with_history() -> Inputs:
    leaf = (torch.arange(6.0) + 1).requires_grad_()
    x = leaf * 1
    return [x[:4], x[2:]], [leaf]


def second_with_history() -> Inputs:
    leaf = (torch.arange(4.0) + 1).requires_grad_()
    return [torch.arange(4.0) + 1, leaf * 1], [leaf]


def leaf_second() -> Inputs:
    leaf = (torch.arange(4.0) + 1).requires_grad_()
    return [torch.arange(4.0) + 1, leaf], [leaf]


INPUTS = (apart, same, another_view, shifted, apart_with_history, same_with_history, another_view_with_history,
          shifted_with_history, second_with_history, leaf_second)


def error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def ask(question: Callable[[], Any]) -> Any:
    try:
        return question()
    except RuntimeError as error:  # autograd refuses
        return error_text(error)


def seen_of(tensors: list[torch.Tensor]) -> list[Any]:
    """Values, layouts, which tensors share a storage, and what autograd says of each."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    return [(tensor.detach().tolist(), storages.index(storage), tensor.storage_offset(), tensor.stride(),
             tensor.requires_grad, ask(lambda tensor=tensor: tensor.is_leaf))
            for tensor, storage in zip(tensors, storages, strict=True)]


def outcome(fn: Callable[..., Any], make: Callable[[], Inputs], then: str) -> list[Any]:
    """A call; then the results are changed in place, or differentiated, or both."""
    args, leaves = make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            results = tensors_in(fn(*args))
        except Exception as error:  # an outcome to compare
            return [error_text(error), seen_of(args)]
    everything = [*args, *results]
    seen: list[Any] = [seen_of(everything)]
    if "write" in then:
        for number, each in enumerate(results):
            seen += [ask(lambda number=number, each=each: each.mul_(number + 2) is each), seen_of(everything)]
    if "differentiate" in then and leaves:
        seen.append(ask(lambda: gradients(everything, leaves)))
    return seen


def gradients(tensors: list[torch.Tensor], leaves: list[torch.Tensor]) -> list[Any]:
    total = sum((number + 1.5) * each.abs().sum() for number, each in enumerate(tensors) if each.requires_grad)
    found = torch.autograd.grad(total, leaves, allow_unused=True) if isinstance(total, torch.Tensor) else ()
    return [None if each is None else [round(number, 3) for number in each.tolist()] for each in found]
