"""The backend "cudagraphs".

In: a graph module.  Out: a callable that replays AOTAutograd's graphs as CUDA graphs, kernels unchanged; where a graph
cannot be recorded (it touches the CPU, or writes to its inputs), it runs as it is.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from stator.backends.random_draws import eager_streams
from stator.settings.options import Settings


def compile_cuda_graphs(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                        settings: Settings ) -> Callable[..., Any]:
    """AOTAutograd, and torch's trees of CUDA graphs around what it makes."""
    backend: Callable[..., Any] = importlib.import_module("torch._dynamo.backends.cudagraphs").cudagraphs
    with eager_streams(gm):
        return backend(gm, list(example_inputs))
