"""Compute no gradient from an input as a write has left it.   y = w * b.exp(); b.add_(1)  ->  b.exp() is saved

AOTAutograd may save an input in place of a value made of it, and make the value again in the backward pass.  Where the
graph writes to that input, the backward pass reads the new contents.  AOTAutograd copies the mark to its own graphs.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence

from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils.checkpoint import CheckpointPolicy

from stator.graph.analysis.mutation import WRITTEN_AROUND, storage_of, tensors_in, writes, written_storages


def save_values(gm: fx.GraphModule, inputs: Sequence[object]) -> None:
    """Forbid recomputation from written inputs; checkpoints of the user recompute as in eager."""
    storages = set(gm.meta.get(WRITTEN_AROUND, ())).union(*map(written_storages, gm.graph.nodes))
    storages.intersection_update([storage_of(fake) for fake in inputs if type(fake) is FakeTensor])
    for node in gm.graph.nodes if storages else ():
        reads = any(_shows(each, storages) for each in node.all_input_nodes)
        if reads and node.op.startswith("call_") and (writes(node) or not _shows(node, storages)):  # else it is a view
            node.meta.setdefault("recompute", CheckpointPolicy.MUST_SAVE)


def partitioner_of_marks(gm: fx.GraphModule) -> dict[str, object]:
    """The setting of Inductor that puts marks of nodes, those of checkpoints too, into the keys of its caches."""
    marks = [(place, str(node.meta["recompute"])) for place, node in enumerate(gm.graph.nodes)
             if "recompute" in node.meta]
    if not marks:
        return {}
    passes = importlib.import_module("torch._inductor.custom_graph_pass")
    partition = importlib.import_module("torch._functorch.partitioners").min_cut_rematerialization_partition

    class Partitioner(passes.CustomPartitionerFn):  # type: ignore[misc,name-defined]
        __call__ = staticmethod(partition)

        def uuid(self) -> object:
            return passes.get_hash_for_files((__file__,), str(marks))

        def __reduce__(self) -> tuple[object, ...]:  # Inductor pickles its settings to make a key of them
            return str, (str(marks),)

    return {"custom_partitioner_fn": Partitioner()}


def _shows(node: fx.Node, storages: set[int]) -> bool:
    return any(storage_of(tensor) in storages for tensor in tensors_in(node.meta.get("example_value")))
