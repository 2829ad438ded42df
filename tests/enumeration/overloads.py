"""The subjects of the enumeration: every registered overload whose schema writes, and the public names that reach it.

In: torch's registry of schemas.  Out: subjects. The form says how a subject is called: as the overload itself, as a method
of the tensor, as a function of torch with out=, or as a function of torch.nn.functional with inplace=True.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F

NAMESPACES: tuple[tuple[Any, str], ...] = (
    (torch, ""), (torch.linalg, "linalg_"), (torch.special, "special_"), (torch.fft, "fft_"), (torch._C._nn, ""))
OVERLOAD, METHOD, FUNCTION, INPLACE = "overload", "method", "function", "inplace="


@dataclass(frozen=True)
class Subject:
    name: str
    form: str
    schema: Any  # torch.FunctionSchema; None for a function of torch.nn.functional
    call: Callable[..., Any]

    def __str__(self) -> str:
        return f"{self.name} ({self.form})"


def writes(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def written_schemas() -> list[Any]:
    """Schemas with a written argument, in the order of their names."""
    found = {(each.name, each.overload_name): each for each in torch._C._jit_get_all_schemas()
             if any(writes(argument) for argument in each.arguments)}
    return [found[key] for key in sorted(found)]


def full_name(schema: Any) -> str:
    return f"{schema.name}.{schema.overload_name or 'default'}"


def overload_of(schema: Any) -> Any:
    """The OpOverload; None for a primitive of TorchScript that the dispatcher does not know."""
    namespace, _, name = schema.name.partition("::")
    try:
        return getattr(getattr(getattr(torch.ops, namespace), name), schema.overload_name or "default")
    except (AttributeError, RuntimeError):
        return None


def method_of(schema: Any) -> Callable[..., Any] | None:
    name = schema.name.partition("::")[2]
    first = schema.arguments[0]
    if not (name.endswith("_") and first.name == "self" and str(first.type) == "Tensor"):
        return None
    return getattr(torch.Tensor, name, None)


def function_of(schema: Any) -> Callable[..., Any] | None:
    name = schema.name.partition("::")[2]
    for namespace, prefix in NAMESPACES:
        found = getattr(namespace, name.removeprefix(prefix), None) if name.startswith(prefix) else None
        if isinstance(found, (types.BuiltinFunctionType, types.FunctionType)):
            return found
    return None


def subjects() -> list[Subject]:
    found: list[Subject] = []
    for schema in written_schemas():
        name, overload = full_name(schema), overload_of(schema)
        found.append(Subject(name, OVERLOAD, schema, overload))
        if overload is None or not schema.name.startswith("aten::"):
            continue
        method, function = method_of(schema), function_of(schema)
        if method is not None:
            found.append(Subject(name, METHOD, schema, method))
        if function is not None:
            found.append(Subject(name, FUNCTION, schema, function))
    for name, function in sorted(vars(F).items()):
        if isinstance(function, types.FunctionType) and not name.startswith("_") and "inplace" in inspect.signature(function).parameters:
            found.append(Subject(f"torch.nn.functional.{name}", INPLACE, None, function))
    return found
