"""The backend "inductor".

In: a graph module and settings.  Out: the callable that Inductor compiles. `mode` and `options` mean what
they mean to torch.compile: patches of torch._inductor.config while this graph is compiled.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._functorch import config as functorch_config

from stator.backends.aot_rules import partitioner_of_marks
from stator.backends.cuda_graphs import records_cuda_graphs
from stator.backends.inner_calls import keep_pass, keeps_passes, loaded_passes_kept
from stator.backends.kernel_launches import launches_shortened
from stator.ranks.shipping import compile_on_one_rank
from stator.settings.options import Settings
from stator.settings.process_config import config


def compile_inductor(gm: torch.fx.GraphModule, example_inputs: Sequence[Any],
                     settings: Settings ) -> Callable[..., Any]:
    module = importlib.import_module("torch._inductor.compile_fx")
    utils = importlib.import_module("torch._inductor.utils")
    passes: Any = keeps_passes()
    records = passes is not None and records_cuda_graphs(settings)

    def compile_pass(graph: torch.fx.GraphModule, given: Sequence[Any], **keywords: object) -> Any:
        if records and utils.get_first_incompatible_cudagraph_node(graph) is not None:
            passes.unrecordable = True
        kind = "backward" if keywords.get("is_backward") else "inference" if keywords.get("is_inference") else "forward"
        return keep_pass(kind, len(given), module.compile_fx_inner(graph, given, **keywords))

    patches = partitioner_of_marks(gm) | config_patches(settings)
    with contextlib.ExitStack() as around:
        if settings.starts_eagerly or config.compile_on_one_rank:  # others compile the backward pass, too
            around.enter_context(functorch_config.patch(force_non_lazy_backward_lowering=True))
        inner = {}
        if passes is not None:
            if records:  # over all pieces, if every one of them allows it
                patches["triton.cudagraphs"] = False
                around.enter_context(functorch_config.patch(enable_autograd_cache=False))
            around.enter_context(loaded_passes_kept())
            inner["inner_compile"] = compile_pass
        around.enter_context(launches_shortened())
        return compile_on_one_rank(gm, example_inputs, str(sorted(patches.items())), lambda: module.compile_fx(
            gm, list(example_inputs), config_patches=patches, **inner))


def wake_workers() -> None:
    """Let the processes that compile kernels for a GPU start while the program is captured, not after it."""
    if torch.cuda.is_initialized():
        importlib.import_module("torch._inductor.async_compile").maybe_warm_pool()


def config_patches(settings: Settings) -> dict[str, Any]:
    """The changes to torch._inductor.config that the mode or the options set."""
    patches: dict[str, Any] = {}
    if settings.mode not in (None, "default"):
        patches.update(importlib.import_module("torch._inductor").list_mode_options(settings.mode))
    patches.update({key.replace("-", "_"): value for key, value in settings.options.items()})
    return patches
