"""The steps of an answer in TypeScript. The tools write them in Python; this is the one place that translates them."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterable
from typing import Final, cast

_CALLED: Final = frozenset({"first", "last", "content_frame", "context", "pages"})
"""Properties of Playwright's Python that are methods in TypeScript."""
_NAMES: Final = {"and_": "and", "or_": "or", "indexed_db": "indexedDB"}
_FLAGS: Final = {"I": "i", "IGNORECASE": "i", "M": "m", "MULTILINE": "m", "S": "s", "DOTALL": "s"}
_FUNCTION: Final = re.compile(r"\s*(?:async\b|function\b|\(|\w+\s*=>)")


def to_typescript(line: str) -> str:
    """Return a line of Playwright's Python in TypeScript; a line that is no such Python comes back as it is."""
    if line.lstrip().startswith("#"):
        return f"//{line.lstrip()[1:]}"
    try:
        flags = ast.PyCF_ONLY_AST | ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
        [statement] = cast("ast.Module", compile(line, "step", "exec", flags)).body
        if statement.end_lineno != 1:
            return line
        text = f"{_statement(statement)};"
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        return line
    comment = line.encode()[statement.end_col_offset :].decode().strip(" ;")
    return f"{text} //{comment[1:]}" if comment else text


def _statement(node: ast.stmt) -> str:
    match node:
        case ast.Expr(value=value):
            return _expression(value)
        case ast.Assign(targets=[ast.Name(id=name)], value=value):
            return f"const {_name(name)} = {_expression(value)}"
        case _:
            raise ValueError(ast.dump(node))


def _expression(node: ast.expr) -> str:
    match node:
        case ast.Await(value=value):
            return f"await {_expression(value)}"
        case ast.Name(id=name):
            return _name(name)
        case ast.Constant(value=value):
            return _constant(value)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return f"-{_expression(operand)}"
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return f"[{', '.join(map(_expression, items))}]"
        case ast.Dict(keys=keys, values=values):
            pairs = zip(keys, values, strict=True)
            return _object((_key(key), _expression(value)) for key, value in pairs)
        case ast.Subscript(value=ast.Attribute(attr="environ"), slice=ast.Constant(value=name)):
            return f"process.env[{_constant(name)}]"
        case ast.Subscript(value=value, slice=index):
            return f"{_expression(value)}[{_expression(index)}]"
        case ast.Attribute(value=value, attr=name):
            return f"{_expression(value)}.{_name(name)}{'()' if name in _CALLED else ''}"
        case ast.Call():
            return _call(node)
        case _:
            raise ValueError(ast.dump(node))


def _call(node: ast.Call) -> str:
    arguments = [_expression(argument) for argument in node.args]
    match node.func:
        case ast.Attribute(value=ast.Name(id="re"), attr="compile"):
            return _pattern(node)
        case ast.Attribute(attr="evaluate") if _is_function(node.args):
            arguments = [str(cast("ast.Constant", node.args[0]).value)]
            function = _expression(node.func)
        case ast.Attribute(value=value, attr=name) if name.startswith("not_to_"):
            function = f"{_expression(value)}.not.{_name(name.removeprefix('not_'))}"
        case ast.Attribute(value=value, attr=name):
            function = f"{_expression(value)}.{_name(name)}"
        case _:
            function = _expression(node.func)
    if [option.arg for option in node.keywords] == ["label"]:
        # select_option(label=...): TypeScript takes a label for a value.
        arguments = [_expression(node.keywords[0].value)]
    elif node.keywords:
        options = ((_name(option.arg or ""), _expression(option.value)) for option in node.keywords)
        arguments.append(_object(options))
    return f"{function}({', '.join(arguments)})"


def _is_function(arguments: list[ast.expr]) -> bool:
    match arguments:
        case [ast.Constant(value=str(text))]:
            return _FUNCTION.match(text) is not None
        case _:
            return False


def _pattern(node: ast.Call) -> str:
    source = re.sub(r"(?<!\\)/", r"\\/", ast.literal_eval(node.args[0]))
    parts = [part for extra in node.args[1:] for part in ast.walk(extra)]
    names = {part.attr for part in parts if isinstance(part, ast.Attribute)}
    return f"/{source}/{''.join(sorted({_FLAGS[name] for name in names if name in _FLAGS}))}"


def _object(pairs: Iterable[tuple[str, str]]) -> str:
    inner = ", ".join(f"{key}: {value}" for key, value in pairs)
    return f"{{ {inner} }}" if inner else "{}"


def _key(node: ast.expr | None) -> str:
    name = ast.literal_eval(node) if node is not None else ""
    return (
        name if isinstance(name, str) and re.fullmatch(r"[A-Za-z_]\w*", name) else _constant(name)
    )


def _constant(value: object) -> str:
    if isinstance(value, str):
        text = json.dumps(value, ensure_ascii=False)[1:-1].replace('\\"', '"')
        return "'" + text.replace("'", "\\'") + "'"
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def _name(name: str) -> str:
    """Return a name as TypeScript writes it: get_by_role is getByRole."""
    return _NAMES.get(name) or re.sub(
        r"(?<=[a-z0-9])_([a-z0-9])", lambda match: match[1].upper(), name
    )
