"""The three kinds of template: what they render, which names they read, and how they fail."""

from types import MappingProxyType

import pytest

from coordinator.language.definition import TemplateError
from coordinator.language.errors import DefinitionError
from coordinator.language.templates import compile_elements, compile_expression, compile_native, compile_text

CONTEXT = {
    "inputs": {"question": "How many?", "database": "bank", "n": 3, "items": [1, 2]},
    "run": {"output": {"error": None, "sql": "SELECT 1", "rows": [[1, "a"], [2, "b"]]}, "status": "completed"},
    "draft": {"output": "Here:\n```sql\nSELECT 2\n```\n", "status": "completed"},
    "previous": None,
}


def text(source, **names):
    return compile_text(source, "at").render({**CONTEXT, **names})


def value(source, **names):
    return compile_expression(source, "at").render({**CONTEXT, **names})


def native(tree, **names):
    return compile_native(tree, "args").render({**CONTEXT, **names})


def failure(compile_, source, **names) -> str:
    template = compile_(source, "at")
    with pytest.raises(TemplateError) as caught:
        template.render({**CONTEXT, **names})
    return str(caught.value)


def refusal(compile_, source) -> str:
    with pytest.raises(DefinitionError) as caught:
        compile_(source, "at")
    return str(caught.value)


class TestText:
    @pytest.mark.parametrize(
        ("source", "rendered"),
        [
            ("Write: {{ inputs.question }}", "Write: How many?"),
            ("no template, 100 % { } as it is", "no template, 100 % { } as it is"),
            ("one last line end is dropped\n", "one last line end is dropped"),
            ("{{ draft.output | code_block('sql') }};", "SELECT 2;"),
            ("{% for row in run.output.rows %}{{ loop.index }}:{{ row[1] }} {% endfor %}", "1:a 2:b "),
            ("{% for key, part in inputs|dictsort %}{{ key }} {% endfor %}", "database items n question "),
            ("{% set x = inputs.n + 1 %}{% with y = x * 2 %}{{ y }}{% endwith %}", "8"),
            ("{% if previous %}a{% elif inputs.n > 2 %}b{% else %}c{% endif %}", "b"),
            ("{# nothing #}{% raw %}{{ x }}{% endraw %}", "{{ x }}"),
            ("{{ none }} {{ true }} {{ 1.5 }} {{ run.output.rows }}", 'null true 1.5 [[1, "a"], [2, "b"]]'),
            ("{{ 'a' ~ 1 ~ none }}{{ 'x' if previous }}", "a1null"),
            ("<{{ '<b> & \"c\"' }}>", '<<b> & "c">'),
        ],
    )
    def test_renders(self, source, rendered):
        assert text(source) == rendered

    def test_names_are_what_it_reads_from_its_context(self):
        source = (
            "{% set own = run.output %}{% for x in inputs.items %}{{ x ~ own ~ range(2) ~ loop.index }}{% endfor %}"
        )
        assert compile_text(source, "at").names == {"run", "inputs"}
        assert compile_text("nothing", "at").names == frozenset()

    def test_fails_on_what_is_missing_naming_place_and_keys(self):
        assert (
            failure(compile_text, "{{ run.output.sqll }}") == "at: there is no key 'sqll'; there are: error, rows, sql"
        )
        assert failure(compile_text, "{{ run.output.error.code }}") == "at: null has no key 'code'"
        assert failure(compile_text, "{{ draft.output.sql }}") == "at: a text has no key 'sql'"
        assert failure(compile_text, "{{ run.output.rows[7] }}") == "at: a list of 2 has no element 7"
        assert failure(compile_text, "{{ nobody }}") == "at: 'nobody' is undefined"
        assert failure(compile_text, "{{ [run.output.nope] }}").startswith("at: there is no key 'nope'")

    def test_any_error_of_python_becomes_one_sentence(self):
        assert failure(compile_text, "{{ 1 / 0 }}") == "at: ZeroDivisionError: division by zero"
        assert failure(compile_text, "{{ 'a' + 1 }}").startswith("at: TypeError: ")
        assert failure(compile_text, "{% for x in inputs.n %}{% endfor %}") == "at: a for needs a list, not a number"

    def test_stops_at_a_mebibyte(self):
        line = "x" * 1024
        assert len(text("{% for i in range(1000) %}{{ line }}{% endfor %}", line=line)) == 1_024_000
        loops = "{% for i in range(1000) %}{% for j in range(9) %}{{ line }}{% endfor %}{% endfor %}"
        assert failure(compile_text, loops, line=line) == "at: the rendered text is longer than 1048576 bytes"
        # Bytes count, not characters.
        assert failure(compile_text, "{{ e }}", e="é" * 600_000) == "at: the rendered text is longer than 1048576 bytes"

    def test_stops_early_rather_than_after_all_work(self):
        pulled = []

        class Rows(list):
            def __iter__(self):
                for row in super().__iter__():
                    pulled.append(1)
                    yield row

        failure(compile_text, "{% for row in rows %}{{ row }}{% endfor %}", rows=Rows(["x" * 100_000] * 1000))
        assert len(pulled) == 11

    def test_text_that_utf8_cannot_carry_fails(self):
        expected = "at: holds half of a surrogate pair, which UTF-8 cannot carry"
        assert failure(compile_text, "{{ '\\ud800' }}") == expected

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("a\n{{ b", "at: line 2: unexpected end of template, expected 'end of print statement'."),
            ("{% if x %}", "at: line 1: Unexpected end of template."),
            ("{{ x|upperr }}", "at: line 1: there is no filter 'upperr'; did you mean 'upper'?"),
            ("{{ 1 if x|nope }}", "at: line 1: there is no filter 'nope'"),
            ("{{ x is definedd }}", "at: line 1: there is no test 'definedd'; did you mean 'defined'?"),
            ("{{ " + "(" * 500 + "1" + ")" * 500 + " }}", "at: the template is nested too deeply"),
            ("{{ a" + ".b" * 3000 + " }}", "at: the template is nested too deeply"),
            ("{% for a in b %}" * 30 + "{% endfor %}" * 30, "at: the template is nested too deeply"),
            ("{{ " + "9" * 5000 + " }}", "at: the template cannot be compiled: Exceeds the limit"),
        ],
    )
    def test_refuses_what_is_no_template(self, source, message):
        assert refusal(compile_text, source).startswith(message)


