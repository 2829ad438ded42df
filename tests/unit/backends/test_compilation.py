"""Each backend computes what the graph says, for inference and for training."""

import random
import types

import pytest
import torch
import torch._inductor.compile_fx
from torch._guards import CompileContext, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

import stator
from stator import events
from stator.backends import inductor
from stator.backends.compilation import compile_graph
from stator.errors import BackendError
from stator.settings.options import build_settings

BACKENDS = ["eager", "eager_noexcept", "aot_eager", "aot_eager_decomp_partition"]


def graph_of(body, *names):
    graph = torch.fx.Graph()
    inputs = [graph.placeholder(name) for name in names]
    graph.output(tuple(body(graph, *inputs)))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


def linear_relu():
    def body(graph, x, w):
        y = graph.call_function(torch.nn.functional.linear, (x, w))
        z = graph.call_function(torch.relu, (y,))
        return z, graph.call_method("sum", (z,))

    return graph_of(body, "x", "w")


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(3, 4), torch.nn.Parameter(torch.randn(5, 4))


def compile_for(backend, gm, inputs, grad_enabled=False, **settings):
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    fakes = [fake_mode.from_tensor(value) for value in inputs]
    return compile_graph(gm, fakes, build_settings(backend=backend, **settings), fake_mode, grad_enabled)


def check_inference(backend, inputs, **settings):
    compiled = compile_for(backend, linear_relu(), inputs, **settings)
    x, w = inputs
    with torch.no_grad():
        result = compiled(x, w)
    expected = torch.relu(x @ w.detach().t())
    assert isinstance(result, (tuple, list)) and len(result) == 2
    torch.testing.assert_close(result[0], expected)
    torch.testing.assert_close(result[1], expected.sum())
    assert not result[0].requires_grad


