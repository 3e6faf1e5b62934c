"""What a template's syntax tree may hold, and what can be read off it before it runs. Knows nothing of stages."""

from collections.abc import Iterator
from typing import Any

from jinja2 import TemplateSyntaxError, nodes
from jinja2.visitor import NodeTransformer

from coordinator.language.errors import nearest
from coordinator.language.sandbox import ENVIRONMENT, FILTER_NAMES

_STATEMENTS = (nodes.Assign, nodes.For, nodes.If, nodes.Output, nodes.With)


def check(tree: nodes.Template) -> None:
    """Refuses a tree that uses more than the language has. Raises TemplateSyntaxError."""
    for node in tree.find_all((nodes.Stmt, nodes.Filter, nodes.Test, nodes.Name)):
        fault = _fault(node)
        if fault:
            raise TemplateSyntaxError(fault, node.lineno)


def guarded(tree: nodes.Template) -> nodes.Template:
    """A checked tree, its loops, joins, slices and comparisons changed so that they spend effort."""
    return _Guard().visit(tree).set_environment(ENVIRONMENT)  # type: ignore[no-any-return]


def literal(tree: nodes.Template) -> str | None:
    """The text of a template that holds nothing but text, else None."""
    pieces = [piece for output in tree.body for piece in getattr(output, "nodes", [None])]
    if all(isinstance(piece, nodes.TemplateData) for piece in pieces):
        return "".join(piece.data for piece in pieces)
    return None


def sole_expression(tree: nodes.Template) -> nodes.Expr | None:
    """The expression of a template that is nothing but `{{ expression }}`, else None."""
    if len(tree.body) != 1 or not isinstance(tree.body[0], nodes.Output):
        return None
    pieces = tree.body[0].nodes
    return pieces[0] if len(pieces) == 1 and not isinstance(pieces[0], nodes.TemplateData) else None


def members(tree: nodes.Template) -> Iterator[tuple[str, str]]:
    """Name and key of each `name.key` and `name["key"]` whose name the template does not set itself."""
    own = {node.name for node in tree.find_all(nodes.Name) if node.ctx != "load"}
    accesses: Iterator[Any] = tree.find_all((nodes.Getattr, nodes.Getitem))
    for node in accesses:
        if not isinstance(node.node, nodes.Name) or node.node.name in own:
            continue
        key = node.attr if isinstance(node, nodes.Getattr) else getattr(node.arg, "value", None)
        if isinstance(key, str):
            yield node.node.name, key


def gives_context_values(node: Any) -> bool:
    """Whether an expression can only give (parts of) values of the context, never something made from them."""
    if isinstance(node, nodes.CondExpr):
        return gives_context_values(node.expr1) and gives_context_values(node.expr2)
    if isinstance(node, nodes.And | nodes.Or):
        return gives_context_values(node.left) and gives_context_values(node.right)
    if isinstance(node, nodes.Getattr):
        return gives_context_values(node.node)
    if isinstance(node, nodes.Getitem):
        return not isinstance(node.arg, nodes.Slice) and gives_context_values(node.node)
    return isinstance(node, nodes.Name)


class _Guard(NodeTransformer):
    """Sends each loop, `~`, slice, comparison and container made of names through a filter that counts."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        weight = sum(1 for _ in node.find_all(nodes.Node))
        self.generic_visit(node)
        node.iter = _filter(node.iter, "_loop", [nodes.Const(weight)])
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _filter(nodes.List(node.nodes, lineno=node.lineno), "join", [])

    def visit_Operand(self, node: nodes.Operand) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.expr, nodes.Const):
            node.expr = _filter(node.expr, "_searched" if node.op in ("in", "notin") else "_compared", [])
        return node

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        parts = (node.arg.start, node.arg.stop, node.arg.step)
        return _filter(node.node, "_slice", [part or nodes.Const(None) for part in parts])

    def visit_List(self, node: nodes.List | nodes.Tuple | nodes.Dict) -> nodes.Node:
        self.generic_visit(node)
        target = isinstance(node, nodes.Tuple) and node.ctx != "load"
        return node if target or node.find(nodes.Name) is None else _filter(node, "_built", [])

    visit_Tuple = visit_Dict = visit_List


def _filter(node: nodes.Node, name: str, args: list[nodes.Expr]) -> nodes.Filter:
    return nodes.Filter(node, name, args, [], None, None, lineno=node.lineno)


def _fault(node: nodes.Node) -> str | None:
    if isinstance(node, nodes.Stmt) and not isinstance(node, _STATEMENTS):
        return f"the statement {type(node).__name__} is not allowed; there are if, for, set (of a value) and with"
    if isinstance(node, nodes.For) and node.recursive:
        return "a for cannot be recursive"
    if isinstance(node, nodes.Filter) and node.name not in FILTER_NAMES:
        return f"there is no filter {node.name!r}; {nearest(node.name, FILTER_NAMES)}"
    if isinstance(node, nodes.Test) and node.name not in ENVIRONMENT.tests:
        return f"there is no test {node.name!r}; {nearest(node.name, ENVIRONMENT.tests)}"
    if isinstance(node, nodes.Name) and node.name == "self":
        return "'self' is not visible"
    return None
