"""Settings of compile() that take a problem away.   dynamic=True;  options={"capture_control_flow": True}

In: a branch on data, or a recompile.  Out: arguments of compile(); the source stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator

from stator.remedies.registry import RECOMPILE, Candidate, Site, remedy


@remedy("SB002", "SB003", rank=7)
def capture_both_ways(site: Site) -> Iterator[Candidate]:
    """Offer the capture of both branches as torch.cond, which is correct by construction."""
    yield Candidate("capture both branches as torch.cond", settings={"options": {"capture_control_flow": True}})


@remedy(RECOMPILE, "SB021", "SB024", rank=0)
def sizes_that_vary(site: Site) -> Iterator[Candidate]:
    """Sizes and numbers that vary are symbols from the first capture on."""
    yield Candidate("take sizes and numbers for dynamic from the start", settings={"dynamic": True})
