"""Compute no gradient from an input as a write has left it.   y = w * b.exp(); b.add_(1)  ->  b.exp() is saved

AOTAutograd may save an input in place of a value made of it, and make the value again in the backward pass.  Where the
graph writes to that input, the backward pass reads the new contents.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import CheckpointPolicy

from stator.graph.analysis.mutation import WRITTEN_AROUND, storage_of, written_storages


def saving_values(partition: Callable[..., Any], gm: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., Any]:
    """A way to cut the graph of both passes that saves the values made of written inputs."""
    storages = set(gm.meta.get(WRITTEN_AROUND, ())).union(*map(written_storages, gm.graph.nodes))
    places = [place for place, fake in enumerate(inputs) if type(fake) is FakeTensor and storage_of(fake) in storages]

    def cut(joint: fx.GraphModule, *args: object, **kwargs: object) -> object:
        save_values(joint, places, len(inputs))
        return partition(joint, *args, **kwargs)

    return cut if places else partition


def inductor_partitioner(gm: fx.GraphModule, inputs: Sequence[object]) -> dict[str, object]:
    """The setting that gives Inductor `saving_values`."""
    partition = importlib.import_module("torch._functorch.partitioners").min_cut_rematerialization_partition
    passes = importlib.import_module("torch._inductor.custom_graph_pass")
    cut = saving_values(partition, gm, inputs)
    if cut is partition:
        return {}

    class SavingValues(passes.CustomPartitionerFn):  # type: ignore[misc,name-defined]
        __call__ = staticmethod(cut)

        def uuid(self) -> object:  # the graph tells what is written
            return passes.get_hash_for_files((__file__,))

        def __reduce__(self) -> tuple[object, ...]:  # Inductor pickles its settings to make a key of them
            return str, (self.__class__.__name__,)

    return {"custom_partitioner_fn": SavingValues()}


def save_values(joint: fx.GraphModule, places: list[int], count: int) -> None:
    """Forbid to make again what reads a written input; checkpoints of the program stay as they are in eager."""
    inputs = [node for node in joint.graph.find_nodes(op="placeholder") if not str(node.target).startswith("tangents")]
    reading = [inputs[place] for place in places] if len(inputs) == count else inputs  # AOTAutograd has merged some
    while reading:
        for user in reading.pop().users:
            if isinstance(user.target, OpOverload) and any(
                    each.alias_info and not each.alias_info.is_write for each in user.target._schema.returns):
                reading.append(user)  # a view
            elif user.op == "call_function":
                user.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)
