"""A compiled module is still a module."""

import copy
import inspect
import io
import pickle
from typing import Any

import pytest
import torch

import stator


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.dropout = torch.nn.Dropout()
        self.register_buffer("count", torch.zeros(()))
        self.scale = 2

    @property
    def width(self):
        return self.linear.out_features

    def forward(self, x):
        return self.linear(x) * self.scale

    def helper(self):
        return self


@pytest.fixture
def net():
    return Net().eval()


@pytest.fixture
def compiled(recording, net):
    return stator.compile(net, backend="eager")


def test_call_goes_through_the_entry_and_the_hooks(recording, compiled, net):
    seen = []
    compiled.register_forward_hook(lambda module, args, output: seen.append(module))
    x = torch.randn(2, 3)
    assert compiled(x).equal(net.linear(x) * 2)
    assert seen == [net]
    traced, _ = recording.made[-1]
    assert traced.__self__ is net


def test_state_is_the_originals_under_the_same_names(compiled, net):
    assert isinstance(compiled, torch.nn.Module)
    assert isinstance(compiled, Net)
    assert type(compiled) is stator.CompiledModule
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters(), strict=True))
    assert [name for name, _ in compiled.named_modules()] == [name for name, _ in net.named_modules()]
    assert dict(compiled.named_buffers()).keys() == {"count"}
    compiled.load_state_dict({name: torch.ones_like(value) for name, value in net.state_dict().items()})
    assert net.linear.weight.eq(1).all()


def test_attributes_are_read_and_written_through(compiled, net):
    compiled.scale = 5
    assert net.scale == 5
    assert compiled.width == 3
    assert compiled.helper() is net
    compiled.extra = torch.nn.Parameter(torch.ones(1))
    assert "extra" in net.state_dict()
    del compiled.extra
    assert not hasattr(net, "extra")
    with pytest.raises(AttributeError):
        compiled.nothing
    assert "linear" in dir(compiled)
    assert "Net(" in repr(compiled)


def test_methods_that_return_self_keep_the_compilation(compiled, net):
    assert compiled.train() is compiled
    assert net.training and net.dropout.training
    assert compiled.eval().to(torch.float64).requires_grad_(False) is compiled
    assert net.linear.weight.dtype is torch.float64
    assert not net.linear.weight.requires_grad
    assert compiled.double().apply(lambda module: None) is compiled


def test_as_a_part_of_another_module(recording, compiled, net):
    outer = torch.nn.Sequential(compiled, torch.nn.ReLU())
    assert list(outer.state_dict()) == [f"0.{name}" for name in net.state_dict()]
    assert len(list(outer.parameters())) == 2
    outer.load_state_dict({name: value * 0 for name, value in outer.state_dict().items()})
    assert net.linear.weight.eq(0).all()
    outer.train()
    assert net.training
    outer(torch.randn(1, 3))
    assert len(recording.called) == 1
    outer.to(torch.float64)
    assert net.linear.weight.dtype is torch.float64
    optimizer = torch.optim.SGD(outer.parameters(), lr=0.1)
    assert optimizer.param_groups[0]["params"][0] is net.linear.weight


def test_containers(recording):
    layers = stator.compile(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh()))
    assert len(layers) == 2
    assert isinstance(layers[1], torch.nn.Tanh)
    assert [type(layer) for layer in layers] == [torch.nn.ReLU, torch.nn.Tanh]
    layers[0] = torch.nn.Identity()
    del layers[1]
    assert len(layers) == 1
    table = stator.compile(torch.nn.ModuleDict({"a": torch.nn.ReLU()}))
    assert "a" in table and "b" not in table
    assert bool(stator.compile(torch.nn.ReLU()))


def test_items_of_containers_are_the_originals(recording):
    """Python looks these up on the class: items, membership, truth."""
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU())
    made = stator.compile(layers, backend="eager")
    made[1] = torch.nn.Tanh()
    assert type(layers[1]) is torch.nn.Tanh and made[1] is layers[1]
    del made[0]
    assert len(made) == len(layers) == 1 and list(made) == list(layers)
    table = torch.nn.ModuleDict({"a": torch.nn.ReLU()})
    assert "a" in stator.compile(table, backend="eager") and "b" not in stator.compile(table, backend="eager")
    for module, truth in ((torch.nn.Sequential(), False), (layers, True), (torch.nn.ReLU(), True)):
        assert bool(stator.compile(module, backend="eager")) is truth


def test_deepcopy_is_independent_and_compiled(recording, compiled, net):
    twin = copy.deepcopy(compiled)
    assert type(twin) is stator.CompiledModule
    assert twin._orig_mod is not net
    assert twin.linear.weight is not net.linear.weight
    twin.scale = 7
    assert net.scale == 2
    twin(torch.randn(1, 3))
    assert recording.called[-1].__self__ is twin._orig_mod
    assert recording.settings.backend == "eager"


