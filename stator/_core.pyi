# An extension module: its interface is documented with its C sources, not typed.
from typing import Any

def __getattr__(name: str) -> Any: ...
