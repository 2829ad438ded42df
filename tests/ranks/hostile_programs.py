"""Programs that nobody tuned for: uneven ranks, handles that travel, hooks, handlers, views, groups made inside."""

from __future__ import annotations

import contextlib

import torch
import torch.distributed as dist

import stator
from tests.ranks.programs import built, program, values


@program
def branch_of_rank_same_collective(x):
    if dist.get_rank() % 2:
        y = x * 3
        dist.all_reduce(y)
    else:
        y = x.sin()
        dist.all_reduce(y)
    return y


@program
def uneven_gather(x):
    """Each rank has another number of rows: sizes are exchanged, rows padded."""
    rows = dist.get_rank() + 1
    mine = x[:rows]
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([rows]))
    padded = torch.zeros(4, 4)
    padded[:rows] = mine
    parts = [torch.empty(4, 4) for _ in sizes]
    dist.all_gather(parts, padded)
    return torch.stack(parts), torch.cat(sizes)


@program(whole=False)
def uneven_gather_by_item(x):
    rows = dist.get_rank() + 1
    sizes = [torch.zeros(1, dtype=torch.long) for _ in range(dist.get_world_size())]
    dist.all_gather(sizes, torch.tensor([rows]))
    counts = [int(each.item()) for each in sizes]
    padded = torch.zeros(max(counts), 4)
    padded[:rows] = x[:rows]
    parts = [torch.empty(max(counts), 4) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[:count] for part, count in zip(parts, counts)])


@built(whole=False)
def collective_in_finally():
    seen: list[float] = []

    def f(x, fail):
        y = x * 2
        try:
            if fail:
                raise ValueError("no")
            y = y + 1
        except ValueError as error:
            seen.append(len(str(error)))
            y = y - 1
        finally:
            dist.all_reduce(y)
        return y, list(seen)
    return f, [(values(), False), (values(), True), (values(offset=1), False)]


@built(whole=False)
def error_leaves_through_finally():
    def f(x):
        y = x * 2
        try:
            raise KeyError("gone")
        finally:
            dist.all_reduce(y)
            x.copy_(y)
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def collective_in_tensor_hook():
    def f(x):
        w = x.detach().clone().requires_grad_()

        def reduced(grad):
            grad = grad.clone()
            dist.all_reduce(grad)
            return grad / 2
        w.register_hook(reduced)
        (w * w).sum().backward()
        return w.grad
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def collective_in_module_hook():
    model = torch.nn.Linear(4, 4).requires_grad_(False)
    with torch.no_grad():
        model.weight.fill_(0.5), model.bias.fill_(0.1)

    def hook(module, given, made):
        made = made.clone()
        dist.all_reduce(made)
        return made
    model.register_forward_hook(hook)
    return model, [(values(),), (values(offset=1),)]


@program
def loop_with_break(x):
    total = x.clone()
    for step in range(10):
        dist.all_reduce(total)
        if step == 3:
            break
        total = total / 2
    else:
        total = total * 0
    return total


@program(whole=False)
def loop_until_converged(x):
    """Every rank sees the same value, and leaves at the same step."""
    y, steps = x.clone(), 0
    while True:
        y = y / 2
        size = y.abs().max()
        dist.all_reduce(size, op=dist.ReduceOp.MAX)
        steps += 1
        if size.item() < 1:
            break
    return y, steps


@program(whole=False)
def group_made_inside(x):
    group = dist.new_group([0, 1])
    y = x.clone()
    if dist.get_rank() < 2:
        dist.all_reduce(y, group=group)
    dist.destroy_process_group(group)
    return y


@built
def handle_returned():
    def f(x):
        y = x * 2
        return y, dist.all_reduce(y, async_op=True)

    def called(x):
        y, work = compiled(x)
        work.wait()
        return y.clone()
    compiled = f
    return called, [(values(),), (values(offset=1),)]


