"""The simulated engine's answers: stated error rate, same call same answer, published lengths."""

import json
import random
from pathlib import Path
from statistics import mean

import pytest

from common.model import LlmCall, Sampling
from hexgen_flow.text2sql import lengths, mistakes
from hexgen_flow.text2sql.accuracy import is_correct
from hexgen_flow.text2sql.dataset import Dataset, Question, load_dataset
from hexgen_flow.text2sql.lengths import Lengths
from hexgen_flow.text2sql.responder import create, parse
from workers.engines.protocol import EngineCall, EngineError
from workers.engines.responders import Answer, Responder, load_responder
from workers.tools.registry import ToolContext
from workers.tools.sql import execute


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(None, tmp_path_factory.mktemp("responder"))


def ask(responder: Responder, stage: str, question: Question, more: str = "", max_tokens: int = 1 << 20) -> Answer:
    messages = (
        {"role": "system", "content": "Question: not this one\nEvidence: none\nInstructions."},
        {"role": "user", "content": f"Question: {question.text}\nEvidence: {question.evidence or 'none'}\n{more}"},
    )
    call = LlmCall(None, messages, None, Sampling(max_tokens=max_tokens))
    return responder.respond(EngineCall("any id", call, f"text2sql/{stage}"))


def sql_in(answer: Answer) -> str:
    assert answer.text.endswith("\n```")
    return answer.text.partition("```sql\n")[2].removesuffix("\n```")


def test_without_errors_every_candidate_is_gold(data: Dataset) -> None:
    responder = create("error_rate=0")
    for question in data.questions:
        assert sql_in(ask(responder, "candidates.generate", question)) == question.sql
        assert sql_in(ask(responder, "candidates.revise.rewrite", question)) == question.sql


def test_the_error_rate_is_kept_and_both_kinds_of_error_happen(data: Dataset) -> None:
    responder, context = create("error_rate=0.3,seed=5"), ToolContext(data.databases)
    kinds = {"right": 0, "fails": 0, "wrong": 0}
    for question in data.questions:
        for attempt in range(10):
            sql = sql_in(ask(responder, "candidates.generate", question, f"attempt {attempt}"))
            answer = execute({"database": question.database, "sql": sql}, context)
            kinds["right" if sql == question.sql else "fails" if answer["error"] else "wrong"] += 1
    assert kinds["right"] / 400 == pytest.approx(0.7, abs=0.06)
    assert kinds["fails"] / 400 == pytest.approx(0.18, abs=0.06)
    assert kinds["wrong"] / 400 == pytest.approx(0.12, abs=0.06)


def test_a_revision_is_gold_or_fails_again(data: Dataset) -> None:
    responder, context = create("error_rate=0.5"), ToolContext(data.databases)
    right = 0
    for question in data.questions:
        sql = sql_in(ask(responder, "candidates.revise.rewrite", question, "Correction 1."))
        right += sql == question.sql
        assert sql == question.sql or execute({"database": question.database, "sql": sql}, context)["error"]
    assert 10 <= right <= 30


def test_the_same_call_gets_the_same_answer_and_another_seed_others(data: Dataset) -> None:
    def answers(option: str) -> list[Answer]:
        responder = create(option)
        return [ask(responder, "candidates.generate", question) for question in data.questions]

    assert answers("error_rate=0.5,seed=1") == answers("error_rate=0.5,seed=1")
    assert answers("error_rate=0.5,seed=1") != answers("error_rate=0.5,seed=2")


def test_the_judge_knows_gold_from_other_queries(data: Dataset) -> None:
    responder = create("error_rate=0.2")

    def scores(sql: str) -> list[int]:
        judged = [ask(responder, "evaluate.judge", q, f"Query:\n```sql\n{sql or q.sql}\n```") for q in data.questions]
        return [int(answer.text.split()[0]) for answer in judged]

    high, low = scores(""), scores("SELECT 1")
    assert all(0 <= score <= 10 for score in high + low)
    assert sum(score >= 8 for score in high) >= 30
    assert sum(score <= 4 for score in low) >= 30


@pytest.mark.parametrize(
    "stage",
    [
        "retrieval.shape",
        "retrieval.keywords",
        "retrieval.entities",
        "retrieval.columns",
        "retrieval.formula",
        "linking",
    ],
)
def test_the_small_stages_answer_about_the_question(data: Dataset, stage: str) -> None:
    answers = [ask(create(), stage, question).text for question in data.questions]
    assert all(answers)
    assert len(set(answers)) > (2 if stage in ("retrieval.shape", "retrieval.formula") else 20)


