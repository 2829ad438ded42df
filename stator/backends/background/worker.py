"""The process that compiles a graph for another one.   a file on stdin  ->  Inductor's caches filled

Started by `background`.  It ends with its parent, whose identifier is in its environment.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time

import torch
from torch._dynamo.utils import counters
from torch._inductor import config

from stator.backends.background.graph_pickling import unpacked
from stator.backends.background.jobs import _PARENT, NICE
from stator.backends.compilation import compile_graph
from stator.backends.inductor import config_patches
from stator.settings.options import Settings


def work() -> None:
    parent = int(os.environ[_PARENT])
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    with contextlib.suppress(OSError):
        os.nice(NICE)
    try:
        gm, inputs, settings, grad_enabled, mode, inference = unpacked(sys.stdin.buffer.read())
        why = "" if keeps_results(settings) else "the caches of Inductor are off"
        if not why:
            with torch.inference_mode() if inference else contextlib.nullcontext():
                compile_graph(gm, inputs, settings, mode, grad_enabled)
        if bypassed := counters["inductor"]["fxgraph_cache_bypass"]:
            why = f"Inductor's cache does not take {bypassed} of its graphs"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    if why:
        print(" ".join(why.split())[:2000])
    sys.stdout.flush()
    os._exit(1 if why else 0)  # threads and pools of compilers need no farewell


def keeps_results(settings: Settings) -> bool:
    patched = {"fx_graph_cache": config.fx_graph_cache, "force_disable_caches": config.force_disable_caches,
               **config_patches(settings)}
    return bool(patched["fx_graph_cache"] and not patched["force_disable_caches"])


def end_with(parent: int) -> None:
    """Kill this process and what it has started when the parent is gone."""
    while os.getppid() == parent:
        time.sleep(0.2)
    os.killpg(0, signal.SIGKILL)