@built(whole=False)
def handle_across_a_break():
    def f(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        z = x.cos()
        stator.graph_break()
        z = z + 1
        work.wait()
        return y + z
    return f, [(values(),), (values(offset=1),)]


@built(whole=False)
def handles_kept_outside():
    """A handle of one call is awaited in the next one."""
    pending: list[tuple[object, torch.Tensor]] = []

    def f(x):
        found = torch.zeros(4, 4)
        if pending:
            work, before = pending.pop()
            work.wait()
            found = before + 1
        y = x * 2
        pending.append((dist.all_reduce(y, async_op=True), y))
        return found
    return f, [(values(),), (values(offset=1),), (values(offset=2),)]


@program
def handle_awaited_twice(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    work.wait()
    z = y + 1
    work.wait()
    return z, y


@program
def handles_in_reverse_order(x):
    parts = [x * (n + 1) for n in range(3)]
    handles = [dist.all_reduce(part, async_op=True) for part in parts]
    for handle in reversed(handles):
        handle.wait()
    return torch.stack(parts)


@program(whole=False)
def objects_and_tensors(x):
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, {"rank": dist.get_rank(), "size": tuple(x.shape)})
    y = x * len(found)
    dist.all_reduce(y)
    return y, [each["rank"] for each in found]


@program
def column_not_contiguous(x):
    y = x.t().contiguous()
    dist.all_reduce(y)
    return y.t()


@program(whole=False)
def transposed_in_place(x):
    y = (x * 2).t()
    dist.all_reduce(y)
    return y, y.is_contiguous()


@program
def row_of_a_tensor(x):
    y = x * 2
    dist.all_reduce(y[1])
    return y


@program
def view_reduced_base_read(x):
    y = x * 2
    flat = y.view(-1)
    dist.all_reduce(flat)
    y.add_(1)
    return flat, y


@program
def written_after_wait(x):
    y = x * 2
    work = dist.all_reduce(y, async_op=True)
    z = y.new_ones(4, 4)
    work.wait()
    y.mul_(z + 1)
    return y


@program
def argument_reduced_in_place(x):
    dist.all_reduce(x)
    x.add_(1)
    dist.all_reduce(x)
    return x.sum()


@built
def attribute_reduced():
    class Meter:
        def __init__(self) -> None:
            self.total, self.count = torch.zeros(2), 0

        def update(self, x):
            self.total += torch.stack([x.sum(), x.new_tensor(x.numel())])
            self.count += 1

        def value(self):
            total = self.total.clone()
            dist.all_reduce(total)
            return total[0] / total[1]
    meter = Meter()

    def f(x):
        meter.update(x)
        return meter.value(), meter.count, meter.total.clone()
    return f, [(values(),), (values(offset=1),), (values(offset=3),)]


@built(whole=False)
def raises_on_one_rank_before_all():
    """One rank raises before any collective; the others do not run one in that call."""
    def f(x, bad):
        if bad:
            raise RuntimeError("this rank gives up")
        return x + 1
    bad = dist.get_rank() == 1
    return f, [(values(), bad), (values(), False)]


@program
def context_manager_of_collectives(x):
    @contextlib.contextmanager
    def reduced(tensor):
        tensor.mul_(2)
        try:
            yield tensor
        finally:
            dist.all_reduce(tensor)
    y = x.clone()
    with reduced(y) as inside:
        inside.add_(1)
    return y


@program
def generator_of_collectives(x):
    def layers(y):
        for n in range(3):
            y = y + n
            dist.all_reduce(y)
            yield y
    return torch.stack([each / 2 for each in layers(x.clone())])


@program
def dict_of_metrics(x):
    metrics = {"b": x.sum(), "a": x.max(), "c": x.mean()}
    for name in sorted(metrics):
        dist.all_reduce(metrics[name], op=dist.ReduceOp.MAX if name == "a" else dist.ReduceOp.SUM)
    return metrics


@program
def integers_and_bools(x):
    n, flag = (x > 3).sum(), (x > 100).any().to(torch.uint8)
    dist.all_reduce(n)
    dist.all_reduce(flag, op=dist.ReduceOp.MAX)
    return n, flag.bool()


@program
def empty_tensor(x):
    y = x[:0].clone()
    dist.all_reduce(y)
    return y, x + 1


@program
def scalar_tensors(x):
    parts = [torch.zeros(()) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, x.sum())
    return torch.stack(parts)


@built(whole=False)
def gradient_clipping_over_ranks():
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 4)

    def f(x):
        model.zero_grad()
        model(x).square().mean().backward()
        norm = sum(p.grad.square().sum() for p in model.parameters())
        dist.all_reduce(norm)
        scale = (1.0 / (norm.sqrt() + 1e-6)).clamp(max=1.0)
        for p in model.parameters():
            p.grad.mul_(scale)
        return [p.grad.clone() for p in model.parameters()]
    return f, [(values(),), (values(offset=1),)]


@program
def inference_mode_reduce(x):
    with torch.inference_mode():
        y = x * 2
        dist.all_reduce(y)
        return y + 1


@program
def aliases_in_a_list(x):
    y = x * 2
    parts = [y[0], y[1], y[2], y[3]]
    for part in parts[:2]:
        dist.broadcast(part, 0)
    return y, parts[0] + parts[3]
