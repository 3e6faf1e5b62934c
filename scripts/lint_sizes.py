"""The size rules that no other linter knows. Reads our own files only; says each fault as `path:line: what`."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 400
FUNCTION_LINES = 60
LUA_CODE_LINES = 60
ROOMS = ("common", "coordinator", "workers", "hexgen_flow")
FRONT_DOOR = Path("hexgen_flow/__init__.py")


def faults(root: Path) -> Iterator[str]:
    """Every fault below `root`, in path order."""
    for path in sorted(path for room in (*ROOMS, "scripts", "tests") for path in (root / room).rglob("*")):
        relative = path.relative_to(root)
        if path.suffix == ".py":
            yield from (f"{relative}:{fault}" for fault in _python_faults(relative, path.read_text(encoding="utf-8")))
        elif path.suffix == ".lua":
            yield from (f"{relative}:{fault}" for fault in _lua_faults(path.read_text(encoding="utf-8")))


def _python_faults(path: Path, text: str) -> Iterator[str]:
    lines = len(text.splitlines())
    if lines > FILE_LINES:
        yield f"1: {lines} lines; a file has at most {FILE_LINES}: split it by role"
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION_LINES:
                yield f"{node.lineno}: {node.name} has {length} lines; a function has at most {FUNCTION_LINES}"
    if path.name == "__init__.py" and path.parts[0] in ROOMS:
        yield from _init_faults(path, tree)


def _init_faults(path: Path, tree: ast.Module) -> Iterator[str]:
    if ast.get_docstring(tree) is None:
        yield "1: a room begins with a docstring that says what lives there"
    for node in tree.body[1:]:
        if not (path == FRONT_DOOR and _exports_client(node)):
            yield f"{node.lineno}: a room's __init__.py holds its docstring only"


def _exports_client(node: ast.stmt) -> bool:
    return ast.unparse(node) in ("from hexgen_flow.client import Client", "__all__ = ['Client']")


def _lua_faults(text: str) -> Iterator[str]:
    code = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--")]
    if len(code) > LUA_CODE_LINES:
        yield f"1: {len(code)} lines of code; an operation has at most {LUA_CODE_LINES}"


if __name__ == "__main__":
    found = list(faults(Path(__file__).resolve().parent.parent))
    print(*found, sep="\n", end="\n" if found else "")
    sys.exit(bool(found))
