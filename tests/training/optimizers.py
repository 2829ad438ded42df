"""Whole steps with every optimiser, beside eager.

    python -m tests.training.optimizers [NAMES] [--backend eager] [--steps 6]

In: the optimisers of torch.optim in each of their variants, of transformers, timm and torchao where they are installed, and two
written by hand.  Out: a line for each: graphs and causes of breaks in six steps of a small network, and whether losses,
parameters, gradients and the state of the optimiser equal those of eager (bit for bit with backend "eager").
"""

from __future__ import annotations

import argparse
import importlib.util
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from stator import events
from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import batch, descent, look_at, network

VARIANTS = ("foreach", "fused", "capturable", "differentiable")
TOLERANCE = {"eager": 0.0, "aot_eager": 1e-5, "inductor": 1e-4}
RATES = {"Adadelta": 1.0, "Rprop": 0.01, "Adafactor": 0.05, "LBFGS": 0.1}
Make = Callable[[], World]


class Signed(torch.optim.Optimizer):
    """Signs of averaged gradients, as Lion takes them."""

    def __init__(self, parameters: Any, lr: float = 0.01, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(parameters, {"lr": lr, "betas": betas})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            first, second = group["betas"]
            for each in group["params"]:
                if each.grad is None:
                    continue
                state = self.state[each]
                if not state:
                    state["mean"], state["step"] = torch.zeros_like(each), 0
                state["step"] += 1
                update = state["mean"].mul(first).add(each.grad, alpha=1 - first).sign_()
                each.add_(update, alpha=-group["lr"] / (1 + 0.1 * state["step"]))
                state["mean"].mul_(second).add_(each.grad, alpha=1 - second)


class Momentum:
    """No torch.optim.Optimizer: a list of velocities."""

    def __init__(self, parameters: Any, lr: float = 0.1) -> None:
        self.parameters, self.lr = list(parameters), lr
        self.velocities = [torch.zeros_like(each) for each in self.parameters]

    def zero_grad(self) -> None:
        for each in self.parameters:
            each.grad = None

    def step(self) -> None:
        with torch.no_grad():
            for each, velocity in zip(self.parameters, self.velocities, strict=True):
                velocity.mul_(0.9).add_(each.grad)
                each -= self.lr * velocity
        self.lr *= 0.99

    def state_dict(self) -> Any:
        return self.velocities, self.lr


def trained(make: Callable[[Any], Any]) -> World:
    model = network()
    return descent(model, make(model.parameters()), lambda x, y: F.mse_loss(model(x), y))


def trained_matrices(make: Callable[[Any], Any]) -> World:
    """Optimisers that take matrices alone."""
    model = nn.Sequential(nn.Linear(4, 8, bias=False), nn.Tanh(), nn.Linear(8, 1, bias=False))
    return descent(model, make(model.parameters()), lambda x, y: F.mse_loss(model(x), y))


def trained_wide(make: Callable[[Any], Any]) -> World:
    """A weight that is large enough for a state of few bits."""
    model = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1))
    return descent(model, make(model.parameters()), lambda x, y: F.mse_loss(model(x), y))


def trained_by_closure(make: Callable[[Any], Any]) -> World:
    model = network()
    optimiser = make(model.parameters())

    def step(x: Any, y: Any) -> Any:
        def closure() -> Any:
            optimiser.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        return optimiser.step(closure)
    return World(step, batch, look_at(model, optimiser))


def trained_table(make: Callable[[Any], Any]) -> World:
    table = nn.Embedding(10, 4, sparse=True)
    return descent(table, make(table.parameters()), lambda words: table(words).pow(2).sum(),
                   lambda i: (torch.tensor([1, 2, i % 10]),))


WAYS = {"LBFGS": trained_by_closure, "SparseAdam": trained_table, "Muon": trained_matrices}


