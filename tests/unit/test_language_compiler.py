"""What a definition compiles to, and each rule it can break with the path of the fault."""

import math

import pytest

from coordinator.language.compiler import compile_definition
from coordinator.language.definition import GroupBody, LlmBody, ToolBody
from coordinator.language.document import document_digest
from coordinator.language.errors import DefinitionError

TOOL = {"tool": "t"}
LLM = {"prompt": "p"}


def definition(stages, **more):
    return compile_definition({"name": "flow", "stages": stages, **more})


def refusal(stages, **more) -> str:
    with pytest.raises(DefinitionError) as caught:
        definition(stages, **more)
    assert str(caught.value) == f"{caught.value.path}: {caught.value.message}"
    return str(caught.value)


def names(group):
    return [stage.name for stage in group.stages]


class TestResult:
    def test_llm(self):
        stage = definition({"a": LLM}).stages["a"]
        assert (stage.name, stage.path, stage.needs, stage.timeout_s, stage.retries) == ("a", "a", (), 600.0, 2)
        assert (stage.when, stage.for_each, stage.element, stage.repeat) == (None, None, "item", None)
        assert isinstance(stage.body, LlmBody)
        assert stage.body.prompt.render({}) == "p"
        assert stage.body.messages == ()
        assert (stage.body.max_tokens, stage.body.temperature, stage.body.top_p) == (512, 0.0, 1.0)
        assert (stage.body.model, stage.body.requires, stage.body.stop, stage.body.seed) == (
            None,
            frozenset(),
            (),
            None,
        )
        assert (stage.body.json_schema, stage.body.expected_output_tokens) == (None, None)

    def test_llm_with_all_keys(self):
        raw = {
            "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "{{ inputs.q }}"}],
            "model": "sql-7b",
            "requires": ["fp16"],
            "json_schema": {"type": "object"},
            "max_tokens": 64,
            "temperature": 0.5,
            "top_p": 0.9,
            "stop": [";"],
            "seed": 7,
            "expect": {"output_tokens": 30},
            "timeout_s": 30,
            "retries": 0,
            "join": "all",
        }
        stage = definition({"a": raw}, inputs={"q": {"type": "string"}}).stages["a"]
        body = stage.body
        assert body.prompt is None
        assert [(role, content.render({"inputs": {"q": "Q"}})) for role, content in body.messages] == [
            ("system", "Be brief."),
            ("user", "Q"),
        ]
        assert (body.model, body.requires, body.json_schema) == ("sql-7b", frozenset({"fp16"}), {"type": "object"})
        assert (body.max_tokens, body.temperature, body.top_p, body.stop, body.seed) == (64, 0.5, 0.9, (";",), 7)
        assert (body.expected_output_tokens, stage.timeout_s, stage.retries) == (30, 30.0, 0)

    def test_tool(self):
        stage = definition(
            {"a": {"tool": "sql.execute", "args": {"n": "{{ 1 + 1 }}"}, "expect": {"seconds": 2}}}
        ).stages["a"]
        assert isinstance(stage.body, ToolBody)
        assert (stage.body.tool, stage.body.args.render({}), stage.body.expected_s) == ("sql.execute", {"n": 2}, 2.0)
        assert stage.timeout_s == 60.0
        assert definition({"a": TOOL}).stages["a"].body.args.render({}) == {}

    def test_group_and_paths(self):
        compiled = definition(
            {"g": {"stages": {"a": TOOL, "h": {"stages": {"b": TOOL}}}, "output": "a.output"}, "c": TOOL},
            output="g.output",
        )
        assert set(compiled.stages) == {"g", "g.a", "g.h", "g.h.b", "c"}
        assert all(path == stage.path for path, stage in compiled.stages.items())
        group = compiled.stages["g"]
        assert isinstance(group.body, GroupBody)
        assert group.body.output.render({"a": {"output": 5}}) == 5
        assert (group.timeout_s, group.retries) == (math.inf, 0)
        assert compiled.root.output.render({"g": {"output": 6}}) == 6
        assert compiled.root.stages == (compiled.stages["g"], compiled.stages["c"])

    def test_stages_come_after_what_they_need_and_else_in_their_order(self):
        compiled = definition(
            {
                "last": {**TOOL, "needs": ["b", "a"]},
                "b": TOOL,
                "c": {**TOOL, "needs": ["a"]},
                "a": TOOL,
                "d": TOOL,
            }
        )
        assert names(compiled.root) == ["b", "a", "last", "c", "d"]
        assert compiled.root.sinks == ("last", "c", "d")
        assert compiled.stages["last"].needs == ("b", "a")

    def test_the_document_is_kept_and_compiles_to_the_same(self):
        document = {"name": "flow", "stages": {"b": TOOL, "a": {**TOOL, "args": {"x": [1]}}}}
        compiled = compile_definition(document)
        document["stages"]["a"]["args"]["x"].append(2)
        assert compiled.document["stages"]["a"]["args"] == {"x": [1]}
        assert list(compiled.document["stages"]) == ["b", "a"]
        assert compiled.digest == document_digest(compiled.document)
        assert compile_definition(compiled.document).digest == compiled.digest
        assert compile_definition(document).digest != compiled.digest

    def test_repeat_and_for_each(self):
        raw = {**TOOL, "for_each": [1, 2], "as": "n", "repeat": {"while": "output < n", "max": 3}}
        stage = definition({"a": raw}).stages["a"]
        assert stage.for_each.render({}) == [1, 2]
        assert stage.element == "n"
        assert stage.repeat.most == 3
        assert stage.repeat.condition.render({"output": 1, "n": 2}) is True

    @pytest.mark.parametrize(("join", "kept"), [("all", "all"), ("first_success", "first_success"), ({"quorum": 2}, 2)])
    def test_joins(self, join, kept):
        assert definition({"a": {**TOOL, "for_each": [1, 2], "join": join}}).stages["a"].join == kept

    def test_a_stage_is_optional_if_it_says_so(self):
        compiled = definition({"a": {**TOOL, "optional": True}, "b": TOOL})
        assert [compiled.stages[name].optional for name in "ab"] == [True, False]

    def test_true_and_false_are_expressions(self):
        assert definition({"a": {**TOOL, "when": False}}).stages["a"].when.render({}) is False

    def test_keys_set_to_null_are_as_if_left_out(self):
        stage = definition({"a": {**TOOL, "when": None, "repeat": None, "for_each": None, "timeout_s": None}}).stages[
            "a"
        ]
        assert (stage.when, stage.repeat, stage.for_each, stage.timeout_s) == (None, None, None, 60.0)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "document: must be a mapping"),
        ([], "document: must be a mapping"),
        ({}, "name: is missing"),
        ({"name": "a"}, "stages: is missing"),
        ({"name": 1, "stages": {"a": TOOL}}, "name: must be text, not 1"),
        ({"name": "a b", "stages": {"a": TOOL}}, "name: 'a b' must be 1 to 64 letters"),
        ({"name": "-a", "stages": {"a": TOOL}}, "name: '-a' must be 1 to 64 letters"),
        ({"name": "a" * 65, "stages": {"a": TOOL}}, "name: "),
        ({"name": "a", "stages": {}}, "stages: must hold at least one stage"),
        ({"name": "a", "stages": []}, "stages: must be a mapping, not a list"),
        ({"name": "a", "stage": {}}, "stage: is not a key here; did you mean 'stages'?"),
        (
            {"name": "a", "stages": {"a": TOOL}, "zzz": 1},
            "zzz: is not a key here; there are: description, inputs, name",
        ),
        ({"name": "a", "stages": {"a": TOOL}, "description": 1}, "description: must be text, not 1"),
        ({"name": "a", "stages": {"a": TOOL}, "output": 1}, "output: must be an expression, written as text, not 1"),
        ({"name": "a", "stages": {"a": {"tool": object()}}}, "stages.a.tool: a object is not a JSON value"),
    ],
)
def test_faults_of_the_document(document, message):
    with pytest.raises(DefinitionError) as caught:
        compile_definition(document)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("stage", "message"),
    [
        (1, "stages.a: must be a mapping, not 1"),
        ({}, "stages.a: is of no kind: a stage has either prompt or messages (llm), or tool (tool), or stages"),
        ({"needs": []}, "stages.a: is of no kind: "),
        ({"promt": "x"}, "stages.a.promt: is not a key of a stage; did you mean 'prompt'?"),
        ({**LLM, **TOOL}, "stages.a: has prompt and tool: a stage has either"),
        ({**LLM, "messages": []}, "stages.a: has prompt and messages: a stage has either"),
        ({**TOOL, "stages": {}}, "stages.a: has tool and stages: "),
        ({**LLM, "max_token": 1}, "stages.a.max_token: is not a key here; did you mean 'max_tokens'?"),
        ({**TOOL, "max_tokens": 1}, "stages.a.max_tokens: is a key of llm stages; this is a stage of kind tool"),
        ({**LLM, "args": {}}, "stages.a.args: is a key of tool stages; this is a stage of kind llm"),
        ({"stages": {"b": TOOL}, "timeout_s": 1}, "stages.a.timeout_s: is a key of llm and tool stages"),
        ({"stages": {"b": TOOL}, "retries": 1}, "stages.a.retries: is a key of llm and tool stages"),
        ({**TOOL, "output": "x"}, "stages.a.output: is a key of group stages; this is a stage of kind tool"),
        ({**TOOL, "optional": 1}, "stages.a.optional: must be true or false, not 1"),
        ({**TOOL, "join": "first"}, "stages.a.join: must be all, first_success or {quorum: k}, not 'first'"),
        ({**TOOL, "join": {"quorum": 2, "of": 3}}, "stages.a.join: must be all, first_success or {quorum: k}, not a"),
        ({**TOOL, "join": {"quorum": 0}}, "stages.a.join.quorum: must be an integer from 1 to 1000, not 0"),
        ({**TOOL, "join": {"quorum": True}}, "stages.a.join.quorum: must be an integer from 1 to 1000, not true"),
        ({**TOOL, "join": {"quorum": 1001}}, "stages.a.join.quorum: must be an integer from 1 to 1000, not 1001"),
        ({**TOOL, "join": "first_success"}, "stages.a.join: joins the copies of a for_each, which is missing"),
        ({**TOOL, "join": "first_success", "for_each": []}, "stages.a.join: wants more copies than the 0 of for_each"),
        ({**TOOL, "join": {"quorum": 3}, "for_each": [1, 2]}, "stages.a.join: wants more copies than the 2 of"),
        ({"prompt": None}, "stages.a.prompt: must not be null"),
        ({"prompt": ["x"]}, "stages.a.prompt: must be text, not a list"),
        ({"messages": None}, "stages.a.messages: must not be null"),
        ({"messages": []}, "stages.a.messages: must not be empty"),
        ({"messages": [{"role": "user"}]}, "stages.a.messages.0.content: is missing"),
        ({"messages": [{"role": "bot", "content": ""}]}, "stages.a.messages.0.role: must be 'system', 'user' or"),
        ({"messages": [{"role": "user", "content": "", "nam": 1}]}, "stages.a.messages.0.nam: is not a key here; "),
        ({"messages": [{"role": "user", "content": "{{"}]}, "stages.a.messages.0.content: line 1: "),
        ({**LLM, "max_tokens": "5"}, "stages.a.max_tokens: must be an integer, not '5'"),
        ({**LLM, "max_tokens": True}, "stages.a.max_tokens: must be an integer, not true"),
        ({**LLM, "max_tokens": 0}, "stages.a.max_tokens: must be at least 1, not 0"),
        ({**LLM, "temperature": -1}, "stages.a.temperature: must be at least 0"),
        ({**LLM, "temperature": "hot"}, "stages.a.temperature: must be a number, not 'hot'"),
        ({**LLM, "top_p": 0}, "stages.a.top_p: must be greater than 0"),
        ({**LLM, "top_p": 1.1}, "stages.a.top_p: must be at most 1"),
        ({**LLM, "stop": ";"}, "stages.a.stop: must be a list, not ';'"),
        ({**LLM, "stop": [""]}, "stages.a.stop.0: must not be empty"),
        ({**LLM, "stop": [str(n) for n in range(17)]}, "stages.a.stop: must have at most 16 elements"),
        ({**LLM, "requires": ["x", "x"]}, "stages.a.requires: names 'x' twice"),
        ({**LLM, "requires": ["very fast"]}, "stages.a.requires.0: 'very fast' is no label that a worker can have"),
        ({**LLM, "requires": ["x", ""]}, "stages.a.requires.1: '' is no label that a worker can have"),
        ({**LLM, "requires": ["x" * 129]}, "stages.a.requires.0: "),
        ({**LLM, "model": ""}, "stages.a.model: '' is no name that a model can have: 1 to 256 printable"),
        ({**LLM, "model": " m"}, "stages.a.model: ' m' is no name that a model can have"),
        ({**LLM, "seed": -1}, "stages.a.seed: must be at least 0"),
        ({**LLM, "json_schema": True}, "stages.a.json_schema: must be a mapping, not true"),
        ({**LLM, "expect": {"seconds": 1}}, "stages.a.expect.seconds: is not a key here; there are: output_tokens"),
        ({**LLM, "expect": {"output_tokens": 0}}, "stages.a.expect.output_tokens: must be at least 1"),
        ({**TOOL, "expect": {"output_tokens": 1}}, "stages.a.expect.output_tokens: is not a key here; "),
        ({**TOOL, "expect": {}}, "stages.a.expect.seconds: is missing"),
        ({"tool": "sql..x"}, "stages.a.tool: 'sql..x' is no tool name"),
        ({"tool": "sql.1"}, "stages.a.tool: 'sql.1' is no tool name"),
        ({"tool": "os/x"}, "stages.a.tool: 'os/x' is no tool name"),
        ({"tool": ""}, "stages.a.tool: '' is no tool name"),
        ({**TOOL, "args": ["x"]}, "stages.a.args: must be a mapping, not a list"),
        ({**TOOL, "args": {"x": ["{{ a b }}"]}}, "stages.a.args.x.0: line 1: "),
        ({**TOOL, "timeout_s": 0}, "stages.a.timeout_s: must be greater than 0"),
        ({**TOOL, "timeout_s": -1.5}, "stages.a.timeout_s: must be greater than 0"),
        ({**TOOL, "timeout_s": 1e6}, "stages.a.timeout_s: must be at most 86400"),
        ({**TOOL, "timeout_s": math.inf}, "stages.a.timeout_s: inf is not a JSON number"),
        ({**TOOL, "retries": -1}, "stages.a.retries: must be at least 0"),
        ({**TOOL, "retries": 11}, "stages.a.retries: must be at most 10"),
        ({**TOOL, "retries": 1.5}, "stages.a.retries: must be an integer, not 1.5"),
        ({**TOOL, "repeat": {"while": "true"}}, "stages.a.repeat.max: is missing"),
        ({**TOOL, "repeat": {"max": 3}}, "stages.a.repeat.while: is missing"),
        ({**TOOL, "repeat": {"while": "true", "max": 0}}, "stages.a.repeat.max: must be at least 1"),
        ({**TOOL, "repeat": {"while": "true", "max": 101}}, "stages.a.repeat.max: must be at most 100"),
        ({**TOOL, "repeat": {"until": "x", "max": 1}}, "stages.a.repeat.until: is not a key here; there are: "),
        ({**TOOL, "repeat": 3}, "stages.a.repeat: must be a mapping, not 3"),
        ({**TOOL, "repeat": {"while": "a b", "max": 1}}, "stages.a.repeat.while: line 1: "),
        ({**TOOL, "when": "{{ true }}"}, "stages.a.when: is a bare expression: leave the braces {{ }} out"),
        ({**TOOL, "when": 1}, "stages.a.when: must be an expression, written as text, not 1"),
        ({**TOOL, "for_each": {"a": 1}}, "stages.a.for_each: must be an expression, written as text, not a mapping"),
        ({**TOOL, "for_each": [0] * 1001}, "stages.a.for_each: has 1001 elements; at most 1000 are allowed"),
        ({**TOOL, "for_each": "a b"}, "stages.a.for_each: line 1: "),
        ({**TOOL, "as": "x"}, "stages.a.as: names the element of a for_each, which is missing"),
        ({**TOOL, "for_each": [], "as": "a"}, "stages.a.as: 'a' is a stage's name; choose another"),
        ({**TOOL, "for_each": [], "as": "index"}, "stages.a.as: the name 'index' is reserved"),
        ({**TOOL, "for_each": [], "as": "a-b"}, "stages.a.as: 'a-b' is no name"),
        ({**TOOL, "needs": "b"}, "stages.a.needs: must be a list, not 'b'"),
        ({**TOOL, "needs": [1]}, "stages.a.needs.0: must be text, not 1"),
        ({**TOOL, "needs": ["a"]}, "stages.a.needs: a stage cannot need itself"),
        ({**TOOL, "needs": ["aa"]}, "stages.a.needs: 'aa' is no stage of this scope; "),
        ({"stages": {"b": {**TOOL, "needs": ["a"]}}}, "stages.a.stages.b.needs: 'a' is no stage of this scope"),
        ({"stages": {"b": {"stages": {"c": {"prompt": "{{"}}}}}, "stages.a.stages.b.stages.c.prompt: line 1: "),
        ({"stages": {"b": TOOL}, "output": "{{"}, "stages.a.output: is a bare expression"),
        ({"stages": {}}, "stages.a.stages: must hold at least one stage"),
        ({"stages": {"a": TOOL}}, "stages.a.stages.a: is already a stage or element outside; choose another name"),
        ({"stages": {"x": TOOL}, "for_each": [], "as": "x"}, "stages.a.stages.x: is already a stage or element"),
        ({"ke\ny": 1, **TOOL}, "stages.a.'ke\\ny': is not a key here"),
    ],
)  # fmt: skip
def test_faults_of_a_stage(stage, message):
    assert refusal({"a": stage}).startswith(message)


