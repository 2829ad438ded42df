"""A row for each model of a zoo.   a folder with `zoo.py` and `dev.txt`, row_of(zoo, name)  ->  rows

Each model has a process of its own, forked after the libraries are loaded; one that fails gives a row with "error".
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


def rows(folder: Path, names: str, row_of: Callable[[Any, str], dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """`names`: those of models, joined by commas; without, the models of `dev.txt`."""
    sys.path.insert(0, str(folder))
    import compat
    compat.apply()
    import zoo
    for name in names.split(",") if names else (folder / "dev.txt").read_text().split():
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(read)
            try:
                row = row_of(zoo, name)
            except BaseException as error:
                row = {"error": f"{type(error).__name__}: {error}"[:400], "at": traceback.format_exc()[-1500:]}
            with os.fdopen(write, "w") as file:
                json.dump(row, file, default=str)
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as file:
            text = file.read()
        os.waitpid(child, 0)
        yield {"name": name, **(json.loads(text) if text else {"error": "the process ended"})}
