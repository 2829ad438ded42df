"""What was found to differ, and where."""

from __future__ import annotations

import linecache
from dataclasses import dataclass
from typing import Any


@dataclass
class Finding:
    """The smallest thing found that makes compiled and eager differ."""

    kind: str  # "operation", "guard", "effect", "result" or "program"
    what: str
    differences: list[tuple[str, str]]  # (where, what)
    filename: str | None = None
    line: int | None = None
    graph: Any = None  # the smallest graph that the backend gets wrong
    inputs: tuple[Any, ...] = ()  # and what to call it with
    script: str = ""  # a program of its own that shows it
    path: str | None = None  # where that was written

    def __str__(self) -> str:
        lines = [f"{self.kind}: {self.what}"]
        if self.filename is not None and self.line is not None:
            lines.append(f"  first at {self.filename}:{self.line}")
            text = linecache.getline(self.filename, self.line).strip()
            lines += [f"    {text}"] if text else []
        lines += [f"  {where}: {what}" for where, what in self.differences[:5]]
        if len(self.differences) > 5:
            lines.append(f"  and {len(self.differences) - 5} more")
        if self.path is not None:
            lines.append(f"  a script that shows it: {self.path}")
        return "\n".join(lines)
