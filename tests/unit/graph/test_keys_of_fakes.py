"""Keys of fakes: none is served to another fake that has the address of a dead one."""

from __future__ import annotations

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from stator.graph.metadata.propagation import Propagation


def test_a_key_is_never_that_of_a_dead_fake() -> None:
    mode = FakeTensorMode()
    propagation = Propagation(mode)
    for width in range(1, 50):
        with mode:
            fake = torch.empty(width)
        assert propagation.tensor_key(fake)[1] == (width,)
        made = propagation.alike(fake)
        assert propagation.tensor_key(made)[1] == (width,)
        del fake, made
