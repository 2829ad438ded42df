"""Compiled code against the program itself: every n-th call, or one call taken apart."""

from stator.audit.auditor import audited
from stator.audit.search import Finding, bisect_call

__all__ = ["Finding", "audited", "bisect_call"]
