"""Answers for the simulated engine: gold SQL with a stated error rate, so that a workflow's loops really happen.

Every answer follows from the seed, the stage and the prompt alone: the same call gives the same answer in any process.
Knows the stages of the built-in text2sql workflow by their last name, and no engine, queue or clock.
"""

import hashlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from hexgen_flow.text2sql import lengths, mistakes
from hexgen_flow.text2sql.dataset import DataError, Question, load_questions
from hexgen_flow.text2sql.gold import names_of, tables_of
from workers.engines.protocol import EngineCall, EngineError
from workers.engines.responders import Answer, Responder

_QUESTION = re.compile(r"^Question: (.*?)$\s*^Evidence:", re.MULTILINE | re.DOTALL)
_VALUE = re.compile(r"'([^']+)'|\b(\d{2,})\b")
_FAILING_SHARE = 0.6
_UNKNOWN = Question(-1, "", "", "", "SELECT 'there is no gold answer to this question' AS answer", "")


@dataclass(frozen=True, slots=True)
class Options:
    """How to answer: the share of wrong candidates and revisions, the seed, a BIRD folder (none: the built-in data)."""

    error_rate: float = 0.3
    seed: int = 0
    data: Path | None = None


def create(option: str = "") -> Responder:
    """A responder from text such as "error_rate=0.3,seed=1,data=DIR". Raises EngineError naming the wrong option."""
    options = parse(option)
    try:
        return Text2SqlResponder(load_questions(options.data), options)
    except DataError as error:
        raise _wrong(f"data: {error}") from None


def parse(option: str) -> Options:
    """The options in `name=value,...`. Raises EngineError."""
    given: dict[str, str] = {}
    for part in filter(None, option.split(",")):
        name, _, value = part.partition("=")
        given[name.strip()] = value.strip()
    known = [field.name for field in fields(Options)]
    for name in given:
        if name not in known:
            raise _wrong(f"there is no option {name!r}; known are {', '.join(known)}")
    try:
        rate, seed = float(given.get("error_rate", "0.3")), int(given.get("seed", "0"))
    except ValueError as error:
        raise _wrong(f"error_rate must be a number and seed a whole number: {error}") from None
    if not 0 <= rate <= 1:
        raise _wrong(f"error_rate must lie between 0 and 1, not at {rate:g}")
    return Options(rate, seed, Path(given["data"]) if given.get("data") else None)


def _wrong(reason: str) -> EngineError:
    return EngineError(f"responder text2sql: {reason}", retryable=False)


class Text2SqlResponder:
    """Plays the language model of a Text-to-SQL workflow over known questions."""

    def __init__(self, questions: Sequence[Question], options: Options) -> None:
        self._by_text = {_squeezed(question.text): question for question in reversed(questions)}
        self._options = options

    def respond(self, call: EngineCall) -> Answer:
        """An answer in kind; the number of output tokens follows published statistics, not the text's length."""
        prompt = call.call.text()
        stage = call.stage.rpartition("/")[2].rpartition(".")[2]
        reply, kind = _KINDS.get(stage, (_refuse, lengths.RETRIEVER))
        digest = hashlib.sha256(f"{self._options.seed}\n{call.stage}\n{prompt}".encode()).digest()
        rng = random.Random(int.from_bytes(digest, "big"))
        text = reply(_Task(self._question(prompt), prompt, self._options.error_rate, rng))
        # Never beyond max_tokens: the engine would cut the text there, and an answer cut by chance is no stated error.
        return Answer(text, min(kind.draw(rng), call.call.sampling.max_tokens))

    def _question(self, prompt: str) -> Question:
        asked = _QUESTION.findall(prompt)
        return self._by_text.get(_squeezed(asked[-1]), _UNKNOWN) if asked else _UNKNOWN


@dataclass(frozen=True, slots=True)
class _Task:
    question: Question
    prompt: str
    error_rate: float
    rng: random.Random

    def errs(self, share: float = 1.0) -> bool:
        return self.rng.random() < share * self.error_rate


def _candidate(task: _Task) -> str:
    sql = task.question.sql
    if task.errs():
        fails = task.rng.random() < _FAILING_SHARE
        sql = mistakes.failing(sql, task.rng) if fails else mistakes.misleading(sql, task.rng)
    return f"The tables are {', '.join(tables_of(task.question.sql)) or 'not known'}.\n{_fenced(sql)}"


def _revision(task: _Task) -> str:
    sql = mistakes.failing(task.question.sql, task.rng) if task.errs() else task.question.sql
    return f"The cause is found and mended.\n{_fenced(sql)}"


def _score(task: _Task) -> str:
    right = _squeezed(task.question.sql) in _squeezed(task.prompt)
    # A judge errs less often than the analyst it judges.
    if right != task.errs(0.5):
        return f"{task.rng.randint(8, 10)}\nThe result fulfils the statements."
    return f"{task.rng.randint(0, 4)}\nThe result breaks one of the statements."


def _unit_tests(task: _Task) -> str:
    tables = tables_of(task.question.sql)
    statements = ["The result holds only the columns asked for.", "No row comes back twice."]
    statements += [f"The rows of {table} are joined by their key." for table in tables[1:]]
    statements += [f"Only rows with {value} count." for value in _values(task.question)]
    return "\n".join(f"- {statement}" for statement in statements[:5])


def _linking(task: _Task) -> str:
    columns = ", ".join(names_of(task.question.sql))
    return "\n".join(f"{table}: {columns}" for table in tables_of(task.question.sql)) or "none"


def _shape(task: _Task) -> str:
    if task.question.text.startswith("How many"):
        return "one number"
    return "a few rows" if "LIMIT" not in task.question.sql else "one row"


def _keywords(task: _Task) -> str:
    long_words = [word.strip("?.,;'\"") for word in task.question.text.split() if len(word) > 4]
    return "\n".join(dict.fromkeys((*long_words, *_values(task.question)))) or "none"


def _entities(task: _Task) -> str:
    return "\n".join(_values(task.question)[:5]) or "none"


def _columns(task: _Task) -> str:
    return "\n".join(names_of(task.question.sql)[:5]) or "none"


def _formula(task: _Task) -> str:
    for part in task.question.evidence.split(";"):
        if " = " in part and ("/" in part or "*" in part or " - " in part):
            return part.strip()
    return "none"


def _refuse(_task: _Task) -> str:
    return "This simulated engine answers the stages of the text2sql workflow only."


def _values(question: Question) -> list[str]:
    found = _VALUE.findall(f"{question.evidence} {question.text}")
    return list(dict.fromkeys(text or number for text, number in found))


def _fenced(sql: str) -> str:
    return f"```sql\n{sql}\n```"


def _squeezed(text: str) -> str:
    return " ".join(text.split())


_KINDS: dict[str, tuple[Callable[[_Task], str], lengths.Lengths]] = {
    "shape": (_shape, lengths.RETRIEVER),
    "keywords": (_keywords, lengths.KEYWORDS),
    "entities": (_entities, lengths.RETRIEVER),
    "columns": (_columns, lengths.RETRIEVER),
    "formula": (_formula, lengths.RETRIEVER),
    # No published figure: a short list of names, about as long as a list of unit tests.
    "linking": (_linking, lengths.UNIT_TEST),
    "generate": (_candidate, lengths.CANDIDATE),
    "rewrite": (_revision, lengths.REVISE),
    "unit_tests": (_unit_tests, lengths.UNIT_TEST),
    "judge": (_score, lengths.EVALUATE),
}
