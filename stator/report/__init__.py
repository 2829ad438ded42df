"""Text for people.   events  ->  sentences, data, the HTML page"""

from stator.report.explanation import BreakReason, Explanation, build_explanation
from stator.report.follow import follow, follow_environment, set_logs
from stator.report.own_names import UserNames
from stator.report.probe import BreakProbe
from stator.report.text import break_text, render, summarize

__all__ = ["BreakProbe", "BreakReason", "Explanation", "UserNames", "break_text", "build_explanation", "follow",
           "follow_environment", "render", "set_logs", "summarize"]
