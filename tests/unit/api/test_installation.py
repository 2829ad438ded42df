"""stator.install(): torch.compile goes through Stator; `python -m stator run` for unmodified scripts."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import stator
from stator import events

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    original = torch.compile
    stator.install()
    yield
    stator.uninstall()
    assert torch.compile is original


def captures(function: Any, *args: Any) -> tuple[Any, int]:
    with events.record() as log:
        value = function(*args)
    return value, sum(isinstance(event, events.CaptureFinished) for event in log)


def test_a_function() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    compiled = torch.compile(function, backend="eager")
    assert stator.is_compiled(compiled)
    value, count = captures(compiled, torch.ones(2))
    assert value.tolist() == [2, 2] and count == 1


def test_a_decorator_with_and_without_arguments() -> None:
    @torch.compile(backend="eager", fullgraph=True, dynamic=False)
    def first(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert captures(first, torch.ones(2))[1] == 1
    with pytest.raises(stator.Unsupported):
        torch.compile(lambda x: stator.graph_break() or x, backend="eager", fullgraph=True)(torch.ones(2))


def test_a_module_and_its_own_compile_method() -> None:
    module = torch.nn.Linear(2, 2)
    assert type(torch.compile(module, backend="eager")) is stator.CompiledModule
    module.compile(backend="eager")
    value, count = captures(module, torch.ones(1, 2))
    assert count == 1 and torch.equal(value, torch.nn.functional.linear(torch.ones(1, 2), module.weight, module.bias))


def test_another_backend_in_the_place_of_inductor() -> None:
    seen = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph

    stator.install(backend=backend)
    torch.compile(lambda x: x + 1, mode="max-autotune")(torch.ones(2))
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert len(seen) == 1


def test_reset_forgets_stators_entries() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    compiled(torch.ones(2))
    torch.compiler.reset()
    assert captures(compiled, torch.ones(2))[1] == 1


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(stator.OptionError):
        torch.compile(lambda x: x, shapes_spec=3)


def test_a_mode_and_options_that_a_backend_cannot_use_are_ignored_aloud() -> None:
    for settings in ({"mode": "max-autotune"}, {"options": {"trace.enabled": True, "strict": True}}):
        with pytest.warns(UserWarning, match="'eager' ignores (mode|options)=.*(max-autotune|trace.enabled)") as said:
            compiled = torch.compile(lambda x: x + 1, backend="eager", **settings)
        assert captures(compiled, torch.ones(2))[1] == 1 and said[0].filename == __file__
        with pytest.raises(stator.OptionError):
            stator.compile(lambda x: x + 1, backend="eager", **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.compile(lambda x: x + 1, backend="eager", mode="default", options={"strict": True})
    with pytest.raises(stator.OptionError):
        torch.compile(lambda x: x + 1, backend="eagre")


def test_operators_of_torch_with_numbers_of_their_own_are_not_mixed_up() -> None:
    """torch compiles the few lines of torch.cond anew at each call: one that holds nothing is compiled once."""
    def made(k: int) -> Any:
        def operator(x: torch.Tensor) -> torch.Tensor:
            return x + k
        operator.__module__ = "torch._higher_order_ops.made_up"
        return operator

    def plain(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    plain.__module__ = "torch._higher_order_ops.made_up"
    assert stator.is_installed()
    for k in (1, 2, 3):
        assert torch.compile(made(k), backend="eager")(torch.ones(2)).tolist() == [1.0 + k] * 2
    assert torch.compile(plain, backend="eager") is torch.compile(plain, backend="eager")
    for k in (1, 2):  # a backend that holds something, likewise
        def backend(gm: Any, inputs: Any, k: int = k) -> Any:
            return lambda *args: tuple(each * k for each in gm.forward(*args))
        assert torch.compile(plain, backend=backend)(torch.ones(2)).tolist() == [2.0 * k] * 2


def test_uninstall_twice_and_what_was_compiled_before() -> None:
    compiled = torch.compile(lambda x: x + 1, backend="eager")
    stator.uninstall()
    stator.uninstall()
    assert not stator.is_installed() and not stator.is_compiled(torch.compile(lambda x: x, backend="eager"))
    assert captures(compiled, torch.ones(2))[1] == 1


# ---------------------------------------------------------------------- python -m stator run

SCRIPT = """
import sys
from torch import compile, ones
import stator

if __name__ == "__main__":
    compiled = compile(lambda x: x + 1)
    print(sys.argv[1:], stator.is_compiled(compiled), compiled(ones(2)).tolist())
