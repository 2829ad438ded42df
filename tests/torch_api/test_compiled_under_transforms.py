"""A compiled function inside a transform that eager code begins: it runs eagerly, and says what to compile instead."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import stator


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * x


TRANSFORMS = {
    "vmap": lambda f: torch.func.vmap(f)(torch.arange(6.0).view(3, 2)),
    "grad": lambda f: torch.func.grad(lambda x: f(x).sum())(torch.arange(3.0)),
    "jvp": lambda f: torch.func.jvp(f, (torch.arange(3.0),), (torch.ones(3),)),
    "jacrev": lambda f: torch.func.jacrev(f)(torch.arange(3.0)),
    "both": lambda f: torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(torch.arange(6.0).view(3, 2)),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("transform", TRANSFORMS.values(), ids=TRANSFORMS)
def test_the_same_as_eager(transform: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STATOR_STRICT", "1")
    compiled = stator.compile(program, backend=backend)
    x = torch.arange(3.0)
    for _ in range(2):
        for mine, theirs in zip(pytree.tree_leaves(transform(compiled)), pytree.tree_leaves(transform(program)),
                                strict=True):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
        torch.testing.assert_close(compiled(x), program(x))  # outside of it, it is compiled


@pytest.mark.parametrize("name", ["vmap", "grad", "jacrev"])
def test_the_break_says_what_to_compile(name: str) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True)
    with pytest.raises(stator.Unsupported, match="compile the function that calls torch.func's vmap"):
        TRANSFORMS[name](compiled)
