"""What normalisations write to.   F.batch_norm(x, mean, var, training=True)  ->  [mean, var]

In: a node.  Out: the tensors it changes.  These changes are not counted in the tensors' versions, neither by the
operators nor by their fakes.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import fx

_BY_FUNCTION: tuple[tuple[Any, tuple[str, ...], bool], ...] = (  # its parameters, whether it updates unless told
    (F.batch_norm, ("input", "running_mean", "running_var", "weight", "bias", "updates"), False),
    (F.instance_norm, ("input", "running_mean", "running_var", "weight", "bias", "updates"), True),
    (torch.batch_norm, ("input", "weight", "bias", "running_mean", "running_var", "updates"), True),
    (torch.instance_norm, ("input", "weight", "bias", "running_mean", "running_var", "updates"), True),
)
_PARAMETERS = {id(function): (names, updates) for function, names, updates in _BY_FUNCTION}


def keeps_statistics(target: Any) -> bool:
    return id(target) in _PARAMETERS


def running_statistics(node: fx.Node) -> list[fx.Node]:
    """The running mean and variance that a node updates."""
    known = _PARAMETERS.get(id(node.target))
    if known is None:
        return []
    names, updates = known
    given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    told = given.get("updates", given.get("training", given.get("use_input_stats", updates)))
    found = (given.get("running_mean"), given.get("running_var"))
    return [each for each in found if isinstance(each, fx.Node)] if told is not False else []
