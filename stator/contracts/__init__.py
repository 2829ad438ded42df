"""Recompile contracts.   stator.contract(fn, varies=["x.size(1)"])  ->  fn compiled; another change raises

In: a callable, and the facts of its calls that may change.  Out: the compiled callable, whose calls outside the
contract raise or warn, each with a line to add that was tried.
"""

from stator.contracts.contract import Contracts, contract
from stator.contracts.violation import ContractViolation

__all__ = ["ContractViolation", "Contracts", "contract"]
