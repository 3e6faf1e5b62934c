"""Compiles the three kinds of template: texts, bare expressions and native arguments. Does no I/O and holds no state.

Each compile function refuses with DefinitionError at `path` what is not a template or reads names that its scope does
not show; the `render` it returns raises TemplateError whose message begins with that path.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import jinja2
from jinja2 import TemplateSyntaxError, meta, nodes
from jinja2.parser import Parser

from common.model import Json
from coordinator.language import dialect
from coordinator.language.definition import MOST_ELEMENTS, Context, Template, TemplateError
from coordinator.language.errors import DefinitionError, clipped, dotted, shown
from coordinator.language.filters import LONGEST_TEXT, FilterError, unwrapped
from coordinator.language.sandbox import ENVIRONMENT, Rendering
from coordinator.language.scope import Scope
from coordinator.language.values import JsonFault, check_text, compact, to_json

_RESULT = "_result"
_PLAIN = (type(None), bool, int, str)

Render = Callable[[Context], Any]
Root = Callable[[Rendering], Iterator[str]]


def compile_text(source: str, path: str, scope: Scope | None = None) -> Template:
    """A template that renders to a str of at most 1 MiB."""
    parsed = _parsed(source, path, ENVIRONMENT.parse, scope)
    text = dialect.literal(parsed.tree)
    if text is not None:
        return Template(source, frozenset(), lambda _: text)
    return Template(source, parsed.names, _text_renderer(parsed.root(path), path))


def compile_expression(source: str, path: str, scope: Scope | None = None) -> Template:
    """A bare expression that renders to any JSON value; what is undefined can only be tested, by `is defined`."""
    if source.lstrip().startswith("{{"):
        raise DefinitionError(path, "is a bare expression: leave the braces {{ }} out")
    parsed = _parsed(source, path, _expression_tree, scope)
    return Template(source, parsed.names, _value_renderer(parsed, path))


def compile_elements(source: str | list[Json], path: str, scope: Scope | None = None) -> Template:
    """The list of a for_each: an expression or a list as it is; renders to a list of at most 1000 elements."""
    if isinstance(source, list):
        _bounded_list(source, path, DefinitionError)
        return Template(compact(source), frozenset(), lambda _: source)
    inner = compile_expression(source, path, scope)

    def render(context: Context) -> list[Json]:
        return _bounded_list(inner.render(context), path, _failure)

    return Template(source, inner.names, render)


def compile_native(value: Json, path: str, scope: Scope | None = None) -> Template:
    """Any JSON value whose strings are templates; one that is nothing but `{{ expression }}` keeps the value's type."""
    names: set[str] = set()
    render = _native(value, path, scope, names)
    return Template(compact(value), frozenset(names), render or (lambda _: value))


@dataclass(frozen=True, slots=True)
class _Parsed:
    """A checked tree and the context names it reads."""

    tree: nodes.Template
    names: frozenset[str]

    def root(self, path: str) -> Root:
        """The generated function that yields the pieces of text."""
        try:
            code = ENVIRONMENT.compile(dialect.guarded(self.tree), filename=f"<{path}>")
            return jinja2.Template.from_code(ENVIRONMENT, code, {}).root_render_func
        except Exception as error:
            raise _unreadable(path, error) from None


def _parsed(source: str, path: str, parse: Callable[[str], nodes.Template], scope: Scope | None) -> _Parsed:
    try:
        tree = parse(source)
        dialect.check(tree)
        names = frozenset(meta.find_undeclared_variables(tree))
        members = frozenset(dialect.members(tree))
    except Exception as error:
        raise _unreadable(path, error) from None
    if scope is not None:
        scope.check(path, names, members)
    return _Parsed(tree, names)


def _unreadable(path: str, error: Exception) -> DefinitionError:
    # Odd templates are refused in many ways: by Jinja2's own errors, by its recursion, by Python's compiler.
    if isinstance(error, TemplateSyntaxError):
        line = f"line {error.lineno}: " if error.lineno else ""
        return DefinitionError(path, f"{line}{error.message}")
    if isinstance(error, RecursionError | SyntaxError | MemoryError):
        return DefinitionError(path, "the template is nested too deeply")
    return DefinitionError(path, f"the template cannot be compiled: {error}")