def test_needs_are_of_the_same_scope_unique_and_known():
    assert refusal({"draft": TOOL, "run": {**TOOL, "needs": ["drft"]}}) == (
        "stages.run.needs: 'drft' is no stage of this scope; did you mean 'draft'?"
    )
    assert refusal({"a": TOOL, "b": {**TOOL, "needs": ["a", "a"]}}) == "stages.b.needs: names 'a' twice"
    assert refusal({"g": {"stages": {"x": TOOL}}, "b": {**TOOL, "needs": ["x"]}}).startswith(
        "stages.b.needs: 'x' is no stage"
    )


def test_cycles_are_named():
    stages = {
        "start": TOOL,
        "behind": {**TOOL, "needs": ["b"]},
        "a": {**TOOL, "needs": ["start", "c"]},
        "b": {**TOOL, "needs": ["a"]},
        "c": {**TOOL, "needs": ["start", "b"]},
    }
    assert refusal(stages) == "stages.b.needs: goes round in a circle: b -> a -> c -> b"
    assert refusal({"g": {"stages": {"a": {**TOOL, "needs": ["b"]}, "b": {**TOOL, "needs": ["a"]}}}}) == (
        "stages.g.stages.a.needs: goes round in a circle: a -> b -> a"
    )


@pytest.mark.parametrize(
    "name",
    [
        "inputs",
        "item",
        "index",
        "round",
        "previous",
        "output",
        "status",
        "range",
        "loop",
        "self",
        "not",
        "none",
        "class",
    ],
)
def test_reserved_names(name):
    assert refusal({name: TOOL}) == f"stages.{name}: the name {name!r} is reserved; choose another"


