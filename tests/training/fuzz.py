"""Random train steps beside eager.

    python -m tests.training.fuzz --seeds 0:1000 --minutes 10 --backends eager aot_eager

A seed decides the model, the loss, the optimiser, the form of the step and what changes between calls: frozen
parameters, dropped and shared gradients, evaluation mode, batch sizes, calls whose backward pass raises (a saved tensor
that was written to, a graph that was freed, a write to a leaf). Compared after each call, as in `step_programs`.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from tests.torch_api.side_by_side import World, compare
from tests.training.step_programs import look_at, values

WIDTH = 4
TOLERANCE = {"eager": 0.0, "aot_eager": 1e-4}


@dataclass
class FuzzedWorld(World):
    autocast: bool = False  # compilers round bfloat16 elsewhere


class Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, by: float) -> Any:
        ctx.by = by
        ctx.save_for_backward(x)
        return x * by

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        x, = ctx.saved_tensors
        return grad * ctx.by + x * 0.01, None


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return x + self.inner(x)


class Again(nn.Module):
    """A checkpoint of a layer."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        return checkpoint(self.inner, x, use_reentrant=False)


class Recurrent(nn.Module):
    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.inner = kind(WIDTH, WIDTH)

    def forward(self, x: Any) -> Any:
        return self.inner(x.unsqueeze(0))[0].squeeze(0)


class Watched(nn.Module):
    """A layer with full backward hooks, one of which changes gradients."""

    def __init__(self, inner: nn.Module, side: str) -> None:
        super().__init__()
        self.inner = inner
        if side != "output":
            inner.register_full_backward_hook(lambda module, grads, _: tuple(
                None if each is None else each * 0.5 for each in grads))
        if side != "input":
            inner.register_full_backward_pre_hook(lambda module, grads: tuple(each.clamp(-0.5, 0.5) for each in grads))

    def forward(self, x: Any) -> Any:
        return self.inner(x)


class Packed(nn.Module):
    """A layer under hooks on saved tensors."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved * 1.0, lambda packed: packed):
            return self.inner(x).tanh()


class Table(nn.Module):
    """Rows of a table, whose leaf is used twice."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, WIDTH)

    def forward(self, x: Any) -> Any:
        return x + self.rows(torch.arange(len(x)) % 5) + self.rows.weight.sum() * 0.1


class SparseTable(nn.Module):
    """Rows of a table whose gradient is sparse."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(5, WIDTH, sparse=True)

    def forward(self, x: Any) -> Any:
        return x + self.rows(torch.arange(len(x)) * 2 % 5)


class Branching(nn.Module):
    """A layer behind a branch on data: skipped at random, or repaired where it is large."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.inner, self.kind = nn.Linear(WIDTH, WIDTH), kind

    def forward(self, x: Any) -> Any:
        if self.kind == "skipped" and torch.rand([]) < 0.3:
            return x
        x = self.inner(x)
        if self.kind == "repaired" and not (x < 1.5).all():
            x = x.clamp(-1.5, 1.5)
        if self.kind == "scaled" and x.sum() > 0:
            x = self.inner(x)
        return x


class Calls(nn.Module):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


