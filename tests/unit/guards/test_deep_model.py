"""A change in the middle of a deep model, between two calls that only compare memory, is seen by the next call."""

import gc
from collections.abc import Callable

import pytest
import torch
from torch import nn

import stator

LAYERS, CHANGED = 48, 40


class Layer(nn.Module):
    def __init__(self, scale: float = 1.0) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((4,), scale), requires_grad=False)
        self.register_buffer("shift", torch.zeros(4))
        self.factor = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x * self.scale + self.shift) * self.factor


class Doubling(Layer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scale * 2


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Layer()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x)


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def replace_block(model: Model) -> None:
    """The old block is freed first: the new one may lie where it lay."""
    model.blocks[CHANGED] = nn.Identity()
    gc.collect()
    model.blocks[CHANGED] = Block()
    model.blocks[CHANGED].inner.factor = 3.0


def replace_dict(model: Model) -> None:
    layer = model.blocks[CHANGED].inner
    layer.__dict__ = {**layer.__dict__, "factor": 3.0}


def of(model: Model) -> Layer:
    return model.blocks[CHANGED].inner  # type: ignore[return-value]


CHANGES: dict[str, Callable[[Model], object]] = {
    "hook": lambda m: of(m).register_forward_hook(lambda module, args, out: out * 2),
    "pre-hook": lambda m: of(m).register_forward_pre_hook(lambda module, args: (args[0] * 2,)),
    "hook, written to the table": lambda m: of(m)._forward_hooks.__setitem__(1, lambda module, args, out: out * 2),
    "hook table replaced": lambda m: setattr(of(m), "_forward_hooks", {1: lambda module, args, out: out * 2}),
    "attribute": lambda m: setattr(of(m), "factor", 3.0),
    "data of another dtype": lambda m: setattr(of(m).scale, "data", torch.ones(4, dtype=torch.float64)),
    "data of another size": lambda m: setattr(of(m).scale, "data", torch.ones(2, 1, 4)),
    "buffer resized": lambda m: of(m).shift.resize_(2, 1, 4).fill_(1.0),
    "requires_grad": lambda m: of(m).scale.requires_grad_(True),
    "class": lambda m: setattr(of(m), "__class__", Doubling),
    "class of the parameter": lambda m: setattr(of(m).scale, "__class__", Loud),
    "parameter replaced": lambda m: of(m)._parameters.__setitem__("scale", nn.Parameter(torch.full((1,), 5.0))),
    "parameter swapped": lambda m: torch.utils.swap_tensors(of(m).scale, nn.Parameter(torch.full((1,), 5.0))),
    "parameter gone": lambda m: of(m)._parameters.__setitem__("scale", None),
    "buffer replaced": lambda m: of(m)._buffers.__setitem__("shift", torch.ones(4, 1)),
    "module replaced": lambda m: m.blocks[CHANGED]._modules.__setitem__("inner", Doubling()),
    "dict replaced": replace_dict,
    "block freed and replaced": replace_block,
    "forward of the instance": lambda m: setattr(of(m), "forward", lambda x: x * 7),
}


class Loud(nn.Parameter):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return super().__torch_function__(func, types, args, kwargs or {}) + 1


def outcome(call: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> object:
    try:
        out = call(x)
    except TypeError as error:
        return str(error)
    return out.tolist(), out.dtype, out.requires_grad, type(out)


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_in_the_middle_is_seen(name: str) -> None:
    model, x = Model(), torch.ones(4)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, example_inputs: object) -> Callable[..., object]:
        graphs.append(graph)
        return graph.forward

    compiled = stator.compile(model, backend=backend)
    before = outcome(model, x)
    for _ in range(4):
        assert outcome(compiled, x) == before
    assert len(graphs) == 1
    CHANGES[name](model)
    after = outcome(model, x)
    assert after != before, "the change changes nothing"
    for _ in range(3):
        assert outcome(compiled, x) == after
    assert len(graphs) > 1 or "gone" in name  # an eager graph would take any tensor: only a second one shows a guard
