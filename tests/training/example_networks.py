"""Train steps of well-known examples, first half: images, sequences, text.

Each factory makes one world, as in `step_programs`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from tests.torch_api.side_by_side import Register, World
from tests.training.step_programs import look_at, values

NETWORKS = Register()


def numbers(high: int, *shape: int, seed: int = 3) -> torch.Tensor:
    return torch.randint(high, shape, generator=torch.Generator().manual_seed(seed))


@NETWORKS
def mnist() -> World:
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2),
                          nn.Dropout(0.25), nn.Flatten(), nn.Linear(16, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 5))
    optimiser = torch.optim.Adadelta(model.parameters(), lr=1.0)
    schedule = torch.optim.lr_scheduler.StepLR(optimiser, step_size=5, gamma=0.7)

    def step(x: Any, y: Any) -> Any:
        model.train()
        optimiser.zero_grad()
        loss = F.nll_loss(F.log_softmax(model(x), dim=1), y)
        loss.backward()
        optimiser.step()
        schedule.step()
        return loss.item()
    return World(step, lambda i: (values(4, 1, 8, 8, seed=i), numbers(5, 4, seed=i)), look_at(model, optimiser))


class VAE(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner, self.mean, self.spread = nn.Linear(12, 8), nn.Linear(8, 3), nn.Linear(8, 3)
        self.outer, self.last = nn.Linear(3, 8), nn.Linear(8, 12)

    def forward(self, x: Any) -> Any:
        hidden = F.relu(self.inner(x))
        mu, logvar = self.mean(hidden), self.spread(hidden)
        std = torch.exp(0.5 * logvar)
        z = mu + torch.randn_like(std) * std
        return torch.sigmoid(self.last(F.relu(self.outer(z)))), mu, logvar


@NETWORKS
def vae() -> World:
    model = VAE()
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step(x: Any) -> Any:
        optimiser.zero_grad()
        again, mu, logvar = model(x)
        loss = F.binary_cross_entropy(again, x, reduction="sum") - 0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        loss.backward()
        optimiser.step()
        return loss.item()
    return World(step, lambda i: (values(4, 12, seed=i).sigmoid(),), look_at(model, optimiser))


@NETWORKS
def dcgan() -> World:
    maker = nn.Sequential(nn.ConvTranspose2d(4, 4, 2, bias=False), nn.BatchNorm2d(4), nn.ReLU(),
                          nn.ConvTranspose2d(4, 1, 2, 2), nn.Tanh())
    judge = nn.Sequential(nn.Conv2d(1, 4, 2, 2), nn.LeakyReLU(0.2), nn.Conv2d(4, 4, 1), nn.BatchNorm2d(4),
                          nn.LeakyReLU(0.2), nn.Conv2d(4, 1, 2), nn.Sigmoid())
    first = torch.optim.Adam(judge.parameters(), lr=2e-3, betas=(0.5, 0.999))
    second = torch.optim.Adam(maker.parameters(), lr=2e-3, betas=(0.5, 0.999))
    criterion = nn.BCELoss()

    def step(real: Any) -> Any:
        judge.zero_grad()
        label = torch.full((real.size(0),), 1.0)
        on_real = criterion(judge(real).view(-1), label)
        on_real.backward()
        fake = maker(torch.randn(real.size(0), 4, 1, 1))
        label.fill_(0.0)
        on_fake = criterion(judge(fake.detach()).view(-1), label)
        on_fake.backward()
        first.step()
        maker.zero_grad()
        label.fill_(1.0)
        loss = criterion(judge(fake).view(-1), label)
        loss.backward()
        second.step()
        return (on_real + on_fake).item(), loss.item()
    return World(step, lambda i: (values(4, 1, 4, 4, seed=i),), look_at(nn.ModuleList([maker, judge]), first, second))


class WordModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.drop, self.table = nn.Dropout(0.2), nn.Embedding(10, 6)
        self.rnn, self.last = nn.LSTM(6, 6, 2, dropout=0.2), nn.Linear(6, 10)
        self.last.weight = self.table.weight

    def forward(self, words: Any, hidden: Any) -> Any:
        out, hidden = self.rnn(self.drop(self.table(words)), hidden)
        return F.log_softmax(self.last(self.drop(out)).view(-1, 10), dim=1), hidden


@NETWORKS
def word_language_model() -> World:
    model = WordModel()
    state = [torch.zeros(2, 3, 6), torch.zeros(2, 3, 6)]

    def step(words: Any, wanted: Any) -> Any:
        model.zero_grad()
        out, hidden = model(words, tuple(each.detach() for each in state))
        state[:] = hidden
        loss = F.nll_loss(out, wanted.view(-1))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for each in model.parameters():
            each.data.add_(each.grad, alpha=-0.5)
        return loss.item()
    return World(step, lambda i: (numbers(10, 5, 3, seed=i), numbers(10, 5, 3, seed=i + 50)),
                 lambda: (look_at(model)(), [each.detach() for each in state]))


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.all, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x: Any) -> Any:
        batch, length, width = x.shape
        q, k, v = (each.view(batch, length, 2, width // 2).transpose(1, 2)
                   for each in self.all(self.first(x)).split(width, dim=2))
        weights = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        weights = weights.masked_fill(torch.tril(torch.ones(length, length)) == 0, float("-inf"))
        mixed = F.dropout(F.softmax(weights, dim=-1), 0.1, self.training) @ v
        x = x + self.out(mixed.transpose(1, 2).contiguous().view(batch, length, width))
        return x + self.wide(self.second(x))


@NETWORKS
def min_gpt() -> World:
    model = nn.ModuleDict({"words": nn.Embedding(11, 8), "places": nn.Embedding(6, 8),
                           "blocks": nn.ModuleList([Block(8) for _ in range(3)]), "norm": nn.LayerNorm(8),
                           "head": nn.Linear(8, 11, bias=False)})
    decayed = [each for each in model.parameters() if each.dim() > 1]
    others = [each for each in model.parameters() if each.dim() <= 1]
    optimiser = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95))

    def step(x: Any, y: Any) -> Any:
        hidden = model["words"](x) + model["places"](torch.arange(x.size(1)))
        for block in model["blocks"]:
            hidden = block(hidden)
        logits = model["head"](model["norm"](hidden))
        loss = F.cross_entropy(logits.view(-1, logits.size(-1)), y.view(-1), ignore_index=-1)
        model.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        return loss
    return World(step, lambda i: (numbers(11, 2, 6, seed=i), numbers(11, 2, 6, seed=i + 50)), look_at(model, optimiser))


@NETWORKS
def style_transfer() -> World:
    features = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).requires_grad_(False).eval()
    image = values(1, 3, 8, 8).requires_grad_()
    content, style = values(1, 3, 8, 8, seed=4), values(1, 3, 8, 8, seed=5)
    optimiser = torch.optim.Adam([image], lr=0.05)

    def gram(x: Any) -> Any:
        flat = x.view(x.size(1), -1)
        return flat @ flat.t() / flat.numel()

    def step(weight: float) -> Any:
        with torch.no_grad():
            image.clamp_(-2, 2)
        optimiser.zero_grad()
        found = features(image)
        loss = F.mse_loss(found, features(content)) + weight * F.mse_loss(gram(found), gram(features(style)))
        loss.backward()
        optimiser.step()
        return loss.item()
    return World(step, lambda i: (100.0,), lambda: (image, image.grad, optimiser.state_dict()))


class Attending(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell = nn.Embedding(9, 6), nn.GRUCell(12, 6)
        self.score, self.last, self.drop = nn.Linear(12, 1), nn.Linear(6, 9), nn.Dropout(0.1)

    def forward(self, word: Any, hidden: Any, encoded: Any) -> Any:
        spread = hidden.unsqueeze(1).expand(-1, encoded.size(1), -1)
        weights = F.softmax(self.score(torch.cat([encoded, spread], 2)).squeeze(2), dim=1)
        context = torch.bmm(weights.unsqueeze(1), encoded).squeeze(1)
        hidden = self.cell(torch.cat([self.drop(self.table(word)), context], 1), hidden)
        return F.log_softmax(self.last(hidden), dim=1), hidden


@NETWORKS
def sequence_to_sequence() -> World:
    table, encoder, decoder = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True), Attending()
    model = nn.ModuleList([table, encoder, decoder])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    forced = [True]

    def step(source: Any, target: Any) -> Any:
        optimiser.zero_grad()
        encoded, hidden = encoder(table(source))
        hidden, word, loss = hidden.squeeze(0), torch.zeros(source.size(0), dtype=torch.long), 0
        for place in range(target.size(1)):
            out, hidden = decoder(word, hidden, encoded)
            loss = loss + F.nll_loss(out, target[:, place])
            word = target[:, place] if forced[0] else out.topk(1)[1].squeeze(1).detach()
        loss.backward()
        optimiser.step()
        forced[0] = not forced[0]
        return loss.item() / target.size(1)
    return World(step, lambda i: (numbers(9, 2, 4, seed=i), numbers(9, 2, 3, seed=i + 50)), look_at(model, optimiser))


class TreeLSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.gates, self.forget = nn.Embedding(7, 5), nn.Linear(10, 15), nn.Linear(5, 5)
        self.judge = nn.Linear(5, 3)

    def forward(self, tree: Any) -> Any:
        word, children = tree
        below = [self(child) for child in children]
        summed = sum((h for h, _ in below), torch.zeros(5))
        i, o, u = self.gates(torch.cat([self.table.weight[word], summed])).chunk(3)
        c = torch.sigmoid(i) * torch.tanh(u) + sum((torch.sigmoid(self.forget(h)) * c for h, c in below), torch.zeros(5))
        return torch.sigmoid(o) * torch.tanh(c), c


@NETWORKS
def tree_lstm() -> World:
    model = TreeLSTM()
    optimiser = torch.optim.Adagrad(model.parameters(), lr=0.05)
    trees = [(0, [(1, []), (2, [(3, []), (4, [])])]), (5, [(6, [])])]

    def step(number: int) -> Any:
        optimiser.zero_grad()
        hidden, _ = model(trees[number])
        loss = F.cross_entropy(model.judge(hidden).unsqueeze(0), torch.tensor([number]))
        loss.backward()
        optimiser.step()
        return loss
    return World(step, lambda i: (i % 2,), look_at(model, optimiser))


@NETWORKS
def speech_with_ctc() -> World:
    model = nn.ModuleList([nn.Conv1d(4, 6, 3, padding=1), nn.LSTM(6, 5, bidirectional=True), nn.Linear(10, 5)])
    optimiser = torch.optim.AdamW(model.parameters(), lr=0.01)
    criterion = nn.CTCLoss(blank=0, zero_infinity=True)

    def step(sound: Any, text: Any) -> Any:
        optimiser.zero_grad()
        heard, _ = model[1](F.relu(model[0](sound)).permute(2, 0, 1))
        logs = F.log_softmax(model[2](heard), dim=2)
        loss = criterion(logs, text, torch.full((2,), 8), torch.full((2,), 3))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimiser.step()
        return loss.item()
    return World(step, lambda i: (values(2, 4, 8, seed=i), numbers(4, 2, 3, seed=i) + 1), look_at(model, optimiser))


@NETWORKS
def super_resolution() -> World:
    model = nn.Sequential(nn.Conv2d(1, 8, 5, padding=2), nn.ReLU(), nn.Conv2d(8, 4, 3, padding=1), nn.PixelShuffle(2))
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)

    def step(small: Any, large: Any) -> Any:
        optimiser.zero_grad()
        loss = F.mse_loss(model(small), large)
        loss.backward()
        optimiser.step()
        return loss.item()
    return World(step, lambda i: (values(2, 1, 5, 5, seed=i), values(2, 1, 10, 10, seed=i)), look_at(model, optimiser))


@NETWORKS
def vision_transformer() -> World:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True, norm_first=True)
    model = nn.ModuleDict({"patch": nn.Conv2d(3, 8, 4, 4), "encoder": nn.TransformerEncoder(layer, 2),
                           "head": nn.Linear(8, 5)})
    model.token = nn.Parameter(torch.zeros(1, 1, 8))
    optimiser = torch.optim.NAdam(model.parameters(), lr=0.01)

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        patches = model["patch"](x).flatten(2).transpose(1, 2)
        encoded = model["encoder"](torch.cat([model.token.expand(x.size(0), -1, -1), patches], 1))
        loss = F.cross_entropy(model["head"](encoded[:, 0]), y, label_smoothing=0.1)
        loss.backward()
        optimiser.step()
        return loss
    return World(step, lambda i: (values(2, 3, 8, 8, seed=i), numbers(5, 2, seed=i)), look_at(model, optimiser))


@NETWORKS
def graph_attention() -> World:
    model = nn.ModuleList([nn.Linear(4, 6, bias=False), nn.Linear(12, 1), nn.Linear(6, 3)])
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    source, target = torch.tensor([0, 1, 2, 3, 4, 0]), torch.tensor([1, 2, 3, 4, 0, 2])
    known = torch.tensor([True, True, False, True, False])

    def step(x: Any, y: Any) -> Any:
        optimiser.zero_grad()
        hidden = model[0](F.dropout(x, 0.2))
        scores = F.leaky_relu(model[1](torch.cat([hidden[source], hidden[target]], 1)).squeeze(1), 0.2).exp()
        total = torch.zeros(5).index_add(0, target, scores)
        mixed = torch.zeros(5, 6).index_add(0, target, hidden[source] * (scores / total[target]).unsqueeze(1))
        loss = F.cross_entropy(model[2](F.elu(mixed))[known], y[known])
        loss.backward()
        optimiser.step()
        return loss
    return World(step, lambda i: (values(5, 4, seed=i), numbers(3, 5, seed=i)), look_at(model, optimiser))