LAYERS: list[Callable[[random.Random], nn.Module]] = [
    lambda r: nn.Linear(WIDTH, WIDTH, bias=r.random() < 0.7), lambda r: nn.LayerNorm(WIDTH), lambda r: nn.Tanh(),
    lambda r: nn.BatchNorm1d(WIDTH), lambda r: nn.Dropout(r.choice([0.0, 0.3, 0.5])), lambda r: nn.GELU(),
    lambda r: nn.ReLU(inplace=r.random() < 0.3), lambda r: Residual(nn.Linear(WIDTH, WIDTH)),
    lambda r: Again(nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh())), lambda r: Recurrent(r.choice([nn.GRU, nn.LSTM])),
    lambda r: nn.PReLU(), lambda r: Calls(lambda x: Scaled.apply(x, 0.5)), lambda r: Calls(lambda x: x.detach() * 0.1 + x),
    lambda r: nn.utils.parametrizations.weight_norm(nn.Linear(WIDTH, WIDTH)), lambda r: nn.Softmax(dim=1),
    lambda r: Watched(nn.Linear(WIDTH, WIDTH), r.choice(["input", "output", "both"])), lambda r: Packed(nn.Linear(WIDTH, WIDTH)),
    lambda r: Calls(lambda x: x.clone().mul_(0.5).add_(x)), lambda r: Calls(lambda x: torch.where(x > 0, x, x * 0.1)),
    lambda r: nn.Sequential(nn.Unflatten(1, (2, 2)), nn.Conv1d(2, 2, 1), nn.Flatten()), lambda r: Table(),
    lambda r: Branching(r.choice(["skipped", "repaired", "scaled"])),
]
LOSSES: list[Callable[[Any, Any], Any]] = [
    F.mse_loss, F.l1_loss, F.smooth_l1_loss, lambda a, b: ((a - b) ** 2).sum(1).mean(),
    lambda a, b: F.cross_entropy(a, b.argmax(1)), lambda a, b: -F.cosine_similarity(a, b, dim=1).mean(),
    lambda a, b: F.kl_div(F.log_softmax(a, 1), b.softmax(1), reduction="batchmean"),
]
OPTIMISERS: list[Callable[[Any, random.Random], Any]] = [
    lambda p, r: torch.optim.SGD(p, 0.1, momentum=r.choice([0, 0.9]), foreach=r.choice([None, True, False])),
    lambda p, r: torch.optim.Adam(p, 0.01, amsgrad=r.random() < 0.3, foreach=r.choice([None, True, False])),
    lambda p, r: torch.optim.AdamW(p, 0.01, weight_decay=0.1), lambda p, r: torch.optim.RMSprop(p, 0.01, centered=True),
    lambda p, r: torch.optim.Adagrad(p, 0.05), lambda p, r: torch.optim.Adamax(p, 0.01),
    lambda p, r: torch.optim.NAdam(p, 0.01), lambda p, r: torch.optim.Rprop(p, 0.01),
    lambda p, r: torch.optim.Adadelta(p), lambda p, r: torch.optim.RAdam(p, 0.01), lambda p, r: torch.optim.ASGD(p, 0.05),
    lambda p, r: torch.optim.Adam(p, 0.01, fused=True), lambda p, r: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    lambda p, r: torch.optim.AdamW(p, torch.tensor(0.01), foreach=r.choice([None, False])),
    lambda p, r: torch.optim.Adafactor(p, 0.05),
    lambda p, r: torch.optim.SGD([{"params": p[::2], "lr": 0.05}, {"params": p[1::2]}], 0.1, weight_decay=0.01),
]


SPARSE_OPTIMISERS: list[Callable[[Any], Any]] = [
    lambda p: torch.optim.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, foreach=False),
    lambda p: torch.optim.Adagrad(p, 0.05, lr_decay=0.1), lambda p: torch.optim.Adagrad(p, 0.05, foreach=True)]
FIRST_SPARSE = 70000


