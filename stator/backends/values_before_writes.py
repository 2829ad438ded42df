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

from stator.graph.analysis.mutation import storage_of, written_storages


def written_inputs(gm: fx.GraphModule, inputs: Sequence[object]) -> list[int]:
    """Places of the inputs whose storage the graph writes to."""
    storages = set().union(*map(written_storages, gm.graph.nodes))
    return [place for place, fake in enumerate(inputs) if type(fake) is FakeTensor and storage_of(fake) in storages]


def saving_values(partition: Callable[..., Any], gm: fx.GraphModule, inputs: Sequence[object]) -> Callable[..., Any]:
    """A way to cut the graph of both passes that saves the values made of written inputs."""
    places = written_inputs(gm, inputs)

    def cut(joint: fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
        save_values(joint, places, len(inputs))
        return partition(joint, *args, **kwargs)

    return cut if places else partition


def inductor_partitioner(gm: fx.GraphModule, inputs: Sequence[object]) -> dict[str, Any]:
    """The setting that gives Inductor `saving_values`; its caches tell such graphs from others by the identifier."""
    places, count = written_inputs(gm, inputs), len(inputs)
    if not places:
        return {}
    partition = importlib.import_module("torch._functorch.partitioners").min_cut_rematerialization_partition
    passes = importlib.import_module("torch._inductor.custom_graph_pass")

    class SavingValues(passes.CustomPartitionerFn):  # type: ignore[misc,name-defined]
        def __call__(self, joint: fx.GraphModule, joint_inputs: Sequence[object], **kwargs: Any) -> Any:
            save_values(joint, places, count)
            return partition(joint, joint_inputs, **kwargs)

        def uuid(self) -> object:
            return passes.get_hash_for_files((__file__,)), tuple(places), count

        def __reduce__(self) -> Any:  # Inductor pickles its settings to make a key of them
            return tuple, (self.uuid(),)

    return {"custom_partitioner_fn": SavingValues()}


def save_values(joint: fx.GraphModule, places: list[int], count: int) -> None:
    """Forbid to make again what reads a written input; checkpoints of the program stay as they are in eager."""
    inputs = [node for node in joint.graph.find_nodes(op="placeholder") if not str(node.target).startswith("tangents")]
    reading = [inputs[place] for place in places] if len(inputs) == count else inputs  # AOTAutograd has merged some
    while reading:
        for user in reading.pop().users:
            if is_view(user):
                reading.append(user)
            elif user.op == "call_function":
                user.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def is_view(node: fx.Node) -> bool:
    return isinstance(node.target, OpOverload) and any(
        each.alias_info is not None and not each.alias_info.is_write for each in node.target._schema.returns)
