"""Settings of one `stator.compile` call.

In: the keyword arguments of the public API.  Out: a frozen, validated `Settings`; a wrong argument raises
`OptionTypeError` or `OptionValueError`.  Keys in `OWN_OPTIONS` become fields; a backend checks the others.
"""

from __future__ import annotations

import difflib
import os
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch

from stator.errors import OptionTypeError, OptionValueError

DEFAULT_RECOMPILE_LIMIT = 8

BackendFunction = Callable[..., Callable[..., object]]

# Option key -> what it does; each is a field of Settings, a bool unless the text names another type.
OWN_OPTIONS: dict[str, str] = {
    "strict": "an internal error of Stator raises instead of falling back to eager (also STATOR_STRICT=1)",
    "compile_nested": "Python functions called by the unsupported instruction of a break are compiled in turn",
    "capture_control_flow": "a branch on a tensor without effects, whose sides yield alike, is captured as torch.cond",
    "audit": "an int n: one call in n is also made eagerly and compared, 0 for none (also STATOR_AUDIT=n)",
    "shapes": "declared dimensions: {'x': {0: 'batch', 1: stator.Dim('length', min=2, max=512)}, 'n': 'steps'}",
    "replay": "a module like one that was traced before (a layer of the same class) is not traced anew (default True)",
    "trace_numpy": "numpy code on the memory of tensors is part of the graph, computed by torch (default True)",
    "regions": "'auto' (default): layers that repeat in a graph are compiled once; 'off': graphs are compiled whole; "
               "a list of nn.Modules and classes of them: their calls are the pieces",
    "start": "'now' (default): the first call waits for the compiler; 'eager': calls run eagerly while another process "
             "compiles (backend 'inductor')",
    "guard_filter_fn": "a function from a list of guards (name, value, guard_type, is_global, ...) to bools: guards "
                       "with False are not checked, and what they promise is the caller's to keep",
    "guard_fail_fn": "a function that each recompile calls with (reason, code) of the call that no entry fits",
    "print": "'replay' (default): print, logging and warnings are replayed after the graph; 'break': they break",
}


def strict_from_environment() -> bool:
    """Whether STATOR_STRICT makes internal errors raise."""
    text = os.environ.get("STATOR_STRICT", "").strip().lower()
    if text not in ("", "0", "false", "no", "off", "1", "true", "yes", "on"):
        raise OptionValueError(f"STATOR_STRICT={text!r} is not accepted; use 1 or 0")
    return text in ("1", "true", "yes", "on")


def audit_from_environment() -> int:
    """The interval of audited calls that STATOR_AUDIT sets."""
    text = os.environ.get("STATOR_AUDIT", "").strip() or "0"
    if not text.isascii() or not text.isdigit():
        raise OptionValueError(f"STATOR_AUDIT={text!r} is not accepted; use an int from 0")
    return int(text)


class FailedGuard(NamedTuple):
    """The argument of `guard_fail_fn`; the names are those of torch._dynamo's."""

    reason: str
    orig_code: types.CodeType | None


