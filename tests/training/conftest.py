"""Programs of this folder are captured with their backward passes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import stator


@pytest.fixture(autouse=True)
def captured_backward() -> Iterator[None]:
    with stator.config.patch(capture_backward=True):
        yield
