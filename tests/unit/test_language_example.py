"""The example in the documentation is a definition, and means what the text says."""

import re
from pathlib import Path

import pytest
from core_bench import Bench

from coordinator.language.compiler import compile_definition
from coordinator.language.document import parse_document
from coordinator.language.inputs import validate_inputs

PAGE = (Path(__file__).parents[2] / "docs" / "workflow-language.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def examples():
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    compiled = [compile_definition(parse_document(block)) for block in blocks]
    return {definition.name: definition for definition in compiled}


@pytest.fixture
def example(examples):
    return examples["answer"]


def test_what_the_example_of_a_quorum_gives(examples):
    bench = Bench(examples["agree"], {"question": "Is it?"})
    bench.submit()
    for index, text in ((4, "yes"), (0, "no"), (2, "yes")):
        bench.complete(f"vote[{index}]", text)
    assert bench.calls()["explain"] == "Explain these answers: no, yes, yes"
    bench.fail("explain", retryable=False)
    assert bench.output == {"votes": ["no", "yes", "yes"], "why": None}


def test_its_shape(example):
    assert example.name == "answer"
    assert list(example.stages) == ["draft", "run", "mend.rewrite", "mend.retry", "mend"]
    assert [stage.name for stage in example.root.stages] == ["draft", "run", "mend"]
    assert example.root.sinks == ("mend",)
    mend = example.stages["mend"]
    assert [stage.name for stage in mend.body.stages] == ["rewrite", "retry"]
    assert mend.body.sinks == ("retry",)
    assert mend.repeat.most == 3


def test_its_templates(example):
    inputs = validate_inputs(example, {"question": "How many?", "database": "bank"})
    context = {
        "inputs": inputs,
        "draft": {"output": "```sql\nSELECT 1\n```", "status": "completed"},
        "run": {"output": {"sql": "SELECT 1", "error": "no such table"}, "status": "completed"},
        "previous": None,
    }
    assert example.stages["draft"].body.prompt.render(context) == "Write one SQL query for: How many?"
    assert example.stages["run"].body.args.render(context) == {"database": "bank", "sql": "SELECT 1"}
    assert example.stages["mend"].when.render(context) == "no such table"
    rewrite = example.stages["mend.rewrite"].body.prompt
    assert rewrite.render(context) == "The query SELECT 1\nfailed: no such table. Write it correctly."
    again = {"retry": {"sql": "SELECT 2", "error": "no such column"}}
    assert rewrite.render({**context, "previous": again}).startswith("The query SELECT 2\nfailed: no such column.")
    assert example.stages["mend"].repeat.condition.render({"output": again}) == "no such column"
    skipped = {"mend": {"output": None, "status": "skipped"}, "run": context["run"]}
    assert example.root.output.render(skipped) == context["run"]["output"]
