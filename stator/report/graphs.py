"""Graphs and code objects as text.

In: a graph module, as an event carries it.  Out: its code with shapes and the user's lines; the sizes of its tensors;
a code object's instructions.
"""

from __future__ import annotations

import dis
import io
from types import CodeType
from typing import Any

_SHORT = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
          "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8", "complex64": "c64", "complex128": "c128"}


def graph_code(graph: Any) -> str:
    """One line for each node: its name, what it holds, how it is made; the user's line above where it changes."""
    lines: list[str] = []
    place = ""
    for node in graph.graph.nodes:
        found = user_line(node)
        if found and found != place:
            lines.append(f"# {found}")
            place = found
        if node.op == "output":
            lines.append(f"return {node.args[0]}")
        elif node.op == "placeholder":
            lines.append(f"{node.name}: {held_by(node)} = input  # {source_of(node)}")
        else:
            target = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", str(node.target))
            given = [repr_of(arg) for arg in node.args] + [f"{k}={repr_of(v)}" for k, v in node.kwargs.items()]
            lines.append(f"{node.name}: {held_by(node)} = {target}({', '.join(given)})")
    return "\n".join(lines)


def repr_of(arg: object) -> str:
    return arg if isinstance(arg, str) and not arg else str(arg) if hasattr(arg, "op") else repr(arg)


def source_of(node: Any) -> str:
    source = node.meta.get("source")
    return source.text() if source is not None else str(node.target)


def user_line(node: Any) -> str:
    """`file:line in function` of the innermost user frame."""
    text = (node.meta.get("stack_trace") or "").strip().rpartition("\n")[2].strip()
    if not text.startswith("File "):
        return ""
    filename, line, function = text.removeprefix("File ").split(", ", 2)
    return f"{filename.strip(chr(34))}:{line.removeprefix('line ')} {function}"


def held_by(node: Any) -> str:
    """`f32[2, 3] cpu`, `int`, or a tuple of such."""
    return describe(node.meta.get("example_value"))


def describe(value: Any) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        name = str(value.dtype).removeprefix("torch.")
        return f"{_SHORT.get(name, name)}[{', '.join(map(str, value.shape))}] {value.device}"
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(describe, value))})"
    return type(value).__name__


def graph_sizes(graph: Any) -> str:
    """The shape of every tensor of the graph."""
    return "\n".join(f"{node.name}: {held_by(node)}" for node in graph.graph.nodes
                     if node.op != "output" and node.meta.get("example_value") is not None)


def symbolic_inputs(graph: Any) -> list[str]:
    """The inputs with a size or value that may differ from call to call."""
    found = []
    for node in graph.graph.nodes:
        value = node.meta.get("example_value")
        if node.op != "placeholder" or value is None:
            continue
        sizes = list(getattr(value, "shape", ())) or [value]
        if any(type(size).__name__ in ("SymInt", "SymFloat", "SymBool") for size in sizes):
            found.append(f"{source_of(node)}: {describe(value) if hasattr(value, 'shape') else value}")
    return found


def disassembled(code: CodeType) -> str:
    text = io.StringIO()
    dis.dis(code, file=text, depth=0)
    return text.getvalue().rstrip()
