"""Python code that no graph can hold as a custom operator.   with open(f) as s: ...  ->  log_y(token, y)

In: a statement whose inputs are tensors and numbers.  Out: a function of the module with the same code, registered by
torch.library.custom_op, and a call of it: the code runs natively inside the graph. Its results are numbers, which the
operator hands out as tensors of no dimensions, or nothing: then it writes to a token tensor, so that no compiler drops
the call.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Iterator, Sequence

import torch

from stator.remedies.registry import Candidate, Site, remedy
from stator.remedies.rewrites.local_names import all_names, fresh, loaded, loaded_after, stored
from stator.remedies.rewrites.tensor_forms import SAME_NAME, WHOLE, call, function_name, is_item, is_math
from stator.remedies.source_text import StatementPlace

ANNOTATIONS: dict[type, str] = {torch.Tensor: "torch.Tensor", torch.nn.Parameter: "torch.Tensor", int: "int",
                                float: "float", bool: "bool", str: "str"}
DTYPES: dict[type, str] = {int: "torch.int64", float: "torch.float64", bool: "torch.bool"}
MOST_STATEMENTS = 6
CODES = ("SB001", "SB002", "SB003", "SB004", "SB005", "SB006", "SB010", "SB013", "SB015", "SB020", "eager")


@remedy(*CODES, rank=6)
def outline_statements(site: Site) -> Iterator[Candidate]:
    """The statement of the line, statements after it, and statements around it."""
    if site.function is None or any("<locals>" in each.__qualname__ for each in site.functions):
        return
    for place in site.places:
        for length in range(1, MOST_STATEMENTS + 1):
            group = place.block[place.index:place.index + length]
            if len(group) < length:
                break
            yield from _outlined(site, place, group)


def _outlined(site: Site, place: StatementPlace, group: Sequence[ast.stmt]) -> Iterator[Candidate]:
    assert site.function is not None
    if not _is_closed(group) or _calls_modules(site, group):
        return
    bound = set(site.types)
    inputs = sorted(loaded(group) & bound - _bound_first(group))
    results = [name for name in stored(group) if name in loaded_after(site.function, list(group))]
    kinds = {name: _annotation(site, name) for name in inputs}
    if any(kind is None for kind in kinds.values()) or len(results) > 1:
        yield from _with_consumer(site, place, group, inputs, results)
        return
    taken = all_names(site.function)
    name = fresh(_operator_name(site, group), taken | {site.function.name})
    arguments = ", ".join(f"{each}: {kind}" for each, kind in kinds.items())
    if results:
        types = site.types.get(results[0], set())
        if len(types) != 1 or (kind := next(iter(types))) not in DTYPES:
            yield from _with_consumer(site, place, group, inputs, results)
            return
        if site.problem.code == "SB013" or not any(each == "torch.Tensor" for each in kinds.values()):
            return  # a read of the world is no function of its inputs: compilers would merge and move it
        value = f"torch.tensor({results[0]}, dtype={DTYPES[kind]})"
        definitions = _definition(name, arguments, list(kinds), group, value, DTYPES[kind])
        made = call(name, *(ast.Name(each, ast.Load()) for each in inputs))
        statement: ast.stmt = ast.Assign([ast.Name(results[0], ast.Store())], call(".item", made))
    else:
        definitions = _effect(name, arguments, list(kinds), group)
        token = ast.Name(f"{name}_token", ast.Load())
        statement = ast.Expr(call(name, token, *(ast.Name(each, ast.Load()) for each in inputs)))
    yield Candidate("run the statement as a custom operator inside the graph", (site.replace(group, [statement]),),
                    definitions, note="the operator runs the same Python code; nothing in it is compiled")


def _with_consumer(site: Site, place: StatementPlace, group: Sequence[ast.stmt], inputs: list[str], results: list[str],
                   ) -> Iterator[Candidate]:
    """A result that is no number, used by the next statement inside float(), int() or a function of math alone."""
    index = place.index + len(group)
    if len(results) != 1 or index >= len(place.block) or site.function is None:
        return
    kinds = {name: _annotation(site, name) for name in inputs}
    following = place.block[index]
    reads = [node for node in ast.walk(following) if isinstance(node, ast.Call) and (
        function_name(node.func) in ("float", "int", "len") or is_math(node.func, SAME_NAME | WHOLE)
        or isinstance(node.func, ast.Attribute) and node.func.attr == "item")
        and results[0] in loaded([node]) and loaded([node]) & set(site.types) == {results[0]}]
    if any(kind is None for kind in kinds.values()) or not reads \
            or results[0] in loaded_after(site.function, [*group, following]):
        return
    read = reads[0]
    whole = function_name(read.func) in ("int", "len") or is_math(read.func, WHOLE)
    dtype = "torch.int64" if whole else "torch.float64"
    name = fresh(_operator_name(site, group), all_names(site.function) | {site.function.name})
    arguments = ", ".join(f"{each}: {kind}" for each, kind in kinds.items())
    definitions = _definition(name, arguments, list(kinds), group, f"torch.tensor({ast.unparse(read)}, dtype={dtype})",
                              dtype)
    made = call(".item", call(name, *(ast.Name(each, ast.Load()) for each in inputs)))
    changed = _Replaced(ast.dump(read), made).visit(copy.deepcopy(following))
    if results[0] not in loaded([changed]):
        yield Candidate("run the statements as a custom operator inside the graph",
                        (site.replace([*group, following], [changed]),), definitions,
                        note="the operator runs the same Python code; nothing in it is compiled")


class _Replaced(ast.NodeTransformer):
    def __init__(self, dump: str, value: ast.expr) -> None:
        self.dump, self.value = dump, value

    def visit_Call(self, node: ast.Call) -> ast.expr:  # noqa: N802
        if ast.dump(node) == self.dump:
            return copy.deepcopy(self.value)
        self.generic_visit(node)
        return node


def _annotation(site: Site, name: str) -> str | None:
    types = {ANNOTATIONS.get(each) for each in site.types.get(name, set())}
    return types.pop() if len(types) == 1 else None


def _is_closed(group: Sequence[ast.stmt]) -> bool:
    """No way out of the statements, no name of an outer scope, and no write to a tensor or an attribute."""
    inside = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom, ast.Await, ast.Global, ast.Nonlocal,
              ast.FunctionDef, ast.ClassDef, ast.Delete, ast.Raise)
    for node in (each for statement in group for each in ast.walk(statement)):
        if isinstance(node, inside):
            return False
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store) \
                and not re.match(r"os\.environ\b", ast.unparse(node)):
            return False
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            return False
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr.endswith("_") \
                and not node.func.attr.startswith("_"):
            return False
    return True


def _calls_modules(site: Site, group: Sequence[ast.stmt]) -> bool:
    """Whether the statements name a module of torch.nn: what is to be compiled stays in the graph."""
    return any(isinstance(site.functions[0].__globals__.get(name), torch.nn.Module) for name in loaded(group))


def _bound_first(group: Sequence[ast.stmt]) -> set[str]:
    """Names that the statements bind before they read them."""
    found: set[str] = set()
    read: set[str] = set()
    for statement in group:
        if isinstance(statement, ast.Assign):
            read |= loaded([statement.value])
            found |= set(stored([statement])) - read
        elif isinstance(statement, ast.With):
            read |= loaded(item.context_expr for item in statement.items)
            found |= set(stored(item.optional_vars for item in statement.items if item.optional_vars)) - read
            read |= loaded(statement.body) - found
        else:
            read |= loaded([statement]) - found
            if isinstance(statement, ast.Try):
                found |= set(stored([statement])) - read
    return found


def _operator_name(site: Site, group: Sequence[ast.stmt]) -> str:
    assert site.function is not None
    return f"{site.function.name.strip('_') or 'call'}_line_{group[0].lineno}"


def _body(group: Sequence[ast.stmt]) -> list[str]:
    return [f"    {line}" for statement in group for line in ast.unparse(statement).splitlines()]


def _definition(name: str, arguments: str, names: list[str], group: Sequence[ast.stmt], value: str, dtype: str) -> str:
    return "\n".join([f'@torch.library.custom_op("remedies::{name}", mutates_args=())',
                      f"def {name}({arguments}) -> torch.Tensor:", *_body(group), f"    return {value}", "", "",
                      f"@{name}.register_fake", f"def _({', '.join(names)}):",
                      f"    return torch.empty((), dtype={dtype})", "", ""])


def _effect(name: str, arguments: str, names: list[str], group: Sequence[ast.stmt]) -> str:
    both = f"token: torch.Tensor{', ' if arguments else ''}{arguments}"
    return "\n".join([f"{name}_token = torch.zeros(())", "", "",
                      f'@torch.library.custom_op("remedies::{name}", mutates_args=("token",))',
                      f"def {name}({both}) -> None:", *_body(group), "", "",
                      f"@{name}.register_fake", f"def _({', '.join(['token', *names])}):", "    return None", "", ""])


@remedy("SB001", "SB002", "SB003", rank=6)
def outline_expression(site: Site) -> Iterator[Candidate]:
    """A call in the statement of the line that reads numbers out of tensors and gives one."""
    if site.function is None or not site.places or any("<locals>" in each.__qualname__ for each in site.functions):
        return
    statement = site.places[0].statement
    if isinstance(statement, ast.For | ast.While | ast.With | ast.Try):
        return
    test = isinstance(statement, ast.If)
    root: ast.AST = statement.test if isinstance(statement, ast.If) else statement
    for node in ast.walk(root):
        if not isinstance(node, ast.Call) or not _takes_numbers(node):
            continue
        inputs = sorted(loaded([node]) & set(site.types))
        kinds = {name: _annotation(site, name) for name in inputs}
        if any(kind is None for kind in kinds.values()) or "torch.Tensor" not in kinds.values() \
                or _calls_modules(site, [ast.Expr(node)]):
            continue
        for kind in (bool,) if test else (float, int):
            taken = all_names(site.function)
            value, name = fresh("value", taken), fresh(_operator_name(site, [statement]), taken | {site.function.name})
            arguments = ", ".join(f"{each}: {kind}" for each, kind in kinds.items())
            tensor = f"torch.tensor({ast.unparse(node)}, dtype={DTYPES[kind]})"
            definitions = _definition(name, arguments, inputs, [], tensor, DTYPES[kind])
            made = call(".item", call(name, *(ast.Name(each, ast.Load()) for each in inputs)))
            changed = _Replaced(ast.dump(node), ast.Name(value, ast.Load())).visit(copy.deepcopy(statement))
            yield Candidate("run the call as a custom operator inside the graph", (site.replace([statement], [
                ast.Assign([ast.Name(value, ast.Store())], made), changed]),), definitions,
                note="the operator runs the same Python code; nothing in it is compiled")


def _takes_numbers(node: ast.Call) -> bool:
    return any(is_item(each) or isinstance(each, ast.Call) and isinstance(each.func, ast.Attribute)
               and each.func.attr in ("tolist", "numpy") for part in node.args for each in ast.walk(part))
