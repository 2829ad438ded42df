"""Train a small GPT on this repository's own documentation, eagerly and compiled, and draw both loss curves.

    python -m benchmarks.gpt_training [--steps 300] [--backend inductor] [--svg docs/gpt_training.svg]

In: the Markdown of docs/ as one text.  Out: the curves as an SVG, and a line with the largest difference between them.
Both sides start from the same weights and see the same batches; dropout is off, since compilers draw random numbers in
another order.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

import stator

ROOT = Path(__file__).resolve().parents[1]
WIDTH, HEADS, LAYERS, CONTEXT, BATCH = 64, 4, 2, 64, 16


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(self.before(x)).view(batch, length, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


class GPT(nn.Module):
    """A character-level transformer."""

    def __init__(self, vocabulary: int) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(vocabulary, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), targets.flatten())


def documentation() -> torch.Tensor:
    """The text as numbers, one per character."""
    text = "".join(path.read_text() for path in sorted((ROOT / "docs").glob("*.md")))
    alphabet = {character: number for number, character in enumerate(sorted(set(text)))}
    return torch.tensor([alphabet[character] for character in text])


def train(data: torch.Tensor, steps: int, backend: str | None) -> tuple[list[float], float]:
    """The losses, and the median CPU time of a step in milliseconds."""
    torch.manual_seed(0)
    model = GPT(int(data.max()) + 1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, max_lr=3e-3, total_steps=steps)
    batches = torch.Generator().manual_seed(1)
    compiled: Any = (lambda function: function) if backend is None else stator.compile(backend=backend)

    @compiled
    def step(chunk: torch.Tensor) -> torch.Tensor:
        optimiser.zero_grad()
        loss = model(chunk[:, :-1], chunk[:, 1:])
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        schedule.step()
        return loss.detach()

    losses, costs = [], []
    for _ in range(steps):
        started = time.process_time()
        starts = torch.randint(len(data) - CONTEXT - 1, (BATCH,), generator=batches)
        chunk = torch.stack([data[start:start + CONTEXT + 1] for start in starts.tolist()])
        losses.append(step(chunk).item())
        costs.append(time.process_time() - started)
    return losses, statistics.median(costs) * 1000


# ---------------------------------------------------------------------- the plot

LEFT, TOP, WIDE, HIGH = 50, 30, 560, 260


def svg(curves: dict[str, list[float]], colours: dict[str, str], title: str) -> str:
    """Both curves in one frame; the second is drawn dashed over the first."""
    top = max(max(curve) for curve in curves.values())
    steps = max(len(curve) for curve in curves.values())
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 340" font-family="sans-serif" font-size="12">',
             '<rect width="640" height="340" fill="white"/>', f'<text x="{LEFT}" y="18" font-size="14">{title}</text>']
    for mark in range(int(top) + 1):
        y = TOP + HIGH - mark / top * HIGH
        lines.append(f'<line x1="{LEFT}" x2="{LEFT + WIDE}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
                     f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark}</text>')
    for step in range(0, steps + 1, max(1, steps // 6)):
        x = LEFT + step / steps * WIDE
        lines.append(f'<text x="{x:.1f}" y="{TOP + HIGH + 18}" text-anchor="middle">{step}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        points = " ".join(f"{LEFT + i / steps * WIDE:.1f},{TOP + HIGH - loss / top * HIGH:.1f}"
                          for i, loss in enumerate(curve))
        dashes = ' stroke-dasharray="5 5"' if number else ""
        lines.append(f'<polyline fill="none" stroke="{colours[name]}" stroke-width="{3 - number}"{dashes} '
                     f'points="{points}"/>')
        y = TOP + 20 + 18 * number
        lines.append(f'<line x1="420" x2="450" y1="{y}" y2="{y}" stroke="{colours[name]}" stroke-width="3"{dashes}/>'
                     f'<text x="458" y="{y + 4}">{name}</text>')
    lines.append(f'<text x="{LEFT + WIDE / 2}" y="332" text-anchor="middle">step</text></svg>')
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt_training", description=__doc__)
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--backend", default="inductor")
    parser.add_argument("--svg", type=Path, default=ROOT / "docs" / "gpt_training.svg")
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    data = documentation()
    eager, eager_cost = train(data, chosen.steps, None)
    compiled, cost = train(data, chosen.steps, chosen.backend)
    apart = max(abs(a - b) for a, b in zip(eager, compiled, strict=True))
    name = f'stator "{chosen.backend}"'
    title = f"A {LAYERS}-layer GPT on {len(data):,} characters: cross-entropy, largest difference {apart:.4f}"
    chosen.svg.write_text(svg({"eager": eager, name: compiled}, {"eager": "#8ab4f8", name: "#b3261e"}, title))
    print(f"{chosen.steps} steps: loss {eager[0]:.3f} -> {eager[-1]:.4f} eager, "
          f"{compiled[0]:.3f} -> {compiled[-1]:.4f} {name}; largest difference {apart:.5f}; "
          f"median step {eager_cost:.1f} ms of CPU time eager, {cost:.1f} ms compiled")


if __name__ == "__main__":
    main()