def test_linking_names_the_tables_of_gold_and_tests_are_a_list(data: Dataset) -> None:
    question = data.questions[0]
    assert "clients: " in ask(create(), "linking", question).text
    tests = ask(create(), "unit_tests", question).text.splitlines()
    assert len(tests) >= 2
    assert all(line.startswith("- ") for line in tests)


def test_an_unknown_question_or_stage_gets_an_honest_answer(data: Dataset) -> None:
    stranger = Question(0, "bank", "What is the meaning of it all?", "", "", "")
    assert "no gold answer" in sql_in(ask(create("error_rate=0"), "candidates.generate", stranger))
    assert "text2sql workflow only" in ask(create(), "summary", data.questions[0]).text
    bare = EngineCall("id", LlmCall("Hello", None, None, Sampling()), "other/generate")
    assert "no gold answer" in create("error_rate=0").respond(bare).text


@pytest.mark.parametrize(
    "published",
    [
        lengths.RETRIEVER,
        lengths.KEYWORDS,
        lengths.CANDIDATE,
        lengths.REVISE,
        lengths.UNIT_TEST,
        lengths.EVALUATE,
    ],
)
def test_lengths_have_the_published_mean_and_95th_percentile(published: Lengths) -> None:
    rng = random.Random(7)
    drawn = sorted(published.draw(rng) for _ in range(20_000))
    assert mean(drawn) == pytest.approx(published.mean, rel=0.03)
    assert drawn[19_000] == pytest.approx(published.p95, rel=0.05)
    assert drawn[0] >= 1


def test_lengths_do_not_depend_on_the_text_and_stay_below_max_tokens(data: Dataset) -> None:
    responder = create("error_rate=0")
    drawn = [ask(responder, "candidates.generate", q, str(n)).output_tokens for q in data.questions for n in range(10)]
    assert mean(drawn) == pytest.approx(696, rel=0.1)
    capped = [ask(responder, "candidates.generate", q, max_tokens=500).output_tokens for q in data.questions]
    assert max(capped) == 500


def test_options_and_the_registered_name() -> None:
    assert parse("error_rate=0.1, seed=4").seed == 4
    assert parse("").error_rate == 0.3
    assert type(load_responder("text2sql:error_rate=0.5")) is type(create(""))


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("rate=1", "there is no option 'rate'; known are error_rate, seed, data"),
        ("error_rate=2", "between 0 and 1"),
        ("error_rate=nan", "between 0 and 1"),
        ("seed=x", "seed a whole number"),
        ("data=/nowhere", "is no BIRD folder"),
    ],
)
def test_a_wrong_option_is_named(option: str, said: str) -> None:
    with pytest.raises(EngineError, match=said) as caught:
        create(option)
    assert not caught.value.retryable


def test_gold_of_a_bird_folder_is_used(tmp_path: Path) -> None:
    entry = {"db_id": "shop", "question": "How many\n shops?", "evidence": "", "SQL": "SELECT COUNT(*) FROM shops"}
    (tmp_path / "dev.json").write_text(json.dumps([entry]))
    asked = Question(0, "shop", "How many  shops?", "", "", "")
    answer = ask(create(f"error_rate=0,data={tmp_path}"), "candidates.generate", asked)
    assert sql_in(answer) == "SELECT COUNT(*) FROM shops"


def test_mistakes_fail_or_mislead_as_they_say(data: Dataset) -> None:
    context, rng, still_right = ToolContext(data.databases), random.Random(3), 0
    for question in data.questions:
        for _ in range(5):
            broken = mistakes.failing(question.sql, rng)
            assert execute({"database": question.database, "sql": broken}, context)["error"]
            wrong = mistakes.misleading(question.sql, rng)
            assert execute({"database": question.database, "sql": wrong}, context)["error"] is None
            still_right += is_correct(question, wrong, data.databases)
    assert still_right <= 4


def test_mistakes_work_on_what_cannot_be_parsed() -> None:
    assert mistakes.failing("SELECT (", random.Random(0)) == "SELECT ( FROM"
    assert mistakes.misleading("SELECT 1;", random.Random(0)) == "SELECT * FROM (SELECT 1) AS answer LIMIT 0"