def of_torch() -> Iterator[tuple[str, Make]]:
    for name, cls in sorted(vars(torch.optim).items()):
        if not (isinstance(cls, type) and issubclass(cls, torch.optim.Optimizer)) or cls is torch.optim.Optimizer:
            continue
        taken = inspect.signature(cls).parameters
        variants = [each for each in VARIANTS if each in taken]
        options: list[dict[str, Any]] = [{}] + [{each: True} for each in variants]
        if "foreach" in variants:
            options[0]["foreach"] = False
        if "lr" in taken and name not in ("LBFGS", "SparseAdam"):
            options.append({"lr": torch.tensor(0.01)})
        for chosen in options:
            given = {"lr": RATES.get(name, 0.01), **chosen}
            text = ", ".join(f"{key}={'tensor' if isinstance(value, torch.Tensor) else value}"
                             for key, value in chosen.items())
            yield f"{name}({text})", lambda cls=cls, given=given, name=name: WAYS.get(name, trained)(
                lambda parameters: cls(parameters, **given))


def of_libraries() -> Iterator[tuple[str, Make]]:
    yield "Signed", lambda: trained(Signed)
    yield "Momentum", lambda: trained(Momentum)
    if importlib.util.find_spec("transformers") is not None:
        from transformers.optimization import Adafactor
        yield "transformers.Adafactor", lambda: trained(Adafactor)
        yield "transformers.Adafactor(lr)", lambda: trained(
            lambda parameters: Adafactor(parameters, lr=0.01, relative_step=False, beta1=0.9))
    if importlib.util.find_spec("timm") is not None:
        from tests.models.torchvision_ops import declare_missing
        declare_missing()
        from timm.optim import create_optimizer_v2, list_optimizers
        for name in list_optimizers(exclude_filters=["bnb*", "apex*", "fused*"]):
            yield f"timm.{name}", lambda name=name: trained(
                lambda parameters: create_optimizer_v2(list(parameters), opt=name, lr=0.01))


def of_torchao() -> Iterator[tuple[str, Make]]:
    """Their step compiles the update of each parameter by torch.compile: see `main`."""
    if importlib.util.find_spec("torchao") is not None:
        from torchao import optim
        for name in ("_AdamW", "Adam8bit", "AdamW8bit", "Adam4bit", "AdamW4bit", "AdamFp8", "AdamWFp8"):
            yield f"torchao.{name}", lambda name=name: trained_wide(
                lambda parameters: getattr(optim, name)(parameters, lr=0.01))


def outcome(make: Make, steps: int, backend: str) -> tuple[str, int, list[str]]:
    """The verdict, graphs, and causes of breaks."""
    try:
        make()
    except Exception as error:
        return f"cannot be made: {' '.join(str(error).split())[:60]}", 0, []
    try:
        report = compare(make, steps, backend, TOLERANCE[backend])
    except AssertionError as difference:
        return f"DIFFERS: {' '.join(str(difference).split())[:200]}", 0, []
    graphs = len([event for event in report.of(events.CaptureFinished) if event.graph is not None])
    return "equal", graphs, list(dict.fromkeys(cause[:100] for cause in report.causes))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="beginnings of names")
    parser.add_argument("--backend", default="eager")
    parser.add_argument("--steps", type=int, default=6)
    chosen = parser.parse_args()
    whole = equal = count = 0
    for name, make in [*of_torch(), *of_libraries(), *of_torchao()]:
        if chosen.names and not name.startswith(tuple(chosen.names)):
            continue
        with torch.compiler.set_stance("force_eager"):  # or the side of eager would be Inductor's, for torchao
            verdict, graphs, causes = outcome(make, chosen.steps, chosen.backend)
        if verdict.startswith("cannot"):
            print(f"{name:38} {verdict}", flush=True)
            continue
        count, equal, whole = count + 1, equal + (verdict == "equal"), whole + (verdict == "equal" and not causes)
        print(f"{name:38} {verdict:6} {graphs:3} graphs, {len(causes)} causes of breaks  {'; '.join(causes)}", flush=True)
    print(f"{chosen.backend}: {count} optimisers, {whole} whole, {equal} equal to eager")


if __name__ == "__main__":
    main()
