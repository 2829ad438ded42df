"""Try every name that programs use with torch.compile under stator.install().   python tools/api_table.py [--page]

In: the names of torch.compile's arguments, of torch.compiler, torch._dynamo and torch._dynamo.config.  Out: a row for
each: "works" where its effect on Stator was seen, "says" where Stator says that it has none, "torch's own" where torch
answers and Stator has no part in it.  A row that is none of these is silent, and the exit status is 1.
"""

from __future__ import annotations

import contextlib
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
from torch._dynamo import decorators

import stator
from stator.installation.torch_config import _ALWAYS_SO, _READ

PAGE = Path(__file__).resolve().parent.parent / "docs" / "torch-names.md"
HEAD = """# Names of torch.compile under install()

Written by `python tools/api_table.py --page`, which tries each name with torch {torch}. "works": its effect on Stator
was seen. "torch's own": torch answers, and Stator has no part in it. [From torch.compile](from-torch-compile.md) says
what to write instead.

| name | outcome |
|---|---|
"""
Probe = Callable[[], bool | str]
D: Any = torch._dynamo
C: Any = torch.compiler


class Counter:
    """A backend that counts its graphs."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs.append(graph)
        return graph.forward


def compiled(fn: Callable[..., Any], *calls: tuple[Any, ...], **settings: Any) -> int:
    """How many graphs these calls of the compiled function make."""
    counter = Counter()
    wrapped = torch.compile(fn, **{"backend": counter, **settings})
    for call in calls:
        wrapped(*call)
    return len(counter.graphs)


def raises(fn: Callable[[], Any], kind: type[BaseException] = Exception) -> bool:
    try:
        fn()
    except kind:
        return True
    return False


def ones(*shape: int) -> torch.Tensor:
    return torch.ones(shape or (2,))


def add(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def first_size() -> dict[str, object]:
    """A specification by which the first size of x is a symbol."""
    from torch.fx.experimental.dynamic_spec import ShapeVar, TensorSpec

    return {"x": TensorSpec([ShapeVar("n")])}


def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x * n


def breaking(x: torch.Tensor) -> torch.Tensor:
    torch._dynamo.graph_break()
    return x + 1


def with_helper(marked: Any) -> int:
    """Graphs of a function that calls a marked one."""
    return compiled(lambda x: marked(x * 2) + x, (ones(),))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def saved_ahead() -> bool:
    """A capture made ahead of time, written and read."""
    with tempfile.TemporaryDirectory() as folder, key_in(folder):
        ahead = torch.compile(doubled, backend="eager", fullgraph=True).aot_compile(((ones(),), {}))
        ahead.save_compiled_function(f"{folder}/doubled")
        with open(f"{folder}/doubled", "rb") as file:
            read = torch.compiler.load_compiled_function(file, f_globals={"doubled": doubled})
    return torch.equal(read(ones()), ones() * 2)


def bundled() -> bool:
    """torch's bundle of caches has Stator's entries."""
    function = torch.compile(doubled, backend="eager")
    with tempfile.TemporaryDirectory() as folder, key_in(folder):
        function(ones())
        data, saved = torch.compiler.save_cache_artifacts()
        return bool(saved.stator_artifacts and torch.compiler.load_cache_artifacts(data).stator_artifacts)


def key_in(folder: str) -> contextlib.AbstractContextManager[None]:
    return stator.config.patch(artifact_key_file=f"{folder}/key")


@contextlib.contextmanager
def setting(name: str, value: object) -> Iterator[None]:
    with torch._dynamo.config.patch({name: value}):
        yield


def under(name: str, value: object, probe: Probe) -> bool | str:
    with setting(name, value):
        return probe()


def stance(name: str) -> bool:
    with torch.compiler.set_stance(name):
        return compiled(add, (ones(),)) == 0


def varying(mark: Callable[[torch.Tensor], Any]) -> int:
    """Graphs of two calls with two sizes, the first of a marked tensor."""
    first = ones(4, 3)
    mark(first)
    return compiled(add, (first,), (ones(7, 3),))


def after_reset(reset: Callable[[], Any]) -> bool:
    counter = Counter()
    wrapped = torch.compile(add, backend=counter)
    wrapped(ones())
    reset()
    wrapped(ones())
    return len(counter.graphs) == 2


def default_backend() -> bool:
    counter = Counter()
    torch.compiler.set_default_backend(counter)
    try:
        torch.compile(add)(ones())
        return torch.compiler.get_default_backend() is counter and len(counter.graphs) == 1
    finally:
        torch.compiler.set_default_backend(None)


def filtered(keep: Any) -> bool:
    seen: list[Any] = []

    def watched(guards: Any) -> Any:
        seen.append(guards)
        return keep(guards)

    return compiled(add, (ones(),), options={"guard_filter_fn": watched}) == 1 and bool(seen)


def callbacks() -> bool:
    from torch._dynamo.callback import callback_handler, on_compile_end, on_compile_start
    seen: list[str] = []
    on_compile_start(lambda args: seen.append("start"))
    on_compile_end(lambda args: seen.append("end"))
    compiled(add, (ones(),))
    callback_handler.clear()
    return seen == ["start", "end"]


def counts(group: str) -> bool:
    from torch._dynamo.utils import counters
    before = sum(counters[group].values())
    compiled(breaking, (ones(),))
    return sum(counters[group].values()) > before


def forbidden() -> bool:
    return raises(lambda: with_helper(torch._dynamo.forbid_in_graph(lambda x: x.cos())), stator.Unsupported)


def registered() -> bool:
    counter = Counter()
    torch._dynamo.register_backend(lambda graph, inputs: counter(graph, inputs), name="api_table")  # type: ignore[arg-type]
    torch.compile(add, backend="api_table")(ones())
    return len(counter.graphs) == 1


def optimized(decorate: Callable[[Any], Any]) -> bool:
    counter = Counter()
    fn = decorate(counter)(add)
    return bool(torch.equal(fn(ones()), ones() + 1)) and stator.is_compiled(fn) and len(counter.graphs) == 1


def run_only() -> bool:
    counter = Counter()
    fn = torch.compile(add, backend=counter)
    fn(ones())
    torch._dynamo.run(fn)(ones(5))
    return len(counter.graphs) == 1


def constant(mark: Callable[[Any], Any]) -> bool:
    calls: list[int] = []

    def chosen() -> int:
        calls.append(1)
        return 3

    marked = mark(chosen)
    return compiled(lambda x: x + marked(), (ones(),), (ones(),)) == 1 and len(calls) == 1


def at_its_address() -> bool:
    counter, x = Counter(), ones()
    D.mark_static_address(x)
    torch.compile(add, backend=counter)(x)
    places = counter.graphs[0].graph.find_nodes(op="placeholder")  # a symbol of its size may be the first
    return any("_dynamo_static_input_type" in place.meta.get("tensor_dict", {}) for place in places)


ARGUMENTS: dict[str, Probe] = {
    "model": lambda: compiled(add, (ones(),)) == 1,
    "fullgraph": lambda: raises(lambda: compiled(breaking, (ones(),), fullgraph=True), stator.Unsupported),
    "dynamic": lambda: compiled(add, (ones(3),), (ones(4),), dynamic=True) == 1,
    "backend": lambda: compiled(add, (ones(),), backend="eager") == 0,
    "mode": lambda: raises(lambda: torch.compile(add, mode="no such mode"), ValueError),
    "options": lambda: raises(lambda: torch.compile(add, options={"no such option": 1}), ValueError),
    "disable": lambda: compiled(add, (ones(),), disable=True) == 0,
    "name": lambda: compiled(add, (ones(),), name="named") == 1,
    "recompile_limit": lambda: compiled(scaled, *((ones(), n) for n in range(2, 9)), recompile_limit=1,
                                        dynamic=False) == 1,
    "isolate_recompiles": lambda: compiled(add, (ones(),), isolate_recompiles=True) == 1,
    "shapes_spec": lambda: compiled(add, (ones(3),), (ones(4),), shapes_spec=first_size()) == 1,
}
COMPILER: dict[str, Probe | str] = {
    "compile": "torch's own: calls torch.compile",
    "config": "torch's own: see torch._dynamo.config",
    "reset": lambda: after_reset(torch.compiler.reset),
    "allow_in_graph": lambda: with_helper(torch.compiler.allow_in_graph(lambda x: x.cos())) == 1,
    "substitute_in_graph": lambda: callable(torch.compiler.substitute_in_graph(len)),
    "assume_constant_result": lambda: constant(torch.compiler.assume_constant_result),
    "disable": lambda: with_helper(torch.compiler.disable(lambda x: x.cos())) == 2,
    "list_backends": lambda: "inductor" in torch.compiler.list_backends(),
    "set_default_backend": default_backend,
    "get_default_backend": default_backend,
    "set_stance": lambda: stance("force_eager"),
    "set_enable_guard_collectives": "torch's own: guards of torch's tracer",
    "cudagraph_mark_step_begin": lambda: torch.compiler.cudagraph_mark_step_begin() is None,  # type: ignore[func-returns-value]
    "cudagraph_mark_warmup_incomplete": "torch's own: CUDA graphs of its Inductor",
    "load_compiled_function": saved_ahead,
    "nonstrict_trace": lambda: with_helper(C.nonstrict_trace(lambda x: x.cos())) == 1,
    "precompile": "torch's own: a module that captures ahead of time",
    "PrecompileError": "torch's own: an error of torch.compiler.precompile",
    "wrap_numpy": lambda: torch.compiler.wrap_numpy(lambda x: x + 1)(ones()).tolist() == [2, 2],
    "is_compiling": lambda: torch.compile(lambda x: torch.compiler.is_compiling(), backend="eager")(ones()),
    "is_dynamo_compiling": lambda: torch.compile(lambda x: torch.compiler.is_dynamo_compiling(),
                                                 backend="eager")(ones()),
    "is_exporting": lambda: torch.compile(lambda x: torch.compiler.is_exporting(), backend="eager")(ones()) is False,
    "save_cache_artifacts": bundled,
    "load_cache_artifacts": bundled,
    "nested_compile_region": lambda: with_helper(torch.compiler.nested_compile_region(lambda x: x.cos())) == 1,
    **{name: (lambda name=name: filtered(getattr(C, name))) for name in (  # type: ignore[misc]
        "keep_portable_guards_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe", "skip_guard_on_all_nn_modules_unsafe",
        "keep_tensor_guards_unsafe", "skip_guard_on_globals_unsafe", "skip_all_guards_unsafe")},
}
TRACER: dict[str, Probe | str] = {
    "allow_in_graph": lambda: with_helper(D.allow_in_graph(lambda x: x.cos())) == 1,
    "assume_constant_result": lambda: constant(D.assume_constant_result),
    "config": "torch's own: see torch._dynamo.config",
    "disable": lambda: with_helper(D.disable(lambda x: x.cos())) == 2,
    "disallow_in_graph": lambda: (D.disallow_in_graph(torch.tan), with_helper(torch.tan) == 2,
                                  D.allow_in_graph(torch.tan))[1],
    "dont_skip_tracing": lambda: with_helper(D.dont_skip_tracing(lambda x: x.cos())) == 1,
    "export": "torch's own: its tracer exports",
    "explain": lambda: D.explain(breaking)(ones()).graph_break_count == 1,
    "forbid_in_graph": forbidden,
    "graph_break": lambda: compiled(lambda x: (x * 2, D.graph_break())[0] + 1, (ones(),)) == 2,
    "is_compiling": lambda: torch.compile(lambda x: D.is_compiling(), backend="eager")(ones()),
    "is_dynamo_disable_recursive": "torch's own: reads a mark",
    "list_backends": lambda: "inductor" in D.list_backends() and D.list_backends([]) == stator.list_backends([]),
    "lookup_backend": "torch's own: its table of backends",
    "mark_dynamic": lambda: varying(lambda x: D.mark_dynamic(x, 0)) == 1,
    "maybe_mark_dynamic": lambda: varying(lambda x: D.maybe_mark_dynamic(x, 0)) == 1,
    "mark_static": lambda: compiled(add, *((each,) for each in static()), dynamic=True) == 2,
    "mark_static_address": at_its_address,
    "mark_unbacked": lambda: varying(lambda x: decorators.mark_unbacked(x, 0)) == 1,
    "nonstrict_trace": lambda: with_helper(D.nonstrict_trace(lambda x: x.cos())) == 1,
    "optimize": lambda: optimized(lambda backend: D.optimize(backend)),
    "optimize_assert": lambda: optimized(lambda backend: D.optimize_assert(backend)),
    "OptimizedModule": lambda: isinstance(torch.compile(torch.nn.Linear(2, 2)), D.OptimizedModule),
    "register_backend": registered,
    "reset": lambda: after_reset(D.reset),
    "run": run_only,
    "error_on_graph_break": lambda: raises(lambda: D.error_on_graph_break(True)(torch.compile(
        breaking, backend="eager"))(ones()), stator.Unsupported),
    "set_stance": lambda: stance("force_eager"),
    "skip_frame": lambda: compiled(lambda x: (D.skip_frame(), x + 1)[1], (ones(),)) == 0,
    "substitute_in_graph": "torch's own: a mark that torch.compiler's sets too",
    "bytecode_debugger": "torch's own: a debugger of its tracer",
    "callback.on_compile_start": callbacks,
    "callback.on_compile_end": callbacks,
    "utils.counters['stats']": lambda: counts("stats"),
    "utils.counters['frames']": lambda: counts("frames"),
    "utils.counters['graph_break']": lambda: counts("graph_break"),
}
SETTINGS: dict[str, Probe] = {
    "disable": lambda: compiled(add, (ones(),)) == 0,
    "suppress_errors": lambda: not raises(lambda: torch.compile(add, backend=lambda graph, inputs: 1 // 0)(ones())),
    "specialize_int": lambda: compiled(scaled, *((ones(), n) for n in range(2, 6))) == 4,
    "assume_static_by_default": lambda: compiled(add, (ones(3),), (ones(4),)) == 1,
    "automatic_dynamic_shapes": lambda: compiled(add, (ones(3),), (ones(4),), (ones(5),)) == 3,
    "error_on_nested_fx_trace": lambda: not raises(
        lambda: torch.fx.symbolic_trace(torch.compile(add, backend="eager"))),
}


def static() -> list[torch.Tensor]:
    made = [ones(3), ones(4)]
    for each in made:
        D.mark_static(each, 0)
    return made


def another(value: Any) -> Any:
    """A value of the same kind that is not the default."""
    if type(value) is bool:
        return not value
    if type(value) in (int, float):
        return value + 1
    others: dict[type, Any] = {str: "other", list: ["other"], set: {"other"}, dict: {"other": 1}, type(None): "other"}
    return others.get(type(value), value)


def rows() -> Iterator[tuple[str, str]]:
    """Every name, and what became of it."""
    for name, probe in ARGUMENTS.items():
        yield f"torch.compile({name}=)", outcome(probe)
    for name in torch.compiler.__all__:
        yield f"torch.compiler.{name}", outcome(COMPILER.get(name))
    for name in sorted({*D.__all__, *TRACER}):
        yield f"torch._dynamo.{name}", outcome(TRACER.get(name) or (lambda name=name: call_plainly(name)))  # type: ignore[misc]
    config: Any = torch._dynamo.config
    for name, entry in sorted(config._config.items()):
        if entry.alias:
            yield f"torch._dynamo.config.{name}", f"torch's own: another name of {entry.alias.rpartition('.')[2]}"
            continue
        if name.startswith("_") or type(entry.default) not in (bool, int, float, str, list, set, dict, type(None)):
            continue
        wanted = False if name in ("assume_static_by_default", "automatic_dynamic_shapes") else another(entry.default)
        yield f"torch._dynamo.config.{name}", outcome(lambda name=name, wanted=wanted: configured(name, wanted))  # type: ignore[misc]


def call_plainly(name: str) -> bool:
    """A function of torch's tracer must say that it is one."""
    with contextlib.suppress(Exception):
        getattr(D, name)()
    return False


