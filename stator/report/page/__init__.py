"""One self-contained HTML file for a run.

In: the dict of `report.run_data`.  Out: the text of a page that loads nothing and shows every string as text: JSON has
no `<`, `>` or `&` left, and the policy of the page runs one script, by its hash.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from importlib import resources
from typing import Any

_UNSAFE = {ord(letter): f"\\u{ord(letter):04x}" for letter in "<>&\u2028\u2029"}


def to_json(data: dict[str, Any]) -> str:
    """JSON that is safe inside a script element; text that is no text (lone surrogates) is escaped by json itself."""
    return json.dumps(data, separators=(",", ":"), default=str, allow_nan=False).translate(_UNSAFE)


def page(data: dict[str, Any]) -> str:
    """The whole page."""
    files = resources.files(__package__)
    text, style, script = ((files / f"page.{kind}").read_text(encoding="utf-8") for kind in ("html", "css", "js"))
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    title = html.escape(str(data["title"]).encode("utf-8", "replace").decode())
    parts = {"@HASH@": digest, "@TITLE@": title, "@STYLE@": style, "@DATA@": to_json(data), "@SCRIPT@": script}
    done = []
    while text:  # one pass: nothing that is put in is looked at again
        at, mark = min(((text.find(mark), mark) for mark in parts if mark in text), default=(len(text), ""))
        done += [text[:at], parts.get(mark, "")]
        text = text[at + len(mark):]
    return "".join(done)