class TestExpression:
    @pytest.mark.parametrize(
        ("source", "result"),
        [
            ("run.output.error", None),
            ("run.output.rows", [[1, "a"], [2, "b"]]),
            ("run.output['sql']", "SELECT 1"),
            ("inputs.items", [1, 2]),
            ("inputs.n < 5 and not previous", True),
            ("(previous.retry if previous else run.output).sql", "SELECT 1"),
            ("run.output.nope is defined", False),
            ("run.output.sql is defined", True),
            ("run.output.error.code is defined", False),
            ("run.output.nope | default('x')", "x"),
            ("previous.retry if previous", None),
            ("range(3)", [0, 1, 2]),
            ("run.output.rows | map('last') | join(',')", "a,b"),
            ("run.output.rows[1:]", [[2, "b"]]),
            ("inputs.keys() | sort", ["database", "items", "n", "question"]),
            ("{'a': (1, inputs.n)}", {"a": [1, 3]}),
            ("  1 + 1 ", 2),
            ("true", True),
        ],
    )
    def test_gives_plain_json(self, source, result):
        given = value(source)
        assert given == result
        assert type(given) is type(result)

    def test_parts_of_the_context_are_not_copied(self):
        rows = [1]
        assert value("rows", rows=rows) is rows
        assert value("(a or rows) if rows else a", rows=rows, a=None) is rows
        assert value("rows + []", rows=rows) is not rows

    def test_a_mapping_that_is_no_dict_becomes_one(self):
        assert value("stage", stage=MappingProxyType({"output": 1})) == {"output": 1}
        assert value("stage.output", stage=MappingProxyType({"output": 1})) == 1

    def test_an_object_shows_its_public_attributes_but_is_no_value(self):
        class Stage:
            status = "completed"

            def __init__(self, output):
                self._output = output

            @property
            def output(self):
                return self._output

        stage = Stage({"a": [1]})
        assert value("stage.output", stage=stage) is stage.output
        assert value("stage['output'].a[0]", stage=stage) == 1
        assert failure(compile_expression, "stage", stage=stage) == "at: a Stage is not a value"
        assert failure(compile_expression, "stage._output", stage=stage).startswith("at: access to attribute '_output'")

    def test_undefined_is_an_error(self):
        assert failure(compile_expression, "run.output.nope").startswith("at: there is no key 'nope'")
        assert failure(compile_expression, "nobody") == "at: 'nobody' is undefined"
        assert failure(compile_expression, "[run.output.nope]").startswith("at: there is no key 'nope'")
        assert failure(compile_expression, "run.output.nope or 1").startswith("at: there is no key 'nope'")

    def test_only_json_comes_out(self):
        assert failure(compile_expression, "inputs.question.upper") == "at: a function is not a value"
        assert failure(compile_expression, "namespace(a=1)") == "at: a Namespace is not a value"
        assert failure(compile_expression, "'inf'|float") == "at: inf is not a JSON number"
        assert failure(compile_expression, "2 ** 64 * 2") == "at: the integer does not fit 64 bits; write it as text"
        assert failure(compile_expression, "{1: 2}") == "at: the key 1 is not text; write it in quotes"

    def test_names(self):
        assert compile_expression("run.output if inputs.n else range(2)", "at").names == {"run", "inputs"}

    @pytest.mark.parametrize(
        ("source", "message"),
        [
            ("{{ x }}", "at: is a bare expression: leave the braces {{ }} out"),
            ("a b", "at: line 1: the expression ends before 'b'"),
            ("a }} b", "at: line 1: "),
            ("", "at: line 1: "),
            ("a +", "at: line 1: "),
        ],
    )
    def test_refuses_what_is_no_expression(self, source, message):
        assert refusal(compile_expression, source).startswith(message)


