"""The Jinja2 environment that foreign templates run in: what they may reach and spend. Knows nothing of definitions.

Templates come from tenants and run inside the coordinator, so escapes are not the only danger: size and time are
bounded too. Every loop, filter, call and operation on texts and lists takes from the effort of its rendering.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from jinja2 import StrictUndefined, Undefined, pass_context
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS as JINJA_FILTERS
from jinja2.nodes import EvalContext
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.tests import TESTS as JINJA_TESTS
from jinja2.utils import Namespace, _PassArg, missing

from coordinator.language.effort import EFFORT, Names, build_steps, check_operands, compare_steps, steps
from coordinator.language.errors import clipped, listed, shown
from coordinator.language.filters import FILTERS, FilterError, text_of

LONGEST_RANGE = 1000

_MOST_KEYS_SHOWN = 20


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_TEXT_FILTERS = _words("capitalize lower title trim truncate upper wordcount")
_DATA_FILTERS = _words(
    "abs count d default dictsort first float groupby int items last length list map max min reject rejectattr reverse"
    " select selectattr sort unique"
)
_COMPARING = _words("groupby max min sort unique")
_COMPARISONS = _words("== != < <= > >= eq equalto ne lt lessthan le gt greaterthan ge")
_METHODS: dict[type, frozenset[str]] = {
    str: _words(
        "capitalize casefold count endswith find index isalnum isalpha isdecimal isdigit islower isnumeric isspace"
        " istitle isupper lower lstrip partition removeprefix removesuffix rfind rindex rpartition rsplit rstrip split"
        " splitlines startswith strip swapcase title upper"
    ),
    dict: frozenset({"get", "items", "keys", "values"}),
    list: frozenset({"count"}),
    tuple: frozenset({"count"}),
}
_LOOP_METHODS = frozenset({"changed", "cycle"})
_WORDS: dict[type, str] = {type(None): "null", bool: "a boolean", int: "a number", float: "a number", str: "a text"}


class Rendering(Context):
    """One rendering: the names it sees and the effort it has left. Far cheaper to make than Jinja2's own context."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        # Not super().__init__: it copies the names and the globals, and makes much that only inheritance needs.
        self.parent = values  # type: ignore[assignment]
        self.vars = {}
        self.exported_vars = set()
        self.environment = ENVIRONMENT
        self.eval_ctx = _EVALUATION
        self.name = None
        self.blocks = {}
        self.left = EFFORT

    def resolve_or_missing(self, key: str) -> Any:
        """The value of a name, or Jinja2's mark for none."""
        if key in self.parent:
            return self.parent[key]
        return _GLOBALS.get(key, missing)

    def spend(self, effort: int) -> None:
        """Takes from the effort; raises FilterError when it is used up."""
        self.left -= effort
        if self.left < 0:
            raise FilterError("the template takes too much effort: loop over less, or do it in a tool stage")

    def settle(self) -> None:
        """Adds what effort it took to that of the names it saw."""
        if isinstance(self.parent, Names):
            self.parent.spent += EFFORT - self.left


