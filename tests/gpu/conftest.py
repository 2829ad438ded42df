"""Tests that want a GPU.  They run on the device that STATOR_TEST_DEVICE names, else on a GPU if there is one.

On a CPU what is about devices in general still runs; what is about CUDA alone is skipped.
"""

from __future__ import annotations

import os

import pytest
import torch

DEVICE = torch.device(os.environ.get("STATOR_TEST_DEVICE") or ("cuda" if torch.cuda.is_available() else "cpu"))


@pytest.fixture
def device() -> torch.device:
    return DEVICE


@pytest.fixture(autouse=True)
def same_streams() -> None:
    torch.manual_seed(0)


cuda_only = pytest.mark.skipif(DEVICE.type != "cuda", reason="needs a CUDA device")
