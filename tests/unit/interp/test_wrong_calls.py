"""A call that its function refuses is refused when compiled, in the same words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import stator

CALLS: dict[str, Callable[[Any], Any]] = {
    "isinstance": lambda x: isinstance(x, torch.Tensor, invalid=True),  # type: ignore[call-arg]
    "len": lambda x: len(x, key=1),  # type: ignore[call-arg]
    "is_tensor": lambda x: torch.is_tensor(x, k=1),  # type: ignore[call-arg]
    "id": lambda x: id(x, k=1),  # type: ignore[call-arg]
    "issubclass": lambda x: issubclass(type(x), object, k=1),  # type: ignore[call-arg]
    "iter": lambda x: iter(x, k=1),  # type: ignore[call-overload]
    "two too many": lambda x: torch.is_tensor(x, x, x),  # type: ignore[call-arg]
    "none": lambda x: torch.is_tensor(),  # type: ignore[call-arg]
    "callable": lambda x: callable(x, k=1),  # type: ignore[call-arg]
    "no_grad": lambda x: torch.is_grad_enabled(x),  # type: ignore[call-arg]
}


def told(function: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(TypeError) as caught:
        function(*args)
    return str(caught.value)


@pytest.mark.parametrize("name", CALLS)
def test_the_same_words(name: str) -> None:
    call = CALLS[name]
    assert told(stator.compile(call, backend="eager"), torch.ones(2)) == told(call, torch.ones(2))