"""


def run(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{cwd}", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", "stator", "run", *words], cwd=cwd, env=environment, text=True,
                          capture_output=True, timeout=300, check=False)


def test_an_unmodified_script(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    done = run("--backend", "eager", "--report", "script.py", "--own", "-m", cwd=tmp_path)
    assert done.stdout == "['--own', '-m'] True [2.0, 2.0]\n", done.stderr
    assert "stator: 1 captures" in done.stderr


def test_a_module_and_its_exit_status(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__main__.py").write_text(SCRIPT + "\n    sys.exit(3)\n")
    done = run("--backend", "eager", "-m", "package", "a", cwd=tmp_path)
    assert done.stdout == "['a'] True [2.0, 2.0]\n" and done.returncode == 3, done.stderr


def test_a_script_without_torch_does_not_import_it(tmp_path: Path) -> None:
    (tmp_path / "plain.py").write_text("import sys\nprint('torch' in sys.modules)\n")
    done = run("plain.py", cwd=tmp_path)
    assert done.stdout == "False\n", done.stderr


def test_usage() -> None:
    done = run(cwd=ROOT)
    assert done.returncode == 2 and "give a script" in done.stderr


def test_torch_compilers_functions_are_stators() -> None:
    @torch.compile(backend="eager")
    def function(x: torch.Tensor) -> torch.Tensor:
        return x + 10 if torch.compiler.is_compiling() else x + 1

    x = torch.zeros(1)
    assert function(x).item() == 10
    with torch.compiler.set_stance("force_eager"):
        assert function(x).item() == 1
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="fail_on_recompile"):
        function(torch.zeros(3, 3))
    assert function(x).item() == 10
    with pytest.raises(stator.OptionError, match="force_backend"):
        torch.compiler.set_stance("force_eager", force_backend="eager")

    @torch.compiler.allow_in_graph
    def leaf(x: torch.Tensor) -> torch.Tensor:
        return x.sin().cos()

    nodes: list[Any] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        nodes.extend(node.target for node in graph.graph.nodes if node.op == "call_function")
        return graph.forward

    torch.compile(lambda x: leaf(x) + 1, backend=backend, fullgraph=True)(x)
    assert leaf in nodes
    assert "inductor" in torch.compiler.list_backends()
    stator.uninstall()
    assert not stator.is_compiled(torch.compile(lambda x: x, backend="eager"))
    assert torch.compiler.set_stance.__module__.startswith("torch")


def test_a_backend_registered_with_torch() -> None:
    import torch._dynamo

    calls: list[int] = []

    @torch._dynamo.register_backend
    def counted_by_torch(graph: torch.fx.GraphModule, inputs: list[Any]) -> Any:
        calls.append(1)
        return graph.forward

    assert torch.compile(lambda x: x + 1, backend="counted_by_torch")(torch.zeros(1)).item() == 1
    assert calls == [1]


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, lambda x: x.sin(), lambda x: x.cos(), (x,))


@pytest.mark.filterwarnings("error:stator. torch._dynamo.config")
def test_operators_that_compile_themselves_under_a_tracer_of_torchs() -> None:
    """torch.cond calls torch.compile by itself; under make_fx, torch.export and vmap that is torch's own affair."""
    class Model(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return chosen(x)

    x = torch.ones(3)
    with stator.events.record() as log:
        for factor in (1, -1, 1):
            assert torch.equal(chosen(x * factor), x.sin() if factor > 0 else (-x).cos())
        assert torch.equal(torch.cond(x.sum() > 0, lambda x: x.exp(), lambda x: x.cos(), (x,)), x.exp())
    assert sum(isinstance(event, stator.events.BackendCompiled) for event in log) == 2
    for graph in (make_fx(chosen)(x), torch.export.export(Model(), (x,), strict=False).graph_module):
        assert [node for node in graph.graph.nodes if node.target is torch.ops.higher_order.cond]
    assert torch.equal(torch.vmap(chosen)(torch.ones(2, 3)), torch.ones(2, 3).sin())


def test_a_way_of_cond_that_raises_is_torchs_own_affair() -> None:
    """A way that Stator cannot trace, and torch can: `max` of tensors is torch.maximum to torch's tracer."""
    x, y = torch.tensor([1.0, -1.0]), torch.tensor([-1.0, 2.0])

    def program(flag: torch.Tensor) -> torch.Tensor:
        return torch.cond(flag, lambda pair: pair[0] + pair[1][0], lambda pair: max(pair[0], pair[1][0]), [(x, [y])])

    for call in (program, stator.compile(program, backend="eager")):
        assert torch.equal(call(torch.tensor(True)), x + y)
        assert torch.equal(call(torch.tensor(False)), torch.maximum(x, y))


def test_loops_that_carry_numbers_or_containers() -> None:
    def loop(x: torch.Tensor) -> Any:
        more = torch.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, {"y": c["y"] * 2}), (0, {"y": x}))
        return torch.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, [c[0] * 2]), (torch.tensor(0), [x])), more

    x = torch.ones(2)
    (count, (doubled,)), (number, table) = loop(x)
    assert count.item() == number == 3 and torch.equal(doubled, x * 8) and torch.equal(table["y"], x * 8)