@dataclass(frozen=True)
class Settings:
    """How one function or module is compiled."""

    fullgraph: bool = False
    dynamic: bool | None = None
    backend: str | BackendFunction = "inductor"
    mode: str | None = None
    options: Mapping[str, object] = field(default_factory=dict, hash=False)
    recompile_limit: int = DEFAULT_RECOMPILE_LIMIT
    isolate_recompiles: bool = False
    name: str | None = None
    strict: bool = field(default_factory=strict_from_environment)
    compile_nested: bool = True
    capture_control_flow: bool | None = None
    replay: bool = True
    trace_numpy: bool = True
    audit: int = field(default_factory=audit_from_environment)
    print: str = "replay"
    regions: str | tuple[object, ...] = "auto"
    start: str = "now"
    shapes: Mapping[str, object] = field(default_factory=dict, hash=False)
    guard_filter_fn: Callable[..., Sequence[bool]] | None = None
    guard_fail_fn: Callable[[FailedGuard], object] | None = None
    # shapes.named_dimensions.Declarations, in the words of torch.compile's argument
    shapes_spec: object = field(default=None, hash=False)

    def validate(self) -> None:
        require_bool("fullgraph", self.fullgraph)
        require_bool("isolate_recompiles", self.isolate_recompiles)
        if not isinstance(self.dynamic, bool | None):
            raise OptionTypeError(f"dynamic={self.dynamic!r} is not accepted; use True (sizes are symbolic), False "
                                  "(sizes are constants) or None (a size becomes symbolic once it changes)")
        if not isinstance(self.backend, str) and not callable(self.backend):
            raise OptionTypeError(
                f"backend={self.backend!r} is not accepted; use the name of a backend "
                f"(stator.list_backends()) or a callable (graph_module, example_inputs) -> callable")
        for name, wanted in (("mode", "the name of a mode"), ("name", "a str")):
            if not isinstance(getattr(self, name), str | None):
                raise OptionTypeError(f"{name}={getattr(self, name)!r} is not accepted; use None or {wanted}")
        if self.mode is not None and self.options:
            raise OptionValueError(f"mode={self.mode!r} is given beside options of the backend "
                                   f"({', '.join(sorted(self.options))}); a mode is a set of such options: use one of "
                                   "the two")
        is_int = isinstance(self.recompile_limit, int) and not isinstance(self.recompile_limit, bool)
        if not is_int or self.recompile_limit < 1:
            raise (OptionValueError if is_int else OptionTypeError)(
                f"recompile_limit={self.recompile_limit!r} is not accepted; use an int from 1")
        for name, first, second in (("print", "replay", "break"), ("start", "now", "eager")):
            if getattr(self, name) not in (first, second):
                raise OptionValueError(f"options[{name!r}]={getattr(self, name)!r} is not accepted; use {first!r} or "
                                       f"{second!r}")
        self.check_regions()
        if self.guard_filter_fn is not None and not callable(self.guard_filter_fn):
            raise OptionTypeError(f"options['guard_filter_fn']={self.guard_filter_fn!r} is not accepted; use a "
                                  "function from a list of guards to a list of bools")
        if self.guard_fail_fn is not None and not callable(self.guard_fail_fn):
            raise OptionTypeError(f"options['guard_fail_fn']={self.guard_fail_fn!r} is not accepted; use a "
                                  "function of one argument, a tuple (reason, code)")
        if self.start == "eager" and self.backend != "inductor":
            raise OptionValueError(f"options['start']='eager' is not accepted with the backend {self.backend_name!r}; "
                                   "use 'inductor', which keeps what it has compiled on disk")
        if isinstance(self.audit, bool) or not isinstance(self.audit, int) or self.audit < 0:
            raise OptionTypeError(f"options['audit']={self.audit!r} is not accepted; use an int from 0")
        others = {"print", "audit", "shapes", "regions", "start", "guard_filter_fn", "guard_fail_fn"}
        for key in OWN_OPTIONS.keys() - others.union(["capture_control_flow"] * (self.capture_control_flow is None)):
            require_bool(f"options[{key!r}]", getattr(self, key))

    def check_regions(self) -> None:
        if isinstance(self.regions, str) and self.regions in ("auto", "off"):
            return
        wrong = [each for each in self.regions if not isinstance(each, torch.nn.Module) and not (
            isinstance(each, type) and issubclass(each, torch.nn.Module))] if isinstance(self.regions, tuple) else []
        if wrong or not isinstance(self.regions, tuple) or not self.regions:
            found = f" holds {wrong[0]!r}, which" if wrong else f"={self.regions!r}"
            raise OptionValueError(f"options['regions']{found} is not accepted; use 'auto', 'off' or a list of "
                                   "nn.Modules and classes of them")

    @property
    def starts_eagerly(self) -> bool:
        """Whether calls run eagerly while another process compiles."""
        return self.start == "eager" and self.backend == "inductor"  # a stance may force another backend

    @property
    def runs_in_order(self) -> bool:
        """Whether the backend runs the graph as it is, node by node."""
        return self.backend in ("eager", "eager_noexcept")

    @property
    def has_own_backend(self) -> bool:
        """Whether the graph goes through AOTAutograd in a backend of Stator."""
        return self.backend in ("inductor", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")

    @property
    def delays_writes(self) -> bool:
        """Whether writes to inputs, those of custom operators too, come at the end of the graph."""
        return self.backend in ("aot_eager", "aot_eager_decomp_partition")

    @property
    def backend_name(self) -> str:
        if isinstance(self.backend, str):
            return self.backend
        return str(getattr(self.backend, "__name__", None) or type(self.backend).__name__)


def build_settings(*, fullgraph: bool = False, dynamic: bool | None = None,
                   backend: str | BackendFunction = "inductor", mode: str | None = None,
                   options: Mapping[str, object] | None = None, recompile_limit: int = DEFAULT_RECOMPILE_LIMIT,
                   isolate_recompiles: bool = False, name: str | None = None) -> Settings:
    """The validated settings of the public API's keyword arguments."""
    own, of_backend = split_options(options)
    if isinstance(own.get("regions"), (list, set, frozenset)):
        own["regions"] = tuple(own["regions"])  # type: ignore[arg-type]
    settings = Settings(fullgraph, dynamic, backend, mode, of_backend, recompile_limit, isolate_recompiles, name,
                        **own)  # type: ignore[arg-type]  # validate() checks each
    settings.validate()
    return settings


def split_options(options: Mapping[str, object] | None) -> tuple[dict[str, object], dict[str, object]]:
    """Stator's own options, and those that are for the backend."""
    if options is None:
        return {}, {}
    if not isinstance(options, Mapping):
        raise OptionTypeError(f"options={options!r} is not accepted; use a dict from option name to value")
    own: dict[str, object] = {}
    of_backend: dict[str, object] = {}
    for key, value in options.items():
        if not isinstance(key, str):
            raise OptionTypeError(f"options holds the key {key!r}; option names are str")
        (own if key in OWN_OPTIONS else of_backend)[key] = value
    return own, of_backend


def require_bool(name: str, value: object) -> None:
    if not isinstance(value, bool):
        raise OptionTypeError(f"{name}={value!r} is not accepted; use True or False")


def list_accepted(given: str, accepted: Iterable[str], limit: int = 12) -> str:
    """The tail of a refusal: the closest accepted name, and the accepted names as far as they fit."""
    names = sorted(accepted)
    closest = difflib.get_close_matches(given, names, n=1, cutoff=0.5)
    hint = f"; did you mean {closest[0]!r}?" if closest else ";"
    if len(names) <= limit:
        return f"{hint} accepted: {', '.join(names) or 'none'}"
    return f"{hint} {len(names)} are accepted, among them: {', '.join(names[:limit])}"
