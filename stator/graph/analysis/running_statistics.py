"""Running statistics that normalisations update.   F.batch_norm(x, mean, var, training=True)  ->  [mean, var]

In: the arguments of a call, by name.  Out: the tensors it changes.  Schemas do not show these writes, and version
counters only those of `instance_norm`.  The names of the parameters do: `running_mean` and `running_var`, unless a flag
says that they are only read.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F

_FLAGS = ("training", "use_input_stats", "updates")
_PARTS = ("running_mean", "running_var")
_FUNCTIONS: tuple[tuple[Any, tuple[str, ...], bool], ...] = (  # its parameters, whether it updates unless told
    (F.batch_norm, ("input", "running_mean", "running_var", "weight", "bias", "training"), False),
    (F.instance_norm, ("input", "running_mean", "running_var", "weight", "bias", "use_input_stats"), True),
)
COUNTED = frozenset({id(F.instance_norm), id(torch.instance_norm)})  # version counters show these updates
STATISTICS = {id(function): (names, updates) for function, names, updates in _FUNCTIONS}


def updates_statistics(schema: Any) -> bool:
    """Whether an operator may update statistics that its schema does not mark as written."""
    names = [argument.name for argument in schema.arguments if argument.alias_info is None]
    return schema.name.startswith("aten::") and _PARTS[0] in names and not any(
        part in schema.name for part in ("backward", "functional", "no_training", "no_update"))


def statistics_given(given: dict[str, Any], updates: bool) -> list[Any]:
    """The running mean and variance among named arguments, where the call updates them."""
    flag = next((given[name] for name in _FLAGS if name in given), updates)
    return [given[name] for name in _PARTS if given.get(name) is not None] if flag is not False else []