class Environment(ImmutableSandboxedEnvironment):
    """Jinja2 with data for attributes: a key comes before a method, and only harmless methods exist."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        """The value under a key, else one of the few methods, else undefined."""
        kind = type(obj)
        if kind is dict or isinstance(obj, Mapping):
            if attribute in obj:
                return obj[attribute]
        elif kind not in _METHODS and kind not in _WORDS:
            return super().getattr(obj, attribute)
        if attribute in _METHODS.get(kind, ()):
            return getattr(obj, attribute)
        return self.undefined(_no_key(obj, attribute), obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        """The element at a key or position, else undefined."""
        try:
            return obj[argument]
        except (TypeError, LookupError, AttributeError):
            if isinstance(argument, str) and not isinstance(obj, Undefined):
                return self.getattr(obj, argument)
        return self.undefined(_no_key(obj, argument), obj, argument)

    def is_safe_callable(self, obj: Any) -> bool:
        """Only the functions of the language and the methods of plain data that copy nothing without a bound."""
        if obj is bounded_range or obj is Namespace:
            return True
        owner = type(getattr(obj, "__self__", None))
        methods = _LOOP_METHODS if owner is LoopContext else _METHODS.get(owner, ())
        return getattr(obj, "__name__", "") in methods

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """Calls what is_safe_callable allows, for a price."""
        kwargs.pop("_loop_vars", None)
        if isinstance(__obj, Undefined):
            return __obj()
        if not __self.is_safe_callable(__obj):
            raise SecurityError(f"a {type(__obj).__name__} cannot be called")
        if isinstance(owner := getattr(__obj, "__self__", None), list | tuple):
            _spend(__context, compare_steps(owner))
        result = __obj(*args, **kwargs)
        _spend(__context, 1 + steps(owner) + steps(result))
        return result

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """The operators that can make something large out of something small, bounded."""
        check_operands(operator, left, right)
        result = self.binop_table[operator](left, right)
        _spend(context, 1 + steps(result) + build_steps(result))
        return result


def bounded_range(*limits: int) -> range:
    """`range`, but of at most 1000 numbers."""
    result = range(*limits)
    if len(result) > LONGEST_RANGE:
        raise FilterError(f"range: at most {LONGEST_RANGE} numbers")
    return result


def _spend(context: Context, effort: int) -> None:
    if isinstance(context, Rendering):
        context.spend(effort)


def _no_key(obj: Any, key: Any) -> str:
    key = shown(key)
    if isinstance(obj, Mapping):
        keys = [str(known) for known in islice(obj, _MOST_KEYS_SHOWN) if isinstance(known, str)]
        return f"there is no key {key}; there are: {clipped(listed(keys), 200)}"
    if isinstance(obj, list | tuple):
        return f"a list of {len(obj)} has no element {key}"
    return f"{_WORDS.get(type(obj), 'this value')} has no key {key}"


def _counted(function: Callable[..., Any], on_text: bool = False, compares: bool = False) -> Callable[..., Any]:
    """The filter, paying for what it reads and what it gives; iterators become lists, so that their length is known."""
    passed = _PassArg.from_obj(function)

    @pass_context
    def filter_(context: Rendering, value: Any, *args: Any, **kwargs: Any) -> Any:
        if on_text:
            value = text_of(value)
        context.spend(1 + steps(value))
        if compares:
            context.spend(compare_steps(value) * steps(value).bit_length())
        if passed is None:
            result = function(value, *args, **kwargs)
        else:
            first = {_PassArg.context: context, _PassArg.environment: ENVIRONMENT}.get(passed, _EVALUATION)
            result = function(first, value, *args, **kwargs)
        if isinstance(result, Iterator):
            result = list(result)
        context.spend(steps(result))
        return result

    return filter_


@pass_context
def _loop(context: Rendering, value: Any, weight: int) -> Any:
    if isinstance(value, Iterator):
        value = list(value)
    try:
        context.spend(len(value) * weight)
    except TypeError:
        raise FilterError(f"a for needs a list, not {_WORDS.get(type(value), 'this value')}") from None
    return value


@pass_context
def _built(context: Rendering, value: Any) -> Any:
    context.spend(1 + build_steps(value))
    return value


@pass_context
def _compared(context: Rendering, value: Any) -> Any:
    context.spend(1 + compare_steps(value))
    return value


@pass_context
def _searched(context: Rendering, value: Any) -> Any:
    return value if isinstance(value, Mapping) else _compared(context, value)


def _counted_test(test: Any, guard: Callable[[Rendering, Any], Any]) -> Callable[..., bool]:
    return pass_context(lambda context, value, other: test(value, guard(context, other)))


def _slice(value: Any, start: int | None, stop: int | None, step: int | None) -> Any:
    return value[start:stop:step]


@pass_context
def _finalize(context: Rendering, value: Any) -> str:
    """How an output reads in a text."""
    if type(value) is str:
        return value
    text = text_of(value)
    context.spend(steps(text))
    return text


_GLOBALS: dict[str, Any] = {"range": bounded_range, "namespace": Namespace}
ENVIRONMENT = Environment(undefined=StrictUndefined, finalize=_finalize, autoescape=False, cache_size=0)
ENVIRONMENT.globals = _GLOBALS
ENVIRONMENT.filters = {name: _counted(JINJA_FILTERS[name], compares=name in _COMPARING) for name in _DATA_FILTERS}
ENVIRONMENT.filters |= {name: _counted(JINJA_FILTERS[name], on_text=True) for name in _TEXT_FILTERS}
ENVIRONMENT.filters |= {name: _counted(function) for name, function in FILTERS.items()}
FILTER_NAMES = frozenset(ENVIRONMENT.filters)
ENVIRONMENT.tests |= {name: _counted_test(JINJA_TESTS[name], _compared) for name in _COMPARISONS}
ENVIRONMENT.tests["in"] = _counted_test(JINJA_TESTS["in"], _searched)
ENVIRONMENT.filters |= {"_compared": _compared, "_searched": _searched}
ENVIRONMENT.filters |= {"_built": _built, "_loop": _loop, "_slice": _counted(_slice)}
_EVALUATION = EvalContext(ENVIRONMENT)
GLOBAL_NAMES = frozenset(_GLOBALS)
