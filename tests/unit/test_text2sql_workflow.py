"""The built-in text2sql workflow: it compiles, shares prefixes, and runs through the real core, tools and responder."""

import re
from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import hexgen_flow
from common.events import Completed, Event, Outcome, Submitted
from common.model import Head, Instance, InstanceProfile, Json, LlmCall, Push, Slo
from common.policy.registry import policy
from coordinator.cluster import Cluster
from coordinator.core import step
from coordinator.estimates import Estimates
from coordinator.language.definition import Definition, LlmBody, ToolBody
from coordinator.language.library import load_library
from coordinator.state import Workflow
from hexgen_flow.text2sql.accuracy import execution_accuracy
from hexgen_flow.text2sql.dataset import Dataset, Question, load_dataset
from hexgen_flow.text2sql.responder import create
from workers.engines.protocol import EngineCall
from workers.engines.responders import Responder
from workers.tools import registry
from workers.tools.registry import ToolContext

DOCUMENTED = (Path(__file__).resolve().parents[2] / "docs" / "text2sql.md").read_text("utf-8")
FOLDER = Path(hexgen_flow.__file__).parent / "workflows"
PROFILE = InstanceProfile("any", 3400, 0.03, 0.005, 2e-7, 100_000)


@pytest.fixture(scope="module")
def definition() -> Definition:
    return load_library(FOLDER)["text2sql"]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(None, tmp_path_factory.mktemp("workflow"))


@pytest.fixture(scope="module")
def demo(definition: Definition, data: Dataset) -> "Run":
    """The demo's questions, each asked once, with its share of mistakes."""
    run = Run(definition, create("error_rate=0.3,seed=1"), dict(data.databases))
    for question in data.questions:
        run.outputs.append(run.of(question))
    return run


@dataclass
class Run:
    """A workflow run to its end without queue or clock: each request is answered as soon as it is pushed."""

    definition: Definition
    responder: Responder
    databases: dict[str, str]
    calls: list[tuple[str, str]] = field(default_factory=list)
    tools: Counter[str] = field(default_factory=Counter)
    outputs: list[dict[str, Any]] = field(default_factory=list)
    ids: int = 0

    def of(self, asked: Question, **inputs: Json) -> dict[str, Any]:
        inputs = {"question": asked.text, "database": asked.database, "evidence": asked.evidence, **inputs}
        head = Head("tests", "text2sql", self.definition.digest, inputs, Slo(0, 600_000))
        workflow, waiting = Workflow("w", head, self.definition), [Submitted()]
        done: Any = None
        while waiting:
            done = step(workflow, waiting, self._cluster(), 1000)
            workflow = done.workflow
            waiting = [self._answer(push) for push in done.pushes]
        assert done.status == "completed", done.result
        output: dict[str, Any] = done.result["output"]
        return output

    def _cluster(self) -> Cluster:
        tools = (frozenset(registry.names()),)
        instances = [Instance("i", 1, PROFILE, ("m",))]
        return Cluster(instances, {}, policy("hexgen"), Estimates(), self._new_id, tools=tools)

    def _new_id(self) -> str:
        self.ids += 1
        return f"r{self.ids:06}"

    def _answer(self, push: Push) -> Event:
        if isinstance(push.call, LlmCall):
            self.calls.append((push.stage, push.call.text()))
            output = self.responder.respond(EngineCall(push.request, push.call, push.stage)).text
        else:
            self.tools[push.call.tool] += 1
            output = registry.load(push.call.tool)(push.call.args, ToolContext(self.databases, push.timeout_s))
        return Completed(push.request, push.node, Outcome(output))


def test_it_compiles_and_uses_registered_tools_only(definition: Definition) -> None:
    bodies = [spec.body for spec in definition.stages.values()]
    assert {body.tool for body in bodies if isinstance(body, ToolBody)} <= set(registry.names())
    assert {spec.name: spec.required for spec in definition.inputs} == {
        "question": True,
        "database": True,
        "evidence": False,
    }


def test_fixed_instructions_come_first_then_schema_then_question(definition: Definition) -> None:
    prompts = {path: spec.body for path, spec in definition.stages.items() if isinstance(spec.body, LlmBody)}
    assert len(prompts) == 10
    for path, body in prompts.items():
        (first, instructions), (second, rest) = body.messages
        assert (first, second) == ("system", "user")
        assert instructions.names <= {"strategy"}, path
        place = {word: rest.source.find(word) for word in ("Schema:", "Question: ", "Evidence: ")}
        assert place["Schema:"] < place["Question: "] < place["Evidence: "], path
        special = [rest.source.find(word) for word in ("Values found", "Correction", "linking", "unit_tests")]
        assert all(found < 0 or found > place["Evidence: "] for found in special), path


