"""Decide what to try after an attempt that failed.   a backend error, a Break, a raise  ->  capture again without ...

Out: True, with one strategy of the site turned off or one bound set, where another capture may do better; False where
this one stands.  Each answer of True changes the site, so that attempts come to an end.
"""

from __future__ import annotations

import random
from collections.abc import Callable

import torch
from torch.autograd.grad_mode import _enter_inference_mode

from stator import errors, events
from stator.backends.aot import failed_in_autograd
from stator.breaks import Break, Strategy
from stator.capture.call_site import CallSite
from stator.capture.trace import Trace
from stator.errors import BackendError
from stator.graph.analysis.mutation import PURE_KERNELS
from stator.graph.analysis.step_functions import GRADIENTS
from stator.graph.record.input_recorder import SPARSE_LAYOUTS
from stator.graph.record.recorder import Recorder
from stator.library.torch.higher_order_operators import carries_numbers

# Whether a graph relies on a strategy that some backend cannot take; off, the capture breaks there instead.
RELIES_ON: dict[Strategy, Callable[[Recorder], bool]] = {
    Strategy.GRADIENTS_INSIDE: lambda recorder: any(node.target in GRADIENTS for node in recorder.graph.nodes),
    Strategy.INFERENCE_MODE: lambda recorder: bool(
        recorder.graph.find_nodes(op="call_function", target=_enter_inference_mode)),
    Strategy.CARRIED_NUMBERS: lambda recorder: carries_numbers(recorder.graph),
    Strategy.CUSTOM_FORMULAS: lambda recorder: any(node.target in PURE_KERNELS for node in recorder.graph.nodes),
    Strategy.SYMBOLIC_WRAPPERS: lambda recorder: any(
        wrapper._has_symbolic_sizes_strides for wrapper in recorder.wrappers.behind.values()),
    Strategy.SPARSE_INPUTS: lambda recorder: any(
        isinstance(each.tensor, torch.Tensor) and each.tensor.layout in SPARSE_LAYOUTS for each in recorder.inputs),
}


def relax_capture(site: CallSite, done: Trace) -> bool:
    """After a backend's failure: do without one thing that it may have failed on."""
    recorder = done.vm.recorder
    if site.shapes.floats and any(graph_input.boxed for graph_input in recorder.inputs):
        site.shapes.floats = False  # floats from outside become constants again
        return True
    if not site.shapes.items and recorder.items.declined:
        site.shapes.items = True  # numbers in inputs are read before the graph runs
        return True
    for strategy, relies in RELIES_ON.items():
        if strategy not in site.turned_off and relies(recorder):
            site.turned_off.add(strategy)
            return True
    if not site.learned.branches_break and any("is_branch" in node.meta for node in recorder.graph.nodes):
        site.learned.branches_break = True  # break at each instead
        return True
    if site.learned.data_dependent and recorder.symbols.has_fresh:
        site.learned.data_dependent = False  # break at each instead
        return True
    return False


def run_uncompiled(site: CallSite, error: BackendError) -> bool:
    """Run the graph as it is where AOTAutograd cannot trace it at all, and say so."""
    if Strategy.COMPILER in site.turned_off or not site.settings.has_own_backend or not failed_in_autograd(error):
        return False
    site.turned_off.add(Strategy.COMPILER)
    why = f"AOTAutograd cannot trace a graph of {site.name}, which is run as it is ({error.__cause__})".splitlines()[0]
    events.emit(events.EagerFallback(site.name, why))
    errors.warn(f"stator: {why}")
    return True


def hide_compiling(site: CallSite, done: Trace) -> bool:
    """After a trace that raised and read is_compiling(): answer the next as eager code is answered."""
    if not done.vm.policy.compiling_shown or Strategy.COMPILING_SHOWN in site.turned_off:
        return False
    site.turned_off.add(Strategy.COMPILING_SHOWN)
    return True


def guard_values(site: CallSite, done: Trace, stop: Break) -> bool:
    """Under fullgraph: the state of random streams becomes a fact, or a guard computes ahead what data decides."""
    drawn = done.vm.residual.draws or stop.stop.leave == random.__file__
    on_data = stop.code in ("SB002", "SB003") and site.settings.capture_control_flow is not False
    for strategy, wanted in ((Strategy.DRAWN_NUMBERS, drawn), (Strategy.UNBACKED_VALUES, on_data)):
        if wanted and strategy not in site.turned_off:
            site.turned_off.add(strategy)
            if strategy is Strategy.UNBACKED_VALUES:
                events.emit(events.ComputedAhead(site.name, stop.cause, stop.filename, stop.line))
            return True
    return False


def capture_without(site: CallSite, stop: Break) -> bool:
    """After a Break that names what to do without: a strategy, values of one C type, captured branches."""
    strategy, made = stop.stop.turn_off, stop.stop.not_rebuilt
    if strategy is not None and strategy not in site.turned_off:
        site.turned_off.add(strategy)
        site.learned.why_off[strategy] = stop.cause
        return True
    if made is not None and made not in site.learned.not_rebuilt:
        site.learned.not_rebuilt.add(made)  # break where it is made
        return True
    if not stop.stop.branches_break or site.learned.branches_break:
        return False
    site.learned.branches_break = True
    return True
