"""Settings of torch._dynamo.config, as far as they mean something to Stator.

In: torch's module of settings, where somebody has loaded it: scripts set there what has no argument.  Out: values for
`stator.config` and for compile(), and a warning for each setting that was changed and has no effect.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

from stator.settings.process_config import _ALIASES, SETTINGS

# Values that select what Stator does in any case.
_ALWAYS_SO = {
    "capture_scalar_outputs": True, "capture_dynamic_output_shape_ops": True, "allow_rnn": True,
    "guard_nn_modules": True, "inline_inbuilt_nn_modules": True, "nested_graph_breaks": True,
    "allow_unspec_int_on_nn_module": True,
    "capture_func_transforms": True, "capture_autograd_function": True, "enable_trace_contextlib": True,
    "enable_trace_unittest": True, "enable_faithful_generator_behavior": True, "enable_trace_load_build_class": True,
    "specialize_float": True, "allow_empty_graphs": True, "graph_break_on_nn_param_ctor": False,
    "capture_sparse_compute": True, "constant_fold_autograd_profiler_enabled": False,
}
_READ = frozenset({*SETTINGS, *_ALIASES, "assume_static_by_default", "automatic_dynamic_shapes", "trace_numpy",
                   "dynamic_shapes", "error_on_nested_fx_trace"})
_said: set[str] = set()


def in_torchs_config(name: str, default: object = None) -> Any:
    """A setting of torch._dynamo.config; `default` where nobody has loaded it."""
    return getattr(sys.modules.get("torch._dynamo.config"), name, default)


def dynamic_in_torchs_config() -> bool | None:
    """As `dynamic=None` is meant there: sizes symbolic from the start, or never."""
    if not in_torchs_config("assume_static_by_default", True):
        return True
    return None if in_torchs_config("automatic_dynamic_shapes", True) else False


def say_what_is_ignored() -> None:
    """Warn once for each setting that was changed and has no effect."""
    module: Any = sys.modules.get("torch._dynamo.config")
    for name in getattr(module, "_config", ()):
        if name in _READ or name in _said or name.startswith("_") or module._is_default(name):
            continue
        value = getattr(module, name)
        if value != module._config[name].default and not (name in _ALWAYS_SO and value == _ALWAYS_SO[name]):
            _said.add(name)
            warnings.warn(f"stator: torch._dynamo.config.{name} = {value!r} has no effect on Stator", stacklevel=4)