def make_world(seed: int) -> FuzzedWorld:
    r = random.Random(seed)
    torch.manual_seed(seed)
    layers = [r.choice(LAYERS)(r) for _ in range(r.randint(1, 4))] + [nn.Linear(WIDTH, WIDTH)]
    if r.random() < 0.2:
        layers.append(layers[-1])  # tied
    other = random.Random(f"sparse {seed}")  # a stream of its own: older seeds make the programs that they made
    sparse = seed >= FIRST_SPARSE and other.random() < 0.15
    if sparse:
        layers.insert(other.randrange(len(layers)), SparseTable())
    model = nn.Sequential(*layers)
    parameters = list(model.parameters())
    optimiser = r.choice(OPTIMISERS)(parameters, r)
    if sparse and other.random() < 0.8:
        optimiser = other.choice(SPARSE_OPTIMISERS)(parameters)
    loss_of, form = r.choice(LOSSES), {name: r.random() < share for name, share in {
        "accumulate": 0.2, "twice": 0.15, "clip": 0.3, "penalty": 0.15, "hook": 0.15, "leaf hook": 0.1, "keep": 0.1,
        "inputs": 0.1, "average": 0.2, "look": 0.2, "detached": 0.3, "number": 0.3, "set_to_none": 0.7, "zero last": 0.3,
        "by hand": 0.15, "autocast": 0.1, "two losses": 0.15, "inference": 0.1, "post hook": 0.05,
        "passing hook": 0.1, "second order": 0.07, "scaler": 0.1, "schedule": 0.2, "halved": 0.15, "skip": 0.1,
        "closure": 0.08, "clip value": 0.1, "never zero": 0.08, "by None": 0.1, "anomaly": 0.04, "toggle": 0.08,
        "history": 0.06}.items()}
    schedule = r.choice([
        lambda: torch.optim.lr_scheduler.StepLR(optimiser, 2, 0.5), lambda: torch.optim.lr_scheduler.LinearLR(optimiser),
        lambda: torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 5)])() if form["schedule"] else None
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=2, enabled=form["scaler"])
    average = [each.detach().clone() for each in parameters]
    seen: list[Any] = []
    if form["second order"]:
        form.update({"twice": False, "set_to_none": True, "detached": True})
    if form["scaler"]:
        form.update({"by hand": False, "two losses": False, "inputs": False, "second order": False})
    if form["leaf hook"]:
        parameters[0].register_hook(lambda grad: seen.append(1) or grad * 0.5)
    if form["post hook"]:
        parameters[-1].register_post_accumulate_grad_hook(lambda leaf: seen.append(leaf.grad.sum()))
    freezes, drops, evals = ([r.random() < share for _ in range(8)] for share in (0.2, 0.2, 0.15))
    hooks, moves, rates = ([r.random() < share for _ in range(8)] for share in (0.1, 0.1, 0.1))
    handles: list[Any] = []
    errors = [r.choice(["written", "freed", "leaf"]) if r.random() < 0.06 else "" for _ in range(8)]
    shares = [r.random() < 0.05 for _ in range(8)]
    now: dict[str, Any] = {"error": "", "history": []}
    sizes = [r.choice([4, 4, 4, 6]) for _ in range(8)]

    def losses(x: Any, y: Any) -> Any:
        if form["inference"]:
            with torch.inference_mode():
                model(x)
        with torch.autocast("cpu", torch.bfloat16, enabled=form["autocast"]):
            out = model(x)
        out = out.float()
        if form["keep"]:
            out.retain_grad()
        if form["hook"] and out.requires_grad:
            out.register_hook(lambda grad: grad.clamp(-0.1, 0.1))
        loss = loss_of(out, y)
        if now["error"] == "written":
            bent = out.tanh()
            loss = loss + bent.sum()
            bent.mul_(2.0)
        if form["penalty"]:
            slopes = torch.autograd.grad(loss, [each for each in parameters if each.requires_grad], create_graph=True,
                                         allow_unused=True)
            loss = loss + 0.01 * sum(each.pow(2).sum() for each in slopes if each is not None)
        return out, loss

    def step(x: Any, y: Any) -> Any:
        if form["by None"]:
            for each in parameters:
                each.grad = None
        elif not form["zero last"] and not form["never zero"]:
            optimiser.zero_grad(set_to_none=form["set_to_none"])
        if form["toggle"]:
            parameters[0].requires_grad_(not parameters[0].requires_grad)
        if now["error"] == "leaf":
            parameters[-1].mul_(0.9)
        total, passing = 0, None
        if form["passing hook"] and parameters[-1].requires_grad:
            passing = parameters[-1].register_hook(lambda grad: grad + 0.01)
        for part, aim in zip(x.chunk(2), y.chunk(2), strict=True) if form["accumulate"] else [(x, y)]:
            out, loss = losses(part, aim)
            if form["two losses"]:
                torch.autograd.backward([loss, (out ** 2).mean()])
            elif form["inputs"]:
                loss.backward(inputs=[each for each in parameters if each.requires_grad][-2:])
            else:
                if form["scaler"]:
                    loss = scaler.scale(loss)
                with torch.autograd.set_detect_anomaly(True) if form["anomaly"] else contextlib.nullcontext():
                    loss.backward(retain_graph=True if form["twice"] else None, create_graph=form["second order"])
                if form["twice"] or now["error"] == "freed":
                    loss.backward()
            total = total + loss.detach()
        if passing is not None:
            passing.remove()
        if form["scaler"]:
            scaler.unscale_(optimiser)
        if form["halved"]:
            for each in parameters:
                if each.grad is not None:
                    each.grad = each.grad * 0.5 if each.grad.dim() > 1 else each.grad.mul_(0.5)
        found = [None if each.grad is None else each.grad.clone() for each in parameters] if form["look"] else None
        norm = nn.utils.clip_grad_norm_(parameters, 0.5) if form["clip"] else None
        if form["clip value"]:
            nn.utils.clip_grad_value_(parameters, 0.05)
        if form["by hand"]:
            with torch.no_grad():
                for each in parameters:
                    if each.grad is not None:
                        each -= 0.1 * each.grad
        elif form["scaler"]:
            scaler.step(optimiser)
            scaler.update()
        elif not form["skip"] or norm is None or norm < 0.6:
            optimiser.step()
        if form["history"]:
            now["history"].append(total)
        if schedule is not None:
            schedule.step()
        if form["average"]:
            with torch.no_grad():
                for kept, new in zip(average, parameters, strict=True):
                    kept.lerp_(new, 0.1)
        if form["zero last"]:
            optimiser.zero_grad(set_to_none=form["set_to_none"])
        kept_grad = out.grad if form["keep"] else None
        return total.item() if form["number"] else total if form["detached"] else loss, found, norm, kept_grad

    def arguments(number: int) -> tuple[Any, ...]:
        place = number % 8
        for spot, each in enumerate(parameters[:-1]):
            each.requires_grad_(not (freezes[place] and spot % 2 == 0))
        if drops[place]:
            parameters[-1].grad = None
        model.train(not evals[place])
        if hooks[place] and parameters[0].requires_grad:
            handles.append(parameters[0].register_hook(lambda grad: grad * 0.7))
        elif handles:
            handles.pop().remove()
        if moves[place]:
            parameters[-1].data = parameters[-1].data.clone()
        if rates[place]:
            optimiser.param_groups[0]["lr"] *= 0.9
        if shares[place] and parameters[0].shape == parameters[-1].shape:
            parameters[0].grad = parameters[-1].grad
        now["error"] = errors[place]
        return values(sizes[place], WIDTH, seed=number), values(sizes[place], WIDTH, seed=number + 100)

    def by_closure(x: Any, y: Any) -> Any:
        def closure() -> Any:
            optimiser.zero_grad()
            loss = losses(x, y)[1]
            loss.backward()
            return loss
        return optimiser.step(closure).detach()

    return FuzzedWorld(by_closure if form["closure"] else step, arguments, lambda: (
        look_at(model, optimiser)(), average, list(seen), scaler.get_scale(), list(now["history"])), form["autocast"])


