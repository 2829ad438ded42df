"""Settings of the whole process.   stator.config.error_on_recompile = True; stator.config.patch(recompile_limit=2)

In: assignments by name, under the names that torch._dynamo.config has for the same things.  Out: what `compile()` takes
for its defaults, and what a call that finds no entry asks.  A name that is not here raises, and names what to use.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from stator.errors import OptionError, OptionTypeError, OptionValueError
from stator.settings.options import DEFAULT_RECOMPILE_LIMIT, list_accepted

# Name -> its default, and what it does.
SETTINGS: dict[str, tuple[Any, str]] = {
    "recompile_limit": (DEFAULT_RECOMPILE_LIMIT, "how often one compiled callable may be captured"),
    "accumulated_recompile_limit": (256, "how often one place of the program may be captured, by all compile() calls"),
    "fail_on_recompile_limit_hit": (False, "RecompileLimit is raised at either limit, instead of running eagerly"),
    "error_on_recompile": (False, "RecompileForbidden is raised where a second entry would be made"),
    "capture_iteration_limit": (100_000, "how many loop iterations one capture follows before the frame runs natively"),
    "capture_progress_seconds": (5, "how many seconds pass between two CaptureProgress events of one capture"),
    "show_progress": (True, "captures and compilations that take long show their progress on a terminal"),
    "capture_backward": (True, "backward() in captured code is part of the graph; else it is a graph break"),
    "artifact_dir": ("", "folder of stored entries, else STATOR_CACHE_DIR; none: nothing is stored or loaded"),
    "artifact_mode": ("", "off, read or read-write, else STATOR_CACHE_MODE; read-write where a folder is named"),
    "artifact_store_bytes": (4 << 30, "size of that folder beyond which entries that were not used for longest go"),
    "artifact_wait_seconds": (300, "how long a call waits at most for another process that captures the same function"),
    "artifact_trusted_dirs": ("", "folders whose artifacts need no signature by the user's key; joined by os.pathsep"),
    "artifact_key_file": ("", "file of the key that signs artifacts; else one in the user's folder for settings"),
    "enable_compiler_collectives": (False, "ranks agree on sizes that differ between them before they capture"),
    "compiler_collectives_seconds": (10, "how many seconds a rank waits for the others at the first miss of a place"),
    "optimize_ddp": (True, "graphs of a module in DDP are cut where its buckets end, so that communication overlaps"),
    "compile_on_one_rank": (False, "one of the ranks that have the same graph compiles it; its files travel"),
    "disable": (False, "calls that no entry accepts run eagerly, and nothing is captured"),
    "suppress_errors": (False, "a call whose graph the backend cannot compile runs eagerly, with a warning"),
    "specialize_int": (False, "an int that changes is a constant of each entry, never a symbol"),
    "verify_correctness": (False, "what compile() makes is audited: every call is also made eagerly, and compared"),
}
_ALIASES = {"cache_size_limit": "recompile_limit", "accumulated_cache_size_limit": "accumulated_recompile_limit",
            "fail_on_cache_limit_hit": "fail_on_recompile_limit_hit"}
# Names of torch's that have another place here.
_ELSEWHERE = {
    "verbose": "use STATOR_LOGS, or stator.set_logs",
    "assume_static_by_default": "use compile(dynamic=True)",
    **dict.fromkeys(("automatic_dynamic_shapes", "specialize_float"), "use compile(dynamic=False)"),
    **dict.fromkeys(("capture_scalar_outputs", "capture_dynamic_output_shape_ops"), "captured where they can be"),
    "error_on_graph_break": "use compile(fullgraph=True), or stator.error_on_graph_break",
    "trace_numpy": "use options={'trace_numpy': ...}",
}


class UnknownSetting(OptionValueError, AttributeError):
    """A setting that Stator does not have."""


class Config:
    """The settings, as attributes."""

    __slots__ = ("_values", "_elsewhere")

    def __init__(self) -> None:
        object.__setattr__(self, "_values", {})
        object.__setattr__(self, "_elsewhere", None)

    def __getattr__(self, name: str) -> Any:
        name = known_name(name)
        if name in self._values:
            return self._values[name]
        default = SETTINGS[name][0]
        found = default if self._elsewhere is None else self._elsewhere(name)
        return found if type(found) is type(default) and (type(found) is not int or found > 0) else default

    def __setattr__(self, name: str, value: object) -> None:
        name = known_name(name)
        default = SETTINGS[name][0]
        if type(value) is not type(default):
            wanted = {bool: "True or False", str: "a str"}.get(type(default), "an int from 1")
            raise OptionTypeError(f"stator.config.{name} = {value!r} is not accepted; use {wanted}")
        if type(value) is int and value < 1:
            raise OptionValueError(f"stator.config.{name} = {value!r} is not accepted; use an int from 1")
        self._values[name] = value

    def __delattr__(self, name: str) -> None:
        self._values.pop(known_name(name), None)

    def __dir__(self) -> list[str]:
        return sorted([*SETTINGS, "follow", "patch"])

    def __repr__(self) -> str:
        return f"stator.config({', '.join(f'{name}={getattr(self, name)!r}' for name in SETTINGS)})"

    def patch(self, *given: object, **changes: object) -> _Patch:
        """Other values for a while, as a context or a decorator; also `patch("name", value)` and `patch({...})`."""
        if len(given) == 2 and isinstance(given[0], str):
            changes = {given[0]: given[1], **changes}
        elif len(given) == 1 and isinstance(given[0], dict):
            changes = {**given[0], **changes}
        elif given:
            raise OptionTypeError("stator.config.patch takes names as keywords, a name and a value, or a dict")
        return _Patch(self, {known_name(name): value for name, value in changes.items()})

    def follow(self, lookup: Callable[[str], Any] | None) -> None:
        """Look unassigned names up elsewhere: while torch.compile is Stator's, in torch's own config."""
        object.__setattr__(self, "_elsewhere", lookup)


class _Patch(contextlib.ContextDecorator):
    def __init__(self, holder: Config, changes: dict[str, Any]) -> None:
        self.holder, self.changes = holder, changes
        self.before: list[dict[str, Any]] = []

    def __enter__(self) -> None:
        self.before.append(dict(self.holder._values))
        try:
            for name, value in self.changes.items():
                setattr(self.holder, name, value)
        except OptionError:
            self.__exit__()
            raise

    def __exit__(self, *exc: object) -> None:
        before = self.before.pop()
        for name in self.changes:
            self.holder._values.pop(name, None)
        self.holder._values.update({name: before[name] for name in self.changes if name in before})


def known_name(name: str) -> str:
    name = _ALIASES.get(name, name)
    if name not in SETTINGS:
        why = f"; {_ELSEWHERE[name]}" if name in _ELSEWHERE else list_accepted(name, SETTINGS)
        raise UnknownSetting(f"stator.config has no {name!r}{why}")
    return name


config = Config()