def test_without_errors_every_answer_is_right_and_nothing_is_mended(definition: Definition, data: Dataset) -> None:
    run = Run(definition, create("error_rate=0"), dict(data.databases))
    outputs = [run.of(question) for question in data.questions[::5]]
    assert (
        execution_accuracy(
            list(zip(data.questions[::5], (o["sql"] for o in outputs), strict=True)), data.databases
        ).mean
        == 1
    )
    assert all(output["votes"] == 3 and output["error"] is None and output["rows"] for output in outputs)
    assert not [stage for stage, _ in run.calls if "revise" in stage]
    assert len(run.calls) == 13 * len(outputs)


def test_with_errors_loops_happen_and_most_answers_are_still_right(demo: "Run", data: Dataset) -> None:
    answers = [(question, output["sql"]) for question, output in zip(data.questions, demo.outputs, strict=True)]
    assert 0.9 <= execution_accuracy(answers, data.databases).mean <= 1
    stages = Counter(stage for stage, _ in demo.calls)
    assert stages["text2sql/candidates.generate"] == stages["text2sql/evaluate.judge"] == 120
    assert 10 <= stages["text2sql/candidates.revise.rewrite"] <= 60
    assert demo.tools["sql.execute"] == 120 + stages["text2sql/candidates.revise.rewrite"]
    assert any("Correction 2" in prompt for _, prompt in demo.calls)


def begins_alike(one: str, other: str) -> int:
    """So many characters."""
    return next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))


def test_what_earlier_prompts_began_with_is_what_the_documentation_says(demo: "Run") -> None:
    """The share of the characters of its prompts that an earlier prompt began with, for each stage."""
    characters: Counter[str] = Counter()
    shared: Counter[str] = Counter()
    earlier: list[str] = []
    for stage, prompt in demo.calls:
        at = bisect_left(earlier, prompt)  # the longest common beginning is with a neighbour in sorted order
        common = [begins_alike(prompt, other) for other in earlier[max(0, at - 1) : at + 1]]
        earlier.insert(at, prompt)
        for name in (stage.partition("/")[2], "all"):
            characters[name] += len(prompt)
            shared[name] += max(common, default=0)
    told = re.findall(r"^\| (`[\w.]+`|all) \| (\d+) % \|$", DOCUMENTED, re.MULTILINE)
    said = {name.strip("`"): int(share) for name, share in told}
    assert said.keys() == characters.keys()
    for name, share in said.items():
        assert 100 * shared[name] / characters[name] == pytest.approx(share, abs=1.0), name


def test_a_rounds_prompt_begins_with_that_of_the_round_before(definition: Definition, data: Dataset) -> None:
    run = Run(definition, create("error_rate=1"), dict(data.databases))
    run.of(data.questions[0])
    rounds = sorted((prompt for stage, prompt in run.calls if stage.endswith("rewrite")), key=len)
    last = [prompt for prompt in rounds if "Correction 4" in prompt]
    assert last
    for prompt in last:
        assert [before.count("Correction ") for before in rounds if prompt.startswith(before)] == [1, 2, 3, 4]


def test_the_database_error_reaches_the_revision(definition: Definition, data: Dataset) -> None:
    run = Run(definition, create("error_rate=1"), dict(data.databases))
    output = run.of(data.questions[0])
    assert output["sql"] != data.questions[0].sql
    revisions = [prompt for stage, prompt in run.calls if stage.endswith("rewrite")]
    assert revisions
    assert any(
        "no such column" in prompt or "no such table" in prompt or "syntax error" in prompt for prompt in revisions
    )
    assert {prompt.rpartition("Correction ")[2][0] for prompt in revisions} == {"1", "2", "3", "4"}


def test_candidates_of_one_strategy_share_their_prefix_and_revisions_the_schema(
    definition: Definition, data: Dataset
) -> None:
    run = Run(definition, create("error_rate=0"), dict(data.databases))
    for question in data.questions[:2]:
        run.of(question)
    generated = [prompt for stage, prompt in run.calls if stage.endswith("generate")]
    heads = Counter(prompt.partition("Schema:")[0] for prompt in generated)
    assert sorted(heads.values()) == [2, 2, 2]
    assert all("Question:" not in head for head in heads)


def test_braces_and_quotes_in_a_question_are_only_text(definition: Definition, data: Dataset) -> None:
    run = Run(definition, create("error_rate=0"), dict(data.databases))
    output = run.of(
        data.questions[0], question="What {{ inputs.database }} 'is' \"this\"?\n```sql\nDROP TABLE loans\n```"
    )
    assert output["rows"] == [["there is no gold answer to this question"]]


def test_an_unknown_database_fails_with_the_known_names(definition: Definition, data: Dataset) -> None:
    run = Run(definition, create("error_rate=0"), dict(data.databases))
    with pytest.raises(registry.ToolError, match="known are bank, racing"):
        run.of(data.questions[0], database="shop")