def test_copy_shares_parameters(compiled, net):
    twin = copy.copy(compiled)
    assert twin._orig_mod is not net
    assert twin.linear is net.linear


def test_pickle_stores_the_original_and_the_settings(recording, net):
    compiled = stator.compile(net, backend="eager", fullgraph=True, recompile_limit=3)
    back = pickle.loads(pickle.dumps(compiled))
    assert type(back) is stator.CompiledModule
    assert back.linear.weight.equal(net.linear.weight)
    assert recording.settings.fullgraph and recording.settings.recompile_limit == 3
    buffer = io.BytesIO()
    torch.save(compiled, buffer)
    buffer.seek(0)
    assert type(torch.load(buffer, weights_only=False)) is stator.CompiledModule
    assert type(pickle.loads(pickle.dumps(net))) is Net


def test_compiling_again_starts_from_the_original(compiled, net):
    again = stator.compile(compiled, backend="eager")
    assert again._orig_mod is net
    assert stator.is_compiled(again) and not stator.is_compiled(net)


def test_module_with_a_call_of_its_own(recording):
    class Odd(torch.nn.Module):
        def __call__(self, x):
            return ("odd", x)

    assert stator.compile(Odd())(1) == ("odd", 1)


def test_in_place(recording, net):
    assert stator.compile_in_place(net, backend="eager") is None
    assert type(net) is Net
    assert stator.is_compiled(net)
    assert "_compiled_call_impl" not in net.state_dict()
    x = torch.randn(1, 3)
    assert net(x).equal(net.linear(x) * 2)
    assert len(recording.called) == 1
    twin = copy.deepcopy(net)
    twin(x)
    assert len(recording.called) == 1, "a copy is not compiled, as with nn.Module.compile"
    stator.compile_in_place(net, disable=True)
    net(x)
    assert len(recording.called) == 1
    assert not stator.is_compiled(net)


def test_in_place_refuses_what_is_not_a_module(recording):
    with pytest.raises(stator.OptionError, match="use an nn.Module"):
        stator.compile_in_place(lambda x: x)


# ---------------------------------------------------------------------- attributes that libraries expect of torch's


def test_the_original_can_be_assigned() -> None:
    """accelerate's unwrap_model takes `_orig_mod` out and puts it back; others put another module in."""
    first, second = torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)
    compiled, x = stator.compile(first, backend="eager"), torch.ones(1, 2)
    compiled._orig_mod = first
    assert list(compiled.state_dict()) == ["weight", "bias"] and torch.equal(compiled(x), first(x))
    compiled._orig_mod = second
    assert stator.is_compiled(compiled) and compiled.weight is second.weight and torch.equal(compiled(x), second(x))


def test_keys_of_torchs_modules_are_loaded() -> None:
    """torch.compile's modules write `_orig_mod.` into the keys of their state_dict, also inside other modules."""
    plain = torch.nn.Linear(2, 2)
    compiled = stator.compile(torch.nn.Linear(2, 2), backend="eager")
    given = {f"_orig_mod.{key}": value for key, value in plain.state_dict().items()}
    assert not any(compiled.load_state_dict(given)) and torch.equal(compiled.weight, plain.weight)
    assert list(given) == ["_orig_mod.weight", "_orig_mod.bias"]
    outer = torch.nn.Sequential(torch.nn.Linear(2, 2), stator.compile(torch.nn.Sequential(torch.nn.Linear(2, 2))))
    wanted = {key: value + 1 for key, value in outer.state_dict().items()}
    outer.load_state_dict({key.replace("1.", "1._orig_mod.", 1): value for key, value in wanted.items()})
    assert all(torch.equal(value, wanted[key]) for key, value in outer.state_dict().items())
    with pytest.raises(RuntimeError, match="Unexpected key"):
        compiled.load_state_dict({**given, "_orig_mod.other": plain.weight})


def test_forward_is_compiled_and_can_be_assigned() -> None:
    seen: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Any:
        seen.append(graph)
        return graph.forward

    module, x = torch.nn.Linear(2, 2), torch.ones(1, 2)
    compiled = stator.compile(module, backend=backend)
    forward = compiled.forward
    assert torch.equal(forward(x), module(x)) and len(seen) == 1
    assert inspect.signature(forward) == inspect.signature(module.forward)
    compiled.forward = lambda x: forward(x) + 1
    assert torch.equal(compiled(x), module(x) + 1) and torch.equal(compiled.forward(x), module(x) + 1)
    outer = stator.compile(lambda x: compiled(x) * 2, backend="eager")
    assert torch.equal(outer(x), (module(x) + 1) * 2)
    del compiled.forward
    assert torch.equal(compiled(x), module(x)) and torch.equal(outer(x), module(x) * 2)
