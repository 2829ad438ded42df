"""Programs of the fuzz that once differed from eager.

26159: a fake input on memory that was known counted as written to; 40038: hooks on leaves behind a branch ran for each
way; 41083: a compiler that failed inside inference mode left dispatch keys behind, and every later operation raised;
70043: a hook raised at a sparse gradient, and a compiled backward had set the gradients of other leaves before; 70331: a
piece had saved memory that the graph writes to, and the version counter of that memory was set back.
"""

from __future__ import annotations

import pytest
import torch

from tests.training.fuzz import run_seed


@pytest.mark.parametrize(("seed", "backend"), [(26159, "aot_eager"), (40038, "eager"), (41083, "aot_eager"),
                                              (70043, "aot_eager"), (70331, "aot_eager")])
def test_equal_to_eager(seed: int, backend: str) -> None:
    verdict, causes = run_seed(seed, backend)
    assert verdict in ("whole", "broken"), causes
    assert torch.ones(2).sum() == 2
