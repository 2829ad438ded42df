"""isinstance(x, torch.FloatTensor) is a question about dtype, layout and device, and answered as in eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import stator


def program(x: torch.Tensor, cls: Any) -> Any:
    found = [isinstance(x, torch.FloatTensor), isinstance(x + 1, (torch.DoubleTensor, torch.FloatTensor)),
             isinstance(x.long(), torch.LongTensor), isinstance(x, torch.cuda.FloatTensor), isinstance(x, cls),
             isinstance(x.to("meta"), torch.FloatTensor), isinstance(3, torch.FloatTensor),
             isinstance(torch.empty(2, dtype=torch.int32), torch.IntTensor)]
    match x:
        case torch.DoubleTensor():
            return found, "double"
        case torch.FloatTensor():
            return found, "float"
    return found, "another"


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("x", [torch.ones(3), torch.nn.Parameter(torch.ones(2)), torch.ones(2, dtype=torch.float64),
                               torch.ones(2, dtype=torch.bool)], ids=["float", "parameter", "double", "bool"])
def test_tensor_types(x: torch.Tensor, dynamic: bool | None) -> None:
    compiled = stator.compile(program, backend="eager", fullgraph=True, dynamic=dynamic, options={"strict": True})
    for cls in (torch.FloatTensor, torch.DoubleTensor, torch.BoolTensor, torch.FloatTensor):
        assert compiled(x, cls) == program(x, cls)