def check_training(backend, inputs):
    compiled = compile_for(backend, linear_relu(), inputs, grad_enabled=True)
    x, w = inputs
    compiled(x, w)[1].backward()
    (expected,) = torch.autograd.grad(torch.relu(x @ w.t()).sum(), w)
    torch.testing.assert_close(w.grad, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference(backend, inputs):
    check_inference(backend, inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training(backend, inputs):
    check_training(backend, inputs)


def test_inductor(inputs):
    check_inference("inductor", inputs)
    check_inference("inductor", inputs, options={"max_autotune": False, "epilogue-fusion": False})
    check_training("inductor", inputs)


@pytest.mark.parametrize("backend", BACKENDS)
def test_input_mutation_and_views_survive(backend):
    def body(graph, x):
        row = graph.call_method("select", (x, 0, 1))
        graph.call_method("add_", (row, 5))
        return (graph.call_method("t", (x,)),)

    x = torch.zeros(2, 3)
    (result,) = compile_for(backend, graph_of(body, "x"), [x])(x)
    assert x.tolist() == [[0, 0, 0], [5, 5, 5]]
    x[0, 0] = 7
    assert result[0, 0] == 7, "the output is a view of the input"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_symbolic_sizes(backend):
    def body(graph, x):
        return (graph.call_function(torch.cat, ([x, x],)),)

    fake_mode = FakeTensorMode(
        allow_non_fake_inputs=True, shape_env=torch.fx.experimental.symbolic_shapes.ShapeEnv()
    )
    fake = fake_mode.from_tensor(torch.randn(4, 2))
    assert isinstance(fake.shape[0], torch.SymInt)
    settings = build_settings(backend=backend)
    compiled = compile_graph(graph_of(body, "x"), [fake], settings, fake_mode, False)
    for rows in (4, 7):
        x = torch.randn(rows, 2)
        torch.testing.assert_close(compiled(x)[0], torch.cat([x, x]))


def test_user_backend_gets_fakes_and_keywords(inputs):
    seen = {}

    def mine(gm, example_inputs, **keywords):
        seen.update(inputs=example_inputs, keywords=keywords, grad=torch.is_grad_enabled())
        seen["context"] = TracingContext.get().fake_mode
        return gm.forward

    check_inference(mine, inputs, options={"level": 3})
    assert type(seen["inputs"]) is list and seen["inputs"][0].fake_mode is seen["context"]
    assert seen["keywords"] == {"options": {"level": 3}}
    assert seen["grad"] is False
    compile_for(mine, linear_relu(), inputs, grad_enabled=True, mode="fast")
    assert seen["keywords"] == {"mode": "fast"} and seen["grad"] is True


def test_an_open_tracing_context_is_used(inputs):
    fake_mode = FakeTensorMode(allow_non_fake_inputs=True)
    context = TracingContext(fake_mode)
    seen = []

    def mine(gm, example_inputs):
        seen.append(TracingContext.get())
        return gm.forward

    fakes = [fake_mode.from_tensor(value) for value in inputs]
    with tracing(context):
        compile_graph(linear_relu(), fakes, build_settings(backend=mine), fake_mode, False)
    assert seen == [context]


def test_failure_names_the_backend_and_keeps_the_cause(inputs):
    def broken(gm, example_inputs):
        raise ZeroDivisionError("inside")

    with pytest.raises(BackendError, match="'broken'.*ZeroDivisionError: inside") as failed:
        compile_for(broken, linear_relu(), inputs)
    assert isinstance(failed.value.__cause__, ZeroDivisionError)
    assert failed.value.backend == "broken"
    with pytest.raises(BackendError, match="returned 3, which is not callable"):
        compile_for(lambda gm, example_inputs: 3, linear_relu(), inputs)


def test_a_compiler_that_fails_is_not_passed_over(monkeypatch):
    """Only a graph that AOTAutograd itself cannot trace is run as it is."""
    def failing(gm, inputs, config_patches):
        raise RuntimeError("no registers left")

    monkeypatch.setattr(torch._inductor.compile_fx, "compile_fx", failing)
    with pytest.raises(BackendError, match="no registers left"):
        stator.compile(lambda x: x + 1, backend="inductor")(torch.ones(2))


def test_eager_noexcept_reports_the_graph_instead_of_the_exception(inputs):
    compiled = compile_for("eager_noexcept", linear_relu(), inputs)
    with pytest.raises(BackendError, match="the captured graph raised RuntimeError"):
        compiled(torch.randn(2, 9), inputs[1])
    with pytest.raises(RuntimeError, match="shapes"):
        compile_for("eager", linear_relu(), inputs)(torch.randn(2, 9), inputs[1])


def test_random_streams_and_grad_mode_are_untouched(inputs):
    def greedy(gm, example_inputs):
        torch.rand(3)
        random.random()
        return gm.forward

    random.seed(1)
    torch.manual_seed(1)
    compile_for(greedy, linear_relu(), inputs)
    drawn = random.random(), torch.rand(1).item()
    random.seed(1)
    torch.manual_seed(1)
    assert drawn == (random.random(), torch.rand(1).item())
    assert torch.is_grad_enabled()


def test_compilation_is_an_event(inputs):
    with events.record() as log:
        compile_for("eager", linear_relu(), inputs)
    assert [(event.backend, event.graph_nodes) for event in log] == [("eager", 6)]


def test_a_backend_may_trace_the_graph_with_proxies():
    """`__torch_function__` of the program's tensors is off while a call is captured; proxies live by theirs."""
    def traces_again(gm, example_inputs):
        return torch.fx.symbolic_trace(gm)

    def program(x, t):
        n = t.item()
        torch._check(max(n, x.shape[0]) <= 8)
        return torch.sin(x[: max(n, 3)]).relu() * min(n, x.shape[0])

    compiled = stator.compile(program, backend=traces_again, dynamic=True, options={"strict": True})
    for rows, n in ((6, 4), (5, 2)):
        torch.testing.assert_close(compiled(torch.ones(rows), torch.tensor(n)), program(torch.ones(rows), torch.tensor(n)))


def test_a_backend_may_script_the_graph() -> None:
    def scripted(graph, inputs):
        return torch.jit.script(graph)

    compiled = stator.compile(lambda x, y: (x.sin() + 1, x @ y), backend=scripted, fullgraph=True)
    x, y = torch.randn(3, 3), torch.randn(3, 3)
    for got, expected in zip(compiled(x, y), (x.sin() + 1, x @ y), strict=True):
        assert torch.equal(got, expected)


def test_a_backend_finds_the_number_of_its_compilation() -> None:
    found = []

    def backend(gm, example_inputs):
        found.append(CompileContext.get().compile_id)
        return gm

    for _ in range(2):
        stator.compile(lambda x: x + 1, backend=backend)(torch.ones(2))
    assert len(set(found)) == 2 and CompileContext.try_get() is None


def test_inductors_workers_start_when_the_capture_begins(monkeypatch):
    async_compile = pytest.importorskip("torch._inductor.async_compile")
    told = []
    # A patch of torch.cuda itself is for the program alone.
    monkeypatch.setattr(inductor, "torch", types.SimpleNamespace(cuda=types.SimpleNamespace(is_initialized=lambda: True)))
    monkeypatch.setattr(async_compile, "maybe_warm_pool", lambda: told.append("woken"))

    def program(x):
        told.append(x)
        return 1

    assert stator.compile(program, backend="inductor")(3) == 1
    assert told == ["woken", 3]
    assert stator.compile(program, backend="eager")(3) == 1
    assert told == ["woken", 3, 3]