def configured(name: str, value: object) -> bool | str:
    if name in SETTINGS:
        return under(name, value, SETTINGS[name])
    if name in _READ:
        return under(name, value, lambda: compiled(add, (ones(),)) == 1)
    if name in _ALWAYS_SO and value == _ALWAYS_SO[name]:
        return under(name, value, lambda: compiled(add, (ones(),)) == 1)
    under(name, value, lambda: compiled(add, (ones(),)) == 1)
    return False


def outcome(probe: Probe | str | None) -> str:
    if probe is None:
        return "silent: no probe"
    if isinstance(probe, str):
        return probe
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            works = probe()
        except Exception as error:
            return f"silent: {type(error).__name__}: {str(error).splitlines()[0][:100]}"
    messages = [str(each.message) for each in said]
    told = [each for each in messages if "no effect on Stator" in each or "deprecated" in each]
    return works if isinstance(works, str) else "works" if works else f"says: {told[0]}" if told else "silent"


def page(found: list[tuple[str, str]]) -> str:
    """The page of all names: a row for each, but for settings without a row of their own a list for each outcome."""
    outcomes: dict[str, list[str]] = {"works": [], "says": []}
    text = [HEAD.format(torch=torch.__version__.partition("+")[0])]
    for name, what in found:
        kind = what.partition(":")[0]
        if name.startswith("torch._dynamo.config.") and kind in outcomes:
            outcomes[kind].append(f"`{name.rpartition('.')[2]}`")
        else:
            text.append(f"| `{name}` | {'no effect, with one warning' if kind == 'says' else what} |\n")
    for title, kind in (("applied, or true of Stator in any case", "works"), ("no effect, with one warning", "says")):
        text.append(f"\n## torch._dynamo.config: {title}\n\n{textwrap.fill(', '.join(outcomes[kind]), 120)}\n")
    return "".join(text)


def main(arguments: list[str]) -> int:
    stator.install()
    try:
        found = list(rows())
    finally:
        stator.uninstall()
    for name, what in found:
        print(f"{name:60s} {what}")
    if "--page" in arguments:
        PAGE.write_text(page(found))
    kinds = [what.split(":")[0] for _, what in found]
    print(f"\n{len(found)} names: {kinds.count('works')} work, {kinds.count('says')} say that they have no effect, "
          f"{sum(kind.startswith('torch') for kind in kinds)} are torch's own, {kinds.count('silent')} silent")
    return 1 if "silent" in kinds else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
