"""Compiled calls against the program itself: every n-th call, or one in detail.   call  ->  differences, a Finding"""

from stator.audit.auditor import audited
from stator.audit.search import Finding, bisect_call

__all__ = ["Finding", "audited", "bisect_call"]
