"""Which names each template of a definition sees."""

import pytest

from coordinator.language.compiler import compile_definition
from coordinator.language.errors import DefinitionError

TOOL = {"tool": "t"}
INPUTS = {"question": {"type": "string"}, "items": {"type": "array"}}


def check(stages, **more):
    return compile_definition({"name": "flow", "inputs": INPUTS, "stages": stages, **more})


def refusal(stages, **more) -> str:
    with pytest.raises(DefinitionError) as caught:
        check(stages, **more)
    return str(caught.value)


def reading(text, **keys):
    """A tool stage with a template that reads `text`."""
    return {"tool": "t", "args": {"x": "{{ " + text + " }}"}, **keys}


def test_upstream_is_what_needs_reaches_through_others_too():
    stages = {"a": TOOL, "b": {**TOOL, "needs": ["a"]}, "c": reading("a.output ~ b.status", needs=["b"]), "d": TOOL}
    compiled = check(stages)
    assert compiled.stages["c"].body.args.names == {"a", "b"}
    stages["c"] = reading("d.output", needs=["b"])
    assert refusal(stages) == (
        "stages.c.args.x: the stage 'd' is not upstream of this one and may not have ended; needs must reach it"
    )


def test_an_unknown_name_is_told_what_is_visible():
    assert refusal({"draft": TOOL, "b": reading("drft.output", needs=["draft"])}) == (
        "stages.b.args.x: 'drft' is not visible here; visible are: draft, inputs; did you mean 'draft'?"
    )
    assert refusal({"a": reading("zzz")}) == "stages.a.args.x: 'zzz' is not visible here; visible are: inputs"


def test_a_stage_does_not_see_itself():
    assert refusal({"a": reading("a.output")}).startswith("stages.a.args.x: the stage 'a' is not upstream")


def test_keys_of_stages_and_inputs_are_known():
    assert refusal({"a": TOOL, "b": reading("a.outptu", needs=["a"])}) == (
        "stages.b.args.x: a.outptu does not exist; did you mean 'output'?"
    )
    assert refusal({"a": reading("inputs['qestion']")}) == (
        "stages.a.args.x: inputs.qestion does not exist; did you mean 'question'?"
    )
    # A name that the template sets itself is not the stage or the inputs.
    check({"a": {"prompt": "{% for inputs in inputs.items %}{{ inputs.anything }}{% endfor %}"}})
    check({"a": {"prompt": "{% set b = {'c': 1} %}{{ b.c }}"}, "b": TOOL})


def test_the_scopes_around_are_visible_inside_a_group():
    inner = {"x": TOOL, "y": reading("a.output ~ x.output ~ inputs.question", needs=["x"])}
    check({"a": TOOL, "g": {"needs": ["a"], "stages": inner}})
    assert refusal({"a": TOOL, "g": {"stages": inner}}).startswith(
        "stages.g.stages.y.args.x: the stage 'a' is not upstream"
    )
    assert refusal({"g": {"stages": {"x": reading("g.output")}}}).startswith("stages.g.stages.x.args.x: the stage 'g'")


def test_the_inside_of_a_group_is_not_visible_outside():
    assert refusal({"g": {"stages": {"x": TOOL}}, "b": reading("x.output", needs=["g"])}).startswith(
        "stages.b.args.x: 'x' is not visible here"
    )
    assert refusal({"g": {"stages": {"x": TOOL}}}, output="x.output").startswith("output: 'x' is not visible here")


def test_two_groups_may_use_the_same_names_inside():
    check({"g": {"stages": {"x": TOOL}}, "h": {"stages": {"x": TOOL}}})


def test_output_sees_all_stages_of_its_scope():
    check({"a": TOOL, "b": {**TOOL, "needs": ["a"]}}, output="[a.output, b.status, inputs.items]")
    check(
        {"a": TOOL, "g": {"needs": ["a"], "stages": {"x": TOOL, "y": TOOL}, "output": "x.output ~ y.output ~ a.output"}}
    )
    assert refusal({"g": {"stages": {"x": TOOL}, "output": "output"}}).startswith(
        "stages.g.output: 'output' is not visible"
    )


def test_for_each_shows_the_element_and_index_inside_only():
    inside = {"stages": {"x": reading("[table.name, index]", when="table.big")}, "output": "table ~ x.output"}
    check({"a": TOOL, "g": {"needs": ["a"], "for_each": "a.output", "as": "table", **inside}})
    check({"a": reading("[item.x, index]", for_each="inputs.items")})
    assert refusal({"a": reading("item", for_each=[1], **{"as": "table"})}).startswith(
        "stages.a.args.x: 'item' is not visible"
    )
    assert refusal({"a": {**TOOL, "for_each": "item"}}).startswith("stages.a.for_each: 'item' is not visible")
    assert refusal({"a": {**TOOL, "for_each": [1], "when": "item"}}).startswith("stages.a.when: 'item' is not visible")
    assert refusal({"a": TOOL, "b": reading("item")}).startswith("stages.b.args.x: 'item' is not visible")


def test_an_inner_element_hides_an_outer_one():
    check({"g": {"for_each": [[1]], "stages": {"x": reading("item", for_each="item")}}})


def test_repeat_shows_round_and_previous_inside_only():
    check({"g": {"repeat": {"while": "round < 2", "max": 3}, "stages": {"x": reading("[round, previous.x]")}}})
    assert refusal({"a": {**TOOL, "repeat": {"while": "true", "max": 3}, "when": "round"}}).startswith(
        "stages.a.when: 'round' is not visible"
    )
    assert refusal({"a": reading("previous")}).startswith("stages.a.args.x: 'previous' is not visible")


def test_while_sees_the_round_just_ended():
    def repeated(condition, **stage):
        return check({"a": TOOL, "r": {"needs": ["a"], "repeat": {"while": condition, "max": 3}, **stage}})

    repeated("output.retry and round < 2 and previous is defined and a.output", **TOOL)
    repeated("output or item or index", for_each=[1], **TOOL)
    names = repeated("x.output.error or output", stages={"x": TOOL}).stages["r"].repeat.condition.names
    assert names == {"x", "output"}
    with pytest.raises(DefinitionError, match=r"^stages\.r\.repeat\.while: the stage 'r' is not upstream"):
        repeated("r.output", **TOOL)
    with pytest.raises(DefinitionError, match=r"^stages\.r\.repeat\.while: 'x' is not visible"):
        repeated("x.output", stages={"g": {"stages": {"x": TOOL}}})


def test_globals_are_no_names():
    compiled = check({"a": reading("range(2)|list")})
    assert compiled.stages["a"].body.args.names == frozenset()
