"""The store of artifacts keeps no class of the user alive."""

from __future__ import annotations

import gc
import weakref

import torch

import stator


def test_a_class_dies_with_its_compiled_module() -> None:
    def compile_one() -> list[weakref.ref[object]]:
        weight = torch.nn.Parameter(torch.ones(2))

        class Scaled(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.weight = weight

            def forward(self, x: torch.Tensor) -> torch.Tensor:
                return self.weight * x

        module = Scaled()
        assert stator.compile(module, backend="eager")(torch.ones(2)).tolist() == [1, 1]
        return [weakref.ref(each) for each in (module, Scaled, weight)]

    references = compile_one()
    gc.collect()
    assert [each() for each in references] == [None, None, None]
