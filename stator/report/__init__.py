"""Text for people, made from events alone."""

from stator.report.follow import follow, follow_environment
from stator.report.text import render, summarize

__all__ = ["follow", "follow_environment", "render", "summarize"]