class TestElements:
    def test_lists_and_expressions(self):
        assert compile_elements([1, {"a": "{{ x }}"}], "at").render({}) == [1, {"a": "{{ x }}"}]
        assert compile_elements("inputs.items", "at").render(CONTEXT) == [1, 2]
        assert compile_elements("range(1000)", "at").render({}) == list(range(1000))

    def test_what_is_no_list_fails(self):
        assert failure(compile_elements, "inputs") == "at: must be a list, not a mapping"
        assert failure(compile_elements, "previous") == "at: must be a list, not null"

    def test_the_number_of_elements_is_bounded(self):
        message = "at: has 1001 elements; at most 1000 are allowed"
        assert refusal(compile_elements, [0] * 1001) == message
        assert failure(compile_elements, "rows", rows=[0] * 1001) == message


class TestNative:
    def test_a_sole_expression_keeps_its_type_and_all_else_is_text(self):
        args = {
            "rows": "{{ run.output.rows }}",
            "flag": "{{ inputs.n > 2 }}",
            "nothing": "{{ previous }}",
            "text": "{{ inputs.n }}!",
            "two": "{{ inputs.n }}{{ inputs.n }}",
            "spaced": " {{ inputs.n }}",
            "block": "{{ inputs.n }}\n",
            "deep": [{"x": "{{ inputs.n }}"}, "plain", 7, None],
        }
        assert native(args) == {
            "rows": [[1, "a"], [2, "b"]],
            "flag": True,
            "nothing": None,
            "text": "3!",
            "two": "33",
            "spaced": " 3",
            "block": 3,
            "deep": [{"x": 3}, "plain", 7, None],
        }
        assert compile_native(args, "args").names == {"run", "inputs", "previous"}

    def test_without_templates_it_is_the_value_itself(self):
        args = {"a": [1, "b"]}
        assert native(args) == args
        assert compile_native(args, "args").names == frozenset()

    def test_faults_name_the_argument(self):
        assert refusal(compile_native, {"a": {"b": ["", "{% if"]}}).startswith("at.a.b.1: line 1: ")
        assert (
            failure(compile_native, {"a": ["{{ run.nope }}"]})
            == "at.a.0: there is no key 'nope'; there are: output, status"
        )
