"""Reasons for which a file or folder is not used.   raise Refused(Reason.SYMLINK, path)

In: a reason and the object it is about.  Out: an exception whose text has the cause and the remedy.
"""

from __future__ import annotations

import enum

from stator.errors import StatorError


class Reason(enum.Enum):
    """Cause of a refusal, and its remedy."""

    FOREIGN = "this is no artifact of Stator", "Give the path of a file that Stator has written."
    VERSION = "another version of the file format", "Delete the file; the next capture writes it again."
    TRUNCATED = "the file ends early or has bytes behind its end", "Delete the file; the next capture writes it again."
    TOO_LARGE = "a size is beyond its limit", "Delete the file, or raise the limit if you wrote the file yourself."
    MALFORMED = "the content breaks the file format", "Delete the file; the next capture writes it again."
    TAMPERED = "the content was changed after it was signed", "Delete the file, and find out who changed it."
    OTHER_KEY = "the file was signed with another key", \
        "Copy the key of the user who wrote it, or name its folder in stator.config.artifact_trusted_dirs."
    WRONG_LABEL = "the file was stored under another name", "Delete the file; the next capture writes it again."
    SYMLINK = "the path is a symbolic link", "Give the path that the link points to."
    NOT_A_FILE = "the path is no regular file", "Remove it, or give another path."
    NOT_A_FOLDER = "the path is no folder", "Remove it, or set stator.config.artifact_dir to a folder."
    OTHER_OWNER = "the path belongs to another user", "Give a path that belongs to you."
    WRITABLE_BY_OTHERS = "other users can write to the path", "Take their rights away: chmod go-w."
    READABLE_BY_OTHERS = "other users can read the key", "Delete it: a new one is made, and old artifacts are refused."
    MODE = "the mode of the store is not known", "Use off, read or read-write."
    UNREADABLE = "the path cannot be read or written", "Give a path with the rights to read and write."

    @property
    def cause(self) -> str:
        return self.value[0]

    @property
    def remedy(self) -> str:
        return self.value[1]


class Refused(StatorError):
    """A file or folder is not used; nothing of it has been."""

    def __init__(self, reason: Reason, detail: str = "") -> None:
        super().__init__(reason, detail)
        self.reason, self.detail = reason, detail

    def __str__(self) -> str:
        return f"{self.reason.cause}{f' ({self.detail})' if self.detail else ''}. {self.reason.remedy}"
