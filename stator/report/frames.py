"""The text of one break, in the user's lines.

In: code, title, cause, remedy, place and stack of a break.  Out: its text, the user's line and the true cause first.
"""

from __future__ import annotations

import linecache
import sys
from collections.abc import Sequence

from stator import errors
from stator.breaks import REGISTRY
from stator.errors import UserFrame


def name_of(frame: UserFrame) -> str:
    """`model.layers[3].forward`, or the function's name without the functions around it."""
    holder, _, short = frame.function.rpartition("<locals>.")[2].rpartition(".")
    return f"{frame.owner}.{short}" if frame.owner and holder else f"{holder}.{short}".removeprefix(".")


def is_library(filename: str) -> bool:
    """Whether a file is torch's or Python's own: users look for their lines elsewhere."""
    folder = getattr(sys.modules.get("torch"), "__file__", None)
    ours = filename.startswith((_PYTHON, "<frozen ")) and "-packages" not in filename
    return ours or folder is not None and filename.startswith(folder[:-len("__init__.py")])


def inside_of(filename: str) -> str:
    """A remark on a line that is not the user's."""
    if not is_library(filename):
        return ""
    return " (inside Python's library)" if filename.startswith((_PYTHON, "<frozen ")) and "-packages" not in filename \
        else " (inside torch)"


PLUMBING = {"_wrapped_call_impl", "_call_impl"}  # methods of torch.nn.Module between a call and `forward`
_PYTHON = linecache.__file__.removesuffix("linecache.py")


def source_line(filename: str, line: int) -> str:
    """One line of a file; empty for what is no file: a code object may be called anything."""
    try:
        return linecache.getline(filename, line).strip()
    except ValueError:
        return ""


def user_frames(frames: Sequence[UserFrame]) -> list[UserFrame]:
    """Frames of the user: outside torch and Python; of installed packages, methods of modules of the model.

    Where there are none, those outside torch and Python, else all.
    """
    own = [frame for frame in frames if not is_library(frame.filename)]
    return [frame for frame in own if frame.owner or "-packages/" not in frame.filename] or own or list(frames)


def render_problem(code: str, title: str, cause: str, remedy: str, filename: str | None, line: int | None,
                   stack: Sequence[UserFrame] = (), full: bool = False) -> str:
    """The text of one break: code, cause and the user's line, its callers, the remedy; `full`: torch's frames, too."""
    frames = list(stack)
    if filename is not None and line is not None and (not frames or frames[-1][:2] != (filename, line)):
        frames.append(UserFrame(filename, line, ""))
    shown = frames if full else user_frames(frames)
    first = f"{code} {title}: {cause}" if cause else f"{code} {title}"
    lines = []
    for position, frame in enumerate(reversed(shown)):
        place = f"{f'{first}, at' if position == 0 else '  called from'} {frame.filename}:{frame.line}"
        lines.append(f"{place} in {name_of(frame)}" if frame.function else place)
        lines += [f"    {source}"] if (source := source_line(frame.filename, frame.line)) else []
        if position == 0 and frame is not frames[-1]:
            lines.append(f"    inside it: {_way(frames[frames.index(frame) + 1:])}, at "
                         f"{frames[-1].filename}:{frames[-1].line}")
    known = [f"  more: python -m stator code {code}"] if code in REGISTRY else []
    return "\n".join([*(lines or [first]), *([f"  remedy: {remedy}"] if remedy else []), *known])


def _way(frames: Sequence[UserFrame]) -> str:
    """Functions of libraries, from the one that the user calls to the one that breaks: `svd > errstate.__enter__`."""
    names = list(dict.fromkeys(name for frame in frames if (name := name_of(frame)).rpartition(".")[2] not in PLUMBING))
    names = names or [name_of(frames[-1])]
    return " > ".join(names if len(names) < 4 else [names[0], "...", names[-1]])


errors.rendering.problem = render_problem
