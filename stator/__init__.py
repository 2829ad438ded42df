"""Stator: an independent TorchDynamo.

In: PyTorch programs in ordinary Python.  Out: the same programs, run through captured and compiled graphs.
Public names are loaded together at first use: `stator.code` and the frame hook work without torch.
"""
# ruff: noqa: F403, F405, I001

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from stator.host import installed_torch, torch_originals  # noqa: F401  (before the core is used, or torch patched)

if TYPE_CHECKING:
    from stator import errors as errors, events as events, report as report
    from stator.api import *
    from stator.contracts import ContractViolation, contract
    from stator.dumps import dump
    from stator.errors import *
    from stator.installation import install, is_installed, uninstall
    from stator.remedies.api import propose
    from stator.shapes.named_dimensions import Dim
    from stator.shapes.tensor_marks import (
        mark_dynamic,
        mark_static,
        mark_static_address,
        mark_unbacked,
        maybe_mark_dynamic,
    )

__version__ = "0.1.0"

# The names that __getattr__ provides.
__all__ = ["BackendError", "CompiledModule", "ContractViolation", "Dim", "InternalError", "OptionError",
           "RankAgreementTimeout", "RanksDisagree", "RecompileForbidden", "RecompileLimit", "StatorError",
           "Unsupported", "allow_in_graph", "assume_constant_result", "bisect", "compile", "compile_in_place",
           "config", "contract", "disable", "dump", "error_on_graph_break", "explain", "graph_break", "install",
           "is_compiled", "is_compiling", "is_installed", "list_backends", "load", "load_shape_profile", "print",
           "mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked", "maybe_mark_dynamic", "propose",
           "register_backend", "reset", "save", "set_logs", "set_stance", "shape_profile", "skip_frame",
           "substitute_in_graph", "uninstall", "why_not_cached"]

# The modules that define them; stator.api has the rest.
_MODULES = {"stator.contracts": ("ContractViolation", "contract"), "stator.dumps": ("dump",),
            "stator.installation": ("install", "is_installed", "uninstall"), "stator.remedies.api": ("propose",),
            "stator.shapes.named_dimensions": ("Dim",),
            "stator.shapes.tensor_marks": ("mark_dynamic", "mark_static", "mark_static_address", "mark_unbacked",
                                      "maybe_mark_dynamic"),
            "stator.errors": ("BackendError", "InternalError", "OptionError", "RankAgreementTimeout", "RanksDisagree",
                              "RecompileForbidden", "RecompileLimit", "StatorError", "Unsupported")}
_MODULE_OF_NAME = {**dict.fromkeys(__all__, "stator.api"),
                   **{name: module for module, names in _MODULES.items() for name in names}}

# Packages that a user names after `import stator` alone.
_PACKAGES = frozenset({"errors", "events", "report"})


def __getattr__(name: str) -> object:
    if name in _PACKAGES:
        return importlib.import_module(f"stator.{name}")
    if name not in _MODULE_OF_NAME:
        raise AttributeError(f"module 'stator' has no attribute {name!r}")
    # All at once, so that captured code that says `stator.is_compiling` finds an ordinary module global.
    load = importlib.import_module("stator.host.lazy_imports").load
    for public, module in _MODULE_OF_NAME.items():
        globals()[public] = getattr(load(module), public)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_PACKAGES})
