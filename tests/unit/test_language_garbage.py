"""Whatever comes in, only the language's own errors come out."""

import contextlib

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from coordinator.language.compiler import compile_definition
from coordinator.language.definition import TemplateError
from coordinator.language.document import parse_document
from coordinator.language.errors import DefinitionError, InputError
from coordinator.language.grammar import SHAPES, InputShape, RepeatShape, WorkflowShape
from coordinator.language.inputs import validate_inputs
from coordinator.language.templates import compile_expression, compile_text

relaxed = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)

SHAPED = [WorkflowShape, InputShape, RepeatShape, *SHAPES.values()]
KEYS = sorted({key for shape in SHAPED for key in shape.known_keys()} | {"role", "content", "a", "b", "optional", "é"})
WORDS = [
    "all",
    "user",
    "any",
    "string",
    "item",
    "a.output",
    "{{ inputs.a }}",
    "{{ a.output }}",
    "{{",
    "{% for",
    "round < 2",
]

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from([*WORDS, *KEYS])
    | st.sampled_from([1, 2, object(), b"x", (1,), {1: 2}, "\ud800", 1 << 70])
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=4)
        | st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2)
    ),
    max_leaves=12,
)
some_stages = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.fixed_dictionaries(
        {},
        optional={
            "tool": st.sampled_from(["t", "sql.execute"]) | values,
            "prompt": st.sampled_from(WORDS),
            "stages": st.dictionaries(st.sampled_from(["x", "y", "a"]), st.just({"tool": "t"}) | values, max_size=2),
            "needs": st.lists(st.sampled_from(["a", "b", "c"]), max_size=2),
            "when": st.sampled_from(WORDS),
            "for_each": st.sampled_from([*WORDS, []]) | values,
            "as": st.sampled_from(["a", "x", "item", "index"]),
            "repeat": st.just({"while": "output", "max": 2}) | values,
            "args": values,
        },
    ),
    max_size=3,
)
documents = values | st.fixed_dictionaries(
    {"name": st.just("flow"), "stages": some_stages},
    optional={"inputs": values, "output": st.sampled_from(WORDS), "description": values},
)
SNIPPETS = [
    "{{", "}}", "{%", "%}", "{#", "#}", " if ", " for ", " in ", " else ", "endfor", "endif", " set ", "=", "a",
    "inputs",
    ".", "|", "(", ")", "[", "]", ":", ",", "'x'", "1", "join", "map", "upper", " is ", "defined", "~", "+", "*", "**",
    "-", "not ", " and ", "range", "loop", "\n", "with", "raw", "None", "{", "}", "code_block", "tojson", "__class__",
]  # fmt: skip
sources = st.lists(st.sampled_from(SNIPPETS), max_size=12).map("".join)


@relaxed
@given(documents)
def test_any_document_compiles_or_is_refused(document):
    fault = None
    try:
        compiled = compile_definition(document)
    except DefinitionError as error:
        fault = error
    if fault:
        assert fault.path
        assert fault.message
        assert str(fault).encode()
    else:
        assert compile_definition(compiled.document).digest == compiled.digest


@relaxed
@given(
    st.text(max_size=60)
    | sources
    | st.lists(st.sampled_from(list("a1:-[]{}&*!?|>'\"%@`#,\n ~.\t\\")), max_size=30).map("".join)
)
def test_any_text_parses_or_is_refused(text):
    with contextlib.suppress(DefinitionError):
        assert isinstance(parse_document(text), dict)


@relaxed
@given(sources)
def test_any_template_renders_or_fails_in_one_way(source):
    context = {"a": {"output": [1, "x"], "status": "completed"}, "inputs": {"x": None}}
    for compile_ in (compile_text, compile_expression):
        for written in (source, "{{ " + source + " }}"):
            with contextlib.suppress(DefinitionError, TemplateError):
                compile_(written, "at").render(context)


@relaxed
@given(values)
def test_any_inputs_fit_or_are_refused(inputs):
    declared = {"a": {"type": "object", "default": {}}, "b": {"type": "any"}}
    definition = compile_definition({"name": "flow", "inputs": declared, "stages": {"a": {"tool": "t"}}})
    with contextlib.suppress(InputError):
        assert set(validate_inputs(definition, inputs)) == {"a", "b"}
