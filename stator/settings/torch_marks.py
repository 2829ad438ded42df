"""Marks of torch's own decorators on functions.   @torch.compiler.allow_in_graph  ->  is_allowed(f)

Nothing of torch's tracer is imported: a process that has not loaded it has no such marks.
"""

from __future__ import annotations

import os
import sys
import types
from typing import Any

import torch

ORIGINAL = "_torchdynamo_orig_callable"
WRAPPERS = os.path.join("torch", "_dynamo", "eval_frame.py")
_TORCH = os.path.join(os.path.dirname(torch.__file__), "")
_TABLES = "torch._dynamo.trace_rules"
_DECORATORS = "torch._dynamo.decorators"


def is_allowed(fn: object) -> bool:
    """Marked with torch.compiler.allow_in_graph, or with nonstrict_trace, which does the same."""
    return _is_listed("_allowed_callable_ids", fn)


def takes_structures(fn: object) -> bool:
    """Marked with nonstrict_trace: it may be given, and may return, objects of classes that pytree knows."""
    return _is_listed("_nonstrict_trace_callable_ids", fn)


def is_disallowed(fn: object) -> bool:
    """Marked with disallow_in_graph, as is torch's own function that breaks."""
    return _is_listed("_disallowed_callable_ids", fn)


def is_forbidden(fn: object) -> bool:
    """Marked with torch._dynamo.forbid_in_graph: a capture that meets it raises."""
    return type(fn) is types.FunctionType and fn.__dict__.get("_dynamo_forbidden") is True


def _is_listed(table: str, fn: object) -> bool:
    module = sys.modules.get(_TABLES)
    ids: Any = None if module is None else getattr(module, table, None)
    return ids is not None and bool(ids.function_ids) and id(fn) in ids.function_ids


def is_graph_break(fn: object) -> bool:
    return type(fn) is types.FunctionType and fn.__name__ == "graph_break" and fn.__module__ == _DECORATORS


def is_of_torch(code: types.CodeType) -> bool:
    """Whether a function of torch, such as an optimizer's step, has this code."""
    return code.co_filename.startswith(_TORCH)


def disabled_because(fn: object) -> str | None:
    """The reason given to torch.compiler.disable, "" for none; None where it is not disabled."""
    if type(fn) is not types.FunctionType or not fn.__dict__.get("_torchdynamo_disable"):
        return None
    reason = fn.__dict__.get("_torchdynamo_disable_msg")
    # torch.compile, once used in a process, disables parts of every optimizer that it cannot capture itself.
    if isinstance(reason, str) and (reason == "don't trace into fused optimizer"
                                    or reason.startswith("optimizer ") and reason.endswith(" not supported")):
        return None
    return reason or ""


def alone_disabled(fn: object) -> types.FunctionType | None:
    """The function that torch.compiler.disable(recursive=False) has wrapped in `fn`: what it calls is captured."""
    if type(fn) is not types.FunctionType or fn.__dict__.get("_torchdynamo_disable_recursive") is not False:
        return None
    original = fn.__dict__.get(ORIGINAL)
    return original if type(original) is types.FunctionType else None


def is_constant_result(fn: object) -> bool:
    """Marked with torch.compiler.assume_constant_result; functools.wraps copies the mark to wrappers, which are not."""
    return type(fn) is types.FunctionType and fn.__dict__.get("_dynamo_marked_constant") is True \
        and "__wrapped__" not in fn.__dict__


def is_torch_compiled(fn: object) -> bool:
    """Whether torch.compile has made `fn`; a wrapper that functools.wraps has given the same entries does not count."""
    return type(fn) is types.FunctionType and ORIGINAL in fn.__dict__ and fn.__code__.co_filename.endswith(WRAPPERS)
