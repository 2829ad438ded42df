"""Load checkpoints of torch.compile.   {"_orig_mod.weight": w}  ->  {"weight": w}"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

_PREFIX = "_orig_mod."  # of the keys in a state_dict of torch.compile's modules


def loading_torchs_keys(load: Callable[..., Any], whole: bool) -> Callable[..., Any]:
    """The original's method, which also takes a state_dict of a module that torch.compile has made."""

    @functools.wraps(load)
    def load_renamed(state_dict: Any, *args: Any, **kwargs: Any) -> Any:
        prefix = "" if whole else args[0] if args else kwargs["prefix"]
        renamed = [key for key in state_dict if type(key) is str and key.startswith(prefix + _PREFIX)]
        if whole and renamed:
            state_dict = copy.copy(state_dict)  # the user's
        for key in renamed:
            state_dict[prefix + key[len(prefix + _PREFIX):]] = state_dict.pop(key)
        return load(state_dict, *args, **kwargs)

    return load_renamed