@pytest.mark.parametrize("name", ["a-b", "1a", "_a", "", "a b", "é", "a.b", "a" * 65, "a\n"])
def test_names_are_words(name):
    assert "is no name: 1 to 64 letters, digits and _, beginning with a letter" in refusal({name: TOOL})
    assert "is no name" in refusal({"a": TOOL}, inputs={name: {"type": "any"}})


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ([], "inputs: must be a mapping, not a list"),
        ({"x": "string"}, "inputs.x: must be a mapping, not 'string'"),
        ({"x": {}}, "inputs.x.type: is missing"),
        ({"x": {"type": "text"}}, "inputs.x.type: must be 'string', 'number', "),
        ({"x": {"type": "string", "defualt": 1}}, "inputs.x.defualt: is not a key here; did you mean 'default'?"),
        ({"x": {"type": "string", "default": 1}}, "inputs.x.default: must be a string, not 1"),
        ({"x": {"type": "integer", "default": True}}, "inputs.x.default: must be an integer, not true"),
        ({"loop": {"type": "any"}}, "inputs.loop: the name 'loop' is reserved"),
    ],
)
def test_faults_of_inputs(inputs, message):
    assert refusal({"a": TOOL}, inputs=inputs).startswith(message)


def test_bounds_of_a_definition():
    assert len(definition({f"s{n}": TOOL for n in range(200)}).stages) == 200
    many = {f"g{n}": {"stages": {f"s{m}": TOOL for m in range(19)}} for n in range(11)}
    assert refusal(many).endswith("a definition has at most 200 stages, all groups together")
    assert refusal({"a": {"prompt": "x" * 200_000}, "b": {"prompt": "x" * 100_000}}) == (
        "stages.b.prompt: a definition has at most 262144 characters of templates, all together"
    )
    half = ["{{ inputs }}"] * 2_500 + ["{% if inputs %}{% endif %}"] * 500
    assert refusal({"a": {"prompt": "".join(half)}, "b": {"tool": "t", "args": {"x": half}}}) == (
        "stages.b.args: a definition has at most 5000 '{{' and '{%', all together"
    )
    deep = TOOL
    for n in range(20):
        deep = {"stages": {f"s{n}": deep}}
    assert refusal({"a": deep}).endswith("is nested deeper than 32 levels")
    assert refusal({"a": {"tool": "t", "args": {"x": "y" * (1 << 20)}}}).endswith("larger than 1048576 bytes")


def test_messages_stay_short_whatever_the_document_holds():
    fault = refusal({"a": {**TOOL, "x" * 10_000: 1}})
    assert len(fault) < 1000
    assert len(refusal({"a": {**TOOL, "when": "y" * 10_000}})) < 1000