def run_seed(seed: int, backend: str, calls: int = 4) -> tuple[str, list[str]]:
    """The verdict of one seed, and the causes of its breaks."""
    try:
        rounded = backend != "eager" and make_world(seed).autocast
        report = compare(lambda: make_world(seed), calls, backend, 1e-2 if rounded else TOLERANCE[backend])
    except AssertionError as difference:
        return "wrong", [str(difference)]
    except Exception:
        return "error", [traceback.format_exc()]
    return "whole" if not report.causes else "broken", report.causes


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0:1000")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--backends", nargs="+", default=["eager"])
    chosen = parser.parse_args()
    first, last = map(int, chosen.seeds.split(":"))
    counts: Counter[str] = Counter()
    reasons: Counter[str] = Counter()
    end = time.monotonic() + 60 * chosen.minutes
    for seed in range(first, last):
        if time.monotonic() > end:
            break
        backend = chosen.backends[seed % len(chosen.backends)]
        verdict, causes = run_seed(seed, backend)
        counts[verdict] += 1
        reasons.update({cause[:100] for cause in causes} if verdict == "broken" else ())
        if verdict in ("wrong", "error"):
            text = " ".join(causes[0].split())
            print(f"{seed} {backend} {verdict}: {text[:600] if verdict == 'wrong' else text[-1200:]}", flush=True)
    print(f"{sum(counts.values())} programs: {dict(counts)}")
    for reason, count in reasons.most_common(12):
        print(f"{count:5} {reason}")


if __name__ == "__main__":
    main()
