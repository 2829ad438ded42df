"""Modules of Stator that are imported when a call first needs them.   load("stator.capture.miss")  ->  the module

Their import makes tables of functions by name, and a few tensors.  In: a program that may have replaced functions and
entered modes of torch by then.  Out: the modules that an import at its start would have given.
"""

from __future__ import annotations

import contextlib
import importlib
import random
import sys
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import torch

from stator.host.garbage_collection import collector_paused
from stator.host.held_signals import held_signals
from stator.host.suspended_patches import find_patches, suspended

_LIBRARIES = sys.stdlib_module_names | {"torch", "numpy"}
_FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType)
_taken: list[tuple[dict[str, object], dict[str, object]]] = []  # namespaces, and their functions and classes at first
loaded: dict[str, types.ModuleType] = {}


def take() -> None:
    """Note functions and classes of libraries, once: a later import is to find these."""
    for name, module in [] if _taken else list(sys.modules.items()):
        if type(module) is types.ModuleType and name.partition(".")[0] in _LIBRARIES:
            names = vars(module)
            _taken.append((names, {each: value for each, value in list(names.items())
                                   if type(value) in _FUNCTIONS or issubclass(type(value), type)}))


@contextlib.contextmanager
def _as_taken() -> Iterator[None]:
    """Put back functions and classes that the program has replaced since, for a while."""
    found = [(names, each, now, value) for names, before in _taken for each, value in before.items()
             if (now := names.get(each, value)) is not value]
    for names, each, _, value in found:
        names[each] = value
    try:
        yield
    finally:
        for names, each, now, value in found:
            if names.get(each) is value:
                names[each] = now


def _imported(name: str) -> types.ModuleType:
    """Import where new tensors are what they are at the start of a program: modes belong to threads."""
    if not (torch._C._len_torch_function_stack() or torch._C._len_torch_dispatch_stack()
            or torch.is_inference_mode_enabled() or torch._C._functorch.peek_interpreter_stack() is not None):
        return importlib.import_module(name)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(importlib.import_module, name).result()


def _forget_groups(known: set[str]) -> None:
    """Take process groups out of the defaults of functions that were imported beside one.

    `group=group.WORLD` of torch.distributed.nn is None where it is imported before a group exists.  A default that
    held the group would keep its threads beyond destroy_process_group(), and the process would end by abort().
    """
    for name in [each for each in sys.modules if each.startswith("torch.distributed") and each not in known]:
        for function in list(vars(sys.modules[name]).values()):
            if type(function) is types.FunctionType and function.__defaults__:
                function.__defaults__ = tuple(None if isinstance(each, torch.distributed.ProcessGroup) else each
                                              for each in function.__defaults__)


def load(name: str) -> types.ModuleType:
    """The module of that name; its import leaves no trace in random streams."""
    if name not in loaded:
        known = set(sys.modules)
        stream = random.getstate()  # libraries that are imported on the way (sympy, networkx) draw random numbers
        try:
            with held_signals(), collector_paused(), suspended(find_patches(), beside_threads=True), _as_taken():
                loaded[name] = _imported(name)
        finally:
            random.setstate(stream)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            _forget_groups(known)
    return loaded[name]