def _expression_tree(source: str) -> nodes.Template:
    parser = Parser(ENVIRONMENT, source, state="variable")
    expression = parser.parse_expression()
    if not parser.stream.eos:
        rest = parser.stream.current
        raise TemplateSyntaxError(f"the expression ends before {rest.value!r}", rest.lineno)
    return _assigned(expression)


def _assigned(expression: nodes.Expr) -> nodes.Template:
    assign = nodes.Assign(nodes.Name(_RESULT, "store", lineno=1), expression, lineno=1)
    tree = nodes.Template([assign], lineno=1)
    return tree.set_environment(ENVIRONMENT)  # type: ignore[return-value]


def _text_renderer(root: Root, path: str) -> Render:
    def render(context: Context) -> str:
        pieces: list[str] = []
        length = 0
        rendering = Rendering(context)
        try:
            for piece in root(rendering):
                pieces.append(piece)
                length += len(piece)
                if length > LONGEST_TEXT:
                    break
            text = check_text("".join(pieces))
        except Exception as error:
            raise _failed(path, error) from error
        finally:
            rendering.settle()
        if length > LONGEST_TEXT or (not text.isascii() and len(text.encode()) > LONGEST_TEXT):
            raise TemplateError(f"{path}: the rendered text is longer than {LONGEST_TEXT} bytes")
        return text

    return render


def _value_renderer(parsed: _Parsed, path: str) -> Render:
    plain = dialect.gives_context_values(parsed.tree.find(nodes.Assign).node)  # type: ignore[union-attr]
    root = parsed.root(path)

    def render(context: Context) -> Json:
        rendering = Rendering(context)
        try:
            for _ in root(rendering):
                pass
            value = rendering.vars[_RESULT]
            kind = type(value)
            # Parts of the context are JSON already: not copied, they may be large.
            if plain and (kind is dict or kind is list or kind in _PLAIN):
                return value
            return to_json(value, other=unwrapped)
        except Exception as error:
            raise _failed(path, error) from error
        finally:
            rendering.settle()

    return render


def _native(value: Json, path: str, scope: Scope | None, names: set[str]) -> Render | None:
    """How to render a value, adding the names it reads; None if it holds no template."""
    if isinstance(value, str):
        return _native_text(value, path, scope, names)
    if isinstance(value, dict):
        return _native_parts(list(value.items()), dict, path, scope, names)
    if isinstance(value, list):
        return _native_parts(list(enumerate(value)), _elements, path, scope, names)
    return None


def _elements(parts: Iterable[tuple[int, Json]]) -> list[Json]:
    return [part for _, part in parts]


def _native_text(source: str, path: str, scope: Scope | None, names: set[str]) -> Render | None:
    parsed = _parsed(source, path, ENVIRONMENT.parse, scope)
    text = dialect.literal(parsed.tree)
    if text is not None:
        return None if text == source else lambda _: text
    names |= parsed.names
    expression = dialect.sole_expression(parsed.tree)
    if expression is None:
        return _text_renderer(parsed.root(path), path)
    return _value_renderer(_Parsed(_assigned(expression), parsed.names), path)


def _native_parts(
    parts: list[tuple[Any, Json]],
    build: Callable[[Iterable[tuple[Any, Json]]], Json],
    path: str,
    scope: Scope | None,
    names: set[str],
) -> Render | None:
    renders = [(key, part, _native(part, dotted(path, key), scope, names)) for key, part in parts]
    if not any(render for _, _, render in renders):
        return None
    return lambda context: build((key, render(context) if render else part) for key, part, render in renders)


def _bounded_list(value: Json, path: str, error: Callable[[str, str], Exception]) -> list[Json]:
    if not isinstance(value, list):
        raise error(path, f"must be a list, not {shown(value)}")
    if len(value) > MOST_ELEMENTS:
        raise error(path, f"has {len(value)} elements; at most {MOST_ELEMENTS} are allowed")
    return value


def _failure(path: str, message: str) -> TemplateError:
    return TemplateError(f"{path}: {message}")


def _failed(path: str, error: Exception) -> TemplateError:
    # A template can fail in any way that data can: a missing key, a wrong type, a division by zero.
    if isinstance(error, JsonFault | FilterError):
        return _failure(path, str(error))
    cause = str(error) or type(error).__name__
    known = isinstance(error, jinja2.TemplateError)
    return _failure(path, clipped(cause if known else f"{type(error).__name__}: {cause}", 300))