def test_a_captured_loop_that_carries_containers() -> None:
    def loop(i: torch.Tensor, x: torch.Tensor) -> Any:
        return torch.while_loop(lambda i, c: i < 3, lambda i, c: (i + 1, {"a": [c["a"][0] * 2], "b": (c["b"] + 1,)[0]}),
                                (i, {"a": [x], "b": x}))

    compiled = stator.compile(loop, backend="eager", fullgraph=True)
    for start in (0, 2, 5):
        count, table = compiled(torch.tensor(start), torch.ones(2))
        turns = max(3 - start, 0)
        assert count.item() == start + turns and torch.equal(table["a"][0], torch.ones(2) * 2 ** turns)
        assert torch.equal(table["b"], torch.ones(2) + turns)


@pytest.mark.parametrize("name", ["TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE"])
def test_torchs_variables_of_the_environment_turn_compiling_off(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    monkeypatch.setenv(name, "1")
    assert torch.compile(function, backend="eager") is function
    monkeypatch.setenv(name, "0")
    assert stator.is_compiled(torch.compile(function, backend="eager"))


def test_what_a_function_calls_that_torch_disables_alone_is_captured() -> None:
    def called(x: torch.Tensor) -> torch.Tensor:
        return x + 2

    def calling(x: torch.Tensor) -> torch.Tensor:
        return called(x) * 3

    alone = torch._dynamo.disable(calling, recursive=False)
    entirely = torch._dynamo.disable(calling)
    for disabled, names in ((alone, {"add"}), (entirely, set())):
        for program in (disabled, lambda x, disabled=disabled: disabled(x)):
            with events.record() as log:
                compiled = torch.compile(program, backend="eager")
                for _ in range(2):
                    assert compiled(torch.ones(2)).tolist() == [9, 9]
            graphs = [event.graph for event in log if isinstance(event, events.CaptureFinished) and event.graph]
            assert {node.name for graph in graphs for node in graph.graph.nodes if "call" in node.op} == names


def test_guard_fail_fn_is_called_at_a_recompile() -> None:
    import torch._dynamo

    def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
        return x * n

    found: list[Any] = []
    compiled = torch._dynamo.optimize("eager", guard_fail_fn=found.append)(scaled)
    for n in (2, 2, True, 3):
        assert torch.equal(compiled(torch.ones(2), n), scaled(torch.ones(2), n))
    assert len(found) == 2 and found[0].orig_code is scaled.__code__
    assert "n" in found[0].reason and "True" in found[0].reason and found[0][0] is found[0].reason


def test_a_function_of_run_is_part_of_a_capture() -> None:
    import torch._dynamo

    @torch._dynamo.run
    def wave(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 10

    compiled = torch.compile(lambda x: wave(x) + 1, backend="eager", fullgraph=True)
    for x in (torch.ones(2), torch.zeros(2)):
        value, count = captures(compiled, x)
        assert torch.equal(value, wave(x) + 1) and count == int(bool(x.any()))


def test_backends_for_debugging_are_listed_as_torch_lists_them() -> None:
    import torch._dynamo

    for list_backends in (torch.compiler.list_backends, torch._dynamo.list_backends):
        assert "eager" not in list_backends() and "inductor" in list_backends()
        assert {"eager", "aot_eager", "inductor"} <= set(list_backends(exclude_tags=()))  # type: ignore[arg-type]


def test_a_region_without_errors_does_not_lift_fullgraph() -> None:
    import torch._dynamo

    def broken(x: torch.Tensor) -> torch.Tensor:
        with torch._dynamo.error_on_graph_break(False):
            torch._dynamo.graph_break()
        return x + 2

    with pytest.raises(stator.Unsupported):
        torch.compile(broken, backend="eager", fullgraph=True)(torch.ones(2))
    assert torch.compile(broken, backend="eager")(torch.ones(2)).tolist() == [3, 3]
    with torch._dynamo.error_on_graph_break(True), pytest.raises(stator.Unsupported):
        torch.compile(lambda x: stator.graph_break() or x, backend="eager")(torch.ones(2))
    with torch._dynamo.error_on_graph_break(True):
        assert torch.compile(broken, backend="eager")(torch.ones(2)).tolist() == [3, 3]
    for wrong in ((), ("foo",)):
        with pytest.raises(TypeError):
            torch._dynamo.error_on_graph_break(*wrong)


def test_the_stance_that_compiles_the_first_call_for_the_moment() -> None:
    compiled = torch.compile(lambda x, n: x * n, backend="eager")
    counts = []
    with torch.compiler.set_stance("aot_eager_then_compile"):
        for n in (2, 3, 3):
            value, count = captures(compiled, torch.ones(n), n)
            assert value.tolist() == [n] * n
            counts.append(count)
    assert counts == [0, 1, 0]
