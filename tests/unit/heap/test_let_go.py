"""What a trace has worked out about the program's objects does not keep them alive."""

from __future__ import annotations

import gc
import weakref

import torch

import stator


def test_classes_die_with_the_functions_that_made_them() -> None:
    def made() -> list[weakref.ref[type]]:
        class Slotted:
            __slots__ = ("n",)

        class Tags(dict):
            pass

        class Settings:
            def __init__(self) -> None:
                self.slotted, self.tags = Slotted(), Tags(a=1)
                self.slotted.n = 2

        settings = Settings()
        compiled = stator.compile(lambda x: x * settings.slotted.n + settings.tags["a"], backend="eager")
        assert compiled(torch.ones(2)).tolist() == [3.0, 3.0]
        return [weakref.ref(cls) for cls in (Slotted, Tags, Settings)]

    references = made()
    gc.collect()
    assert [reference() for reference in references] == [None, None, None]
