"""Train steps of well-known examples, second half: methods of learning.

Each factory makes one world, as in `step_programs`.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Categorical, Normal
from torch.func import functional_call
from torch.nn.utils import prune

from tests.torch_api.side_by_side import Register, World
from tests.training.example_networks import numbers
from tests.training.step_programs import batch, descent, look_at, network, values

METHODS = Register()


@METHODS
def actor_critic() -> World:
    body, actor, critic = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)
    model = nn.ModuleList([body, actor, critic])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.03)

    def step(states: Any, rewards: list[float]) -> Any:
        saved = []
        for state in states:
            hidden = F.relu(body(state))
            choice = Categorical(F.softmax(actor(hidden), dim=-1))
            saved.append((choice.log_prob(choice.sample()), critic(hidden)))
        total, returns = 0.0, []
        for reward in rewards[::-1]:
            total = reward + 0.99 * total
            returns.insert(0, total)
        wanted = torch.tensor(returns)
        wanted = (wanted - wanted.mean()) / (wanted.std() + 1e-6)
        policy, worth = [], []
        for (log_prob, value), aim in zip(saved, wanted, strict=True):
            policy.append(-log_prob * (aim - value.item()))
            worth.append(F.smooth_l1_loss(value, torch.tensor([aim])))
        optimiser.zero_grad()
        loss = torch.stack(policy).sum() + torch.stack(worth).sum()
        loss.backward()
        optimiser.step()
        return loss.item()
    return World(step, lambda i: (values(3, 4, seed=i), [1.0, 0.5, float(i)]), look_at(model, optimiser))


@METHODS
def time_series_with_lbfgs() -> World:
    model = network()
    optimiser = torch.optim.LBFGS(model.parameters(), lr=0.5, max_iter=3)

    def step(x: Any, y: Any) -> Any:
        def closure() -> Any:
            optimiser.zero_grad()
            loss = F.mse_loss(model(x), y)
            loss.backward()
            return loss
        return optimiser.step(closure)
    return World(step, lambda i: batch(1), look_at(model, optimiser))


@METHODS
def wgan_with_penalty() -> World:
    maker, judge = network(), nn.Sequential(nn.Linear(1, 8), nn.Tanh(), nn.Linear(8, 1))
    first = torch.optim.RMSprop(judge.parameters(), lr=1e-2)
    second = torch.optim.RMSprop(maker.parameters(), lr=1e-2)

    def step(noise: Any, real: Any) -> Any:
        fake = maker(noise).detach()
        share = torch.rand(real.size(0), 1)
        between = (share * real + (1 - share) * fake).requires_grad_(True)
        judged = judge(between)
        slope = torch.autograd.grad(judged, between, torch.ones_like(judged), create_graph=True, retain_graph=True)[0]
        penalty = ((slope.norm(2, dim=1) - 1) ** 2).mean()
        first.zero_grad()
        loss = judge(fake).mean() - judge(real).mean() + 10 * penalty
        loss.backward()
        first.step()
        second.zero_grad()
        made = -judge(maker(noise)).mean()
        made.backward()
        second.step()
        return loss.item(), made.item()
    return World(step, batch, look_at(nn.ModuleList([maker, judge]), first, second))


@METHODS
def maml() -> World:
    model = network()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        outer = 0.0
        for task in range(2):
            fast = dict(model.named_parameters())
            for _ in range(2):
                loss = F.mse_loss(functional_call(model, fast, (x[task::2],)), y[task::2])
                grads = torch.autograd.grad(loss, list(fast.values()), create_graph=True)
                fast = {name: each - 0.1 * grad for (name, each), grad in zip(fast.items(), grads, strict=True)}
            outer = outer + F.mse_loss(functional_call(model, fast, (x,)), y)
        outer.backward()
        optimiser.step()
        return outer.item()
    return World(step, batch, look_at(model, optimiser))


@METHODS
def dqn() -> World:
    policy = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    target = copy.deepcopy(policy)
    optimiser = torch.optim.AdamW(policy.parameters(), lr=1e-2, amsgrad=True)

    def step(state: Any, action: Any, reward: Any, after: Any, going: Any) -> Any:
        chosen = policy(state).gather(1, action)
        worth = torch.zeros(state.size(0))
        with torch.no_grad():
            worth[going] = target(after[going]).max(1).values
        loss = F.smooth_l1_loss(chosen, (worth * 0.9 + reward).unsqueeze(1))
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy.parameters(), 100)
        optimiser.step()
        kept, new = target.state_dict(), policy.state_dict()
        for key in new:
            kept[key] = new[key] * 0.1 + kept[key] * 0.9
        target.load_state_dict(kept)
        return loss
    return World(step, lambda i: (values(5, 4, seed=i), numbers(3, 5, 1, seed=i), values(5, seed=i), values(5, 4, seed=i + 9),
                                  torch.tensor([True, False, True, True, i % 2 == 0])),
                 look_at(nn.ModuleList([policy, target]), optimiser))


@METHODS
def ppo() -> World:
    actor, critic = nn.Linear(4, 2), nn.Linear(4, 1)
    spread = nn.Parameter(torch.zeros(2))
    model = nn.ParameterList([*actor.parameters(), *critic.parameters(), spread])
    optimiser = torch.optim.Adam(model, lr=3e-3, eps=1e-5)

    def step(states: Any, actions: Any, old: Any, gains: Any) -> Any:
        losses = []
        for rows in torch.randperm(states.size(0)).split(3):
            policy = Normal(actor(states[rows]), spread.exp())
            ratio = (policy.log_prob(actions[rows]).sum(1) - old[rows]).exp()
            gain = (gains[rows] - gains[rows].mean()) / (gains[rows].std() + 1e-8)
            first = torch.max(-gain * ratio, -gain * ratio.clamp(0.8, 1.2)).mean()
            second = 0.5 * ((critic(states[rows]).squeeze(1) - gains[rows]) ** 2).mean()
            loss = first + 0.5 * second - 0.01 * policy.entropy().sum(1).mean()
            optimiser.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model, 0.5)
            optimiser.step()
            losses.append(loss.detach())
        return losses
    return World(step, lambda i: (values(6, 4, seed=i), values(6, 2, seed=i), values(6, seed=i), values(6, seed=i + 9)),
                 look_at(model, optimiser))


@METHODS
def mixture_of_experts() -> World:
    gate, experts = nn.Linear(4, 3), nn.ModuleList([nn.Linear(4, 4) for _ in range(3)])
    model = nn.ModuleList([gate, experts])
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)

    def loss_of(x: Any, y: Any) -> Any:
        scores = F.softmax(gate(x), dim=1)
        weights, chosen = scores.topk(2, dim=1)
        mask = F.one_hot(chosen, 3).permute(2, 1, 0).float()
        out = torch.zeros_like(x)
        for number, expert in enumerate(experts):
            share = (mask[number] * weights.t()).sum(0).unsqueeze(1)
            out = out + expert(x) * share
        balance = (scores.mean(0) * mask.sum((1, 2)) / x.size(0)).sum() * 3
        return F.mse_loss(out.sum(1, keepdim=True), y) + 0.01 * balance
    return descent(model, optimiser, loss_of)


@METHODS
def routed_experts() -> World:
    """Each expert computes its own rows: their number is data."""
    gate, experts = nn.Linear(4, 2), nn.ModuleList([nn.Linear(4, 1) for _ in range(2)])
    model = nn.ModuleList([gate, experts])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def loss_of(x: Any, y: Any) -> Any:
        scores = F.softmax(gate(x), dim=1)
        best, chosen = scores.max(1)
        out = torch.zeros(x.size(0), 1)
        for number, expert in enumerate(experts):
            rows = (chosen == number).nonzero().squeeze(1)
            out = out.index_add(0, rows, expert(x[rows]) * best[rows].unsqueeze(1))
        return F.mse_loss(out, y)
    return descent(model, optimiser, loss_of)


@METHODS
def vq_vae() -> World:
    inner, outer, codes = nn.Linear(6, 4), nn.Linear(4, 6), nn.Embedding(5, 4)
    model = nn.ModuleList([inner, outer, codes])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(x: Any) -> Any:
        z = inner(x)
        distances = z.pow(2).sum(1, keepdim=True) + codes.weight.pow(2).sum(1) - 2 * z @ codes.weight.t()
        nearest = codes(distances.argmin(1))
        code_loss = F.mse_loss(nearest, z.detach()) + 0.25 * F.mse_loss(z, nearest.detach())
        return F.mse_loss(outer(z + (nearest - z).detach()), x) + code_loss
    return descent(model, optimiser, loss_of, lambda i: (values(4, 6, seed=i),))


@METHODS
def normalizing_flow() -> World:
    layers = nn.ModuleList([nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(3)])
    optimiser = torch.optim.Adamax(layers.parameters(), lr=0.01)
    prior = Normal(torch.zeros(4), torch.ones(4))

    def loss_of(x: Any) -> Any:
        total = torch.zeros(x.size(0))
        for layer in layers:
            first, second = x.chunk(2, 1)
            scale, shift = layer(first).chunk(2, 1)
            scale = torch.tanh(scale)
            x = torch.cat([second * scale.exp() + shift, first], 1)
            total = total + scale.sum(1)
        return -(prior.log_prob(x).sum(1) + total).mean()
    return descent(layers, optimiser, loss_of, lambda i: (values(5, 4, seed=i),))


@METHODS
def boltzmann_machine() -> World:
    model = nn.ParameterDict({"weight": values(4, 6) * 0.1, "seen": torch.zeros(6), "hidden": torch.zeros(4)})
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)

    def energy(v: Any) -> Any:
        return -(v @ model["seen"]) - F.softplus(v @ model["weight"].t() + model["hidden"]).sum(1)

    def step(v: Any) -> Any:
        with torch.no_grad():
            sampled = v
            for _ in range(2):
                hidden = torch.bernoulli(torch.sigmoid(sampled @ model["weight"].t() + model["hidden"]))
                sampled = torch.bernoulli(torch.sigmoid(hidden @ model["weight"] + model["seen"]))
        loss = energy(v).mean() - energy(sampled).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        return loss.item()
    return World(step, lambda i: ((values(4, 6, seed=i) > 0).float(),), look_at(model, optimiser))


@METHODS
def word2vec() -> World:
    inner, outer = nn.Embedding(12, 5), nn.Embedding(12, 5)
    model = nn.ModuleList([inner, outer])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.2)

    def loss_of(center: Any, context: Any) -> Any:
        noise = torch.randint(0, 12, (center.size(0), 3))
        at = inner(center)
        close = F.logsigmoid((at * outer(context)).sum(1))
        far = F.logsigmoid(-torch.bmm(outer(noise), at.unsqueeze(2)).squeeze(2)).sum(1)
        return -(close + far).mean()
    return descent(model, optimiser, loss_of, lambda i: (numbers(12, 4, seed=i), numbers(12, 4, seed=i + 50)))


@METHODS
def word2vec_with_sparse_gradients() -> World:
    table = nn.Embedding(12, 5, sparse=True)
    optimiser = torch.optim.SparseAdam(table.parameters(), lr=0.05)

    def loss_of(center: Any, context: Any) -> Any:
        return -F.logsigmoid((table(center) * table(context)).sum(1)).mean()
    return descent(table, optimiser, loss_of, lambda i: (numbers(12, 4, seed=i), numbers(12, 4, seed=i + 50)),
                   lambda: dict(table.state_dict()))


@METHODS
def byol() -> World:
    online, guess = network(nn.BatchNorm1d(8)), nn.Linear(1, 1)
    target = copy.deepcopy(online).requires_grad_(False)
    model = nn.ModuleList([online, guess])
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)

    def step(first: Any, second: Any) -> Any:
        with torch.no_grad():
            aims = target(second), target(first)
        guesses = guess(online(first)), guess(online(second))
        loss = sum(2 - 2 * F.cosine_similarity(a, b.detach(), dim=0).mean() for a, b in zip(guesses, aims, strict=True))
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        for kept, new in zip(target.parameters(), online.parameters(), strict=True):
            kept.data = kept.data * 0.99 + new.data * 0.01
        return loss
    return World(step, lambda i: (values(6, 4, seed=i), values(6, 4, seed=i + 9)),
                 look_at(nn.ModuleList([model, target]), optimiser))


@METHODS
def stochastic_weight_averaging() -> World:
    model = network()
    average = torch.optim.swa_utils.AveragedModel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.swa_utils.SWALR(optimiser, swa_lr=0.05, anneal_epochs=4)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimiser.step()
        average.update_parameters(model)
        schedule.step()
        return loss
    return World(step, batch, look_at(nn.ModuleList([model, average]), optimiser))


@METHODS
def scaled_gradients() -> World:
    model = network()
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0 ** 8, growth_interval=4)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = F.mse_loss(model(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimiser)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimiser)
        scaler.update()
        return loss
    return World(step, batch, lambda: (look_at(model, optimiser)(), scaler.get_scale()))


@METHODS
def pruned() -> World:
    model = network()
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    prune.random_unstructured(model[2], "bias", amount=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(x: Any, y: Any) -> Any:
        return F.mse_loss(model(x), y)
    return descent(model, optimiser, loss_of)


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, share: float) -> Any:
        ctx.share = share
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad.neg() * ctx.share, None


@METHODS
def domain_adaptation() -> World:
    body, label, domain = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 2)
    model = nn.ModuleList([body, label, domain])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def loss_of(x: Any, y: Any, other: Any) -> Any:
        here, there = torch.relu(body(x)), torch.relu(body(other))
        guessed = domain(Reversed.apply(torch.cat([here, there]), 0.5))
        where = torch.cat([torch.zeros(len(x)), torch.ones(len(other))]).long()
        return F.cross_entropy(label(here), y) + F.cross_entropy(guessed, where)
    return descent(model, optimiser, loss_of, lambda i: (values(4, 4, seed=i), numbers(2, 4, seed=i), values(3, 4, seed=i)))


@METHODS
def diffusion() -> World:
    model, average = nn.Sequential(nn.Linear(5, 16), nn.SiLU(), nn.Linear(16, 4)), [values(1)]
    kept = torch.linspace(0.99, 0.1, 10)
    optimiser = torch.optim.RAdam(model.parameters(), lr=0.01)

    def step(x: Any) -> Any:
        time = torch.randint(0, 10, (x.size(0),))
        noise = torch.randn_like(x)
        share = kept[time].unsqueeze(1)
        noisy = share.sqrt() * x + (1 - share).sqrt() * noise
        loss = F.mse_loss(model(torch.cat([noisy, time.unsqueeze(1) / 10], 1)), noise)
        optimiser.zero_grad(set_to_none=False)
        loss.backward()
        optimiser.step()
        average[0] = 0.9 * average[0] + 0.1 * loss.detach()
        return loss.item()
    return World(step, lambda i: (values(6, 4, seed=i),), lambda: (look_at(model, optimiser)(), average))


@METHODS
def distillation() -> World:
    teacher, student = network(nn.Linear(8, 8)).eval(), network()
    optimiser = torch.optim.ASGD(student.parameters(), lr=0.05)

    def loss_of(x: Any, y: Any) -> Any:
        with torch.inference_mode():
            aim = teacher(x)
        guess = student(x)
        return 0.5 * F.mse_loss(guess, aim.clone()) + 0.5 * F.mse_loss(guess, y)
    return descent(student, optimiser, loss_of)
