"""The built-in data set: databases made the same every time, questions whose gold SQL holds; and BIRD folders."""

import json
import shutil
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from hexgen_flow.text2sql import databases
from hexgen_flow.text2sql.databases import materialise
from hexgen_flow.text2sql.dataset import DataError, Dataset, load_dataset, load_questions
from workers.tools.registry import ToolContext
from workers.tools.sql import execute


@pytest.fixture(scope="module")
def built_in(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return load_dataset(None, tmp_path_factory.mktemp("data"))


def dump(url: str) -> list[str]:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        return list(connection.iterdump())


def test_there_are_forty_questions_in_birds_format_half_of_each_database() -> None:
    entries = json.loads((Path(databases.__file__).parent / "questions.json").read_text(encoding="utf-8"))
    keys = {"question_id", "db_id", "question", "evidence", "SQL", "difficulty"}
    assert all(set(entry) == keys for entry in entries)
    assert [entry["question_id"] for entry in entries] == list(range(40))
    assert Counter(entry["db_id"] for entry in entries) == {"bank": 20, "racing": 20}
    assert Counter(entry["difficulty"] for entry in entries) == {"simple": 14, "moderate": 16, "challenging": 10}
    assert len({entry["question"] for entry in entries}) == 40


def test_every_gold_query_gives_rows_of_its_own(built_in: Dataset) -> None:
    context = ToolContext(built_in.databases)
    results: Counter[str] = Counter()
    for question in built_in.questions:
        answer = execute({"database": question.database, "sql": question.sql, "row_limit": 100}, context)
        assert answer["error"] is None, question
        assert answer["row_count"] >= 1, question
        assert not answer["truncated"], question
        assert any(value is not None for row in answer["rows"] for value in row), question
        results[f"{question.database} {answer['rows']}"] += 1
    assert results.most_common(1)[0][1] == 1


def test_gold_that_takes_the_first_row_leaves_no_tie(built_in: Dataset) -> None:
    context, checked = ToolContext(built_in.databases), 0
    for question in built_in.questions:
        head, limit, most = question.sql.rpartition(" LIMIT ")
        if not limit:
            continue
        # The same query with its order as the last column, and without its end.
        order = head.rpartition(" ORDER BY ")[2].removesuffix(" DESC")
        start, _, rest = head.rpartition(" FROM ")
        rows = execute({"database": question.database, "sql": f"{start}, {order} AS rank FROM {rest}"}, context)["rows"]
        assert rows[int(most) - 1][-1] != rows[int(most)][-1], question
        checked += 1
    assert checked >= 10


def test_the_databases_have_a_realistic_size_and_whole_references(built_in: Dataset) -> None:
    for url in built_in.databases.values():
        with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
            names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            rows = sum(connection.execute(f"SELECT COUNT(*) FROM {name}").fetchone()[0] for name in names)
            assert len(names) == 9
            assert 3_000 < rows < 10_000
            assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def test_the_bank_keeps_its_books(built_in: Dataset) -> None:
    sql = """
        SELECT COUNT(*) FROM (
          SELECT balance_cents - LAG(balance_cents) OVER (PARTITION BY account_id ORDER BY transaction_id) AS change,
                 CASE direction WHEN 'C' THEN amount_cents ELSE -amount_cents END AS booked
          FROM transactions)
        WHERE change <> booked
    """
    assert execute({"database": "bank", "sql": sql}, ToolContext(built_in.databases))["rows"] == [[0]]


def test_the_same_rows_are_made_every_time(built_in: Dataset, tmp_path: Path) -> None:
    again = materialise(tmp_path)
    assert {name: dump(url) for name, url in again.items()} == {
        name: dump(url) for name, url in built_in.databases.items()
    }


def test_what_is_there_stays_and_what_is_damaged_is_made_again(tmp_path: Path) -> None:
    materialise(tmp_path)
    bank, racing = tmp_path / "bank" / "bank.sqlite", tmp_path / "racing" / "racing.sqlite"
    before = bank.stat()
    racing.write_text("half a database")
    materialise(tmp_path)
    assert bank.stat().st_ino == before.st_ino
    assert racing.read_bytes().startswith(b"SQLite format 3")
    assert [file.name for file in (tmp_path / "racing").iterdir()] == ["racing.sqlite"]


def test_an_older_version_is_made_again(tmp_path: Path) -> None:
    materialise(tmp_path)
    with closing(sqlite3.connect(tmp_path / "bank" / "bank.sqlite")) as connection:
        connection.execute("PRAGMA user_version = 0")
        connection.execute("DELETE FROM loans")
        connection.commit()
    url = materialise(tmp_path)["bank"]
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection:
        assert connection.execute("SELECT COUNT(*) FROM loans").fetchone() == (170,)


def bird(
    folder: Path, built_in: Dataset, entries: list[dict[str, object]] | None = None, name: str = "dev.json"
) -> Path:
    folder.mkdir()
    given = entries or [{"db_id": "bank", "question": "How many?", "evidence": "", "SQL": "SELECT 1"}]
    (folder / name).write_text(json.dumps(given))
    (folder / "dev_databases" / "bank").mkdir(parents=True)
    path = built_in.databases["bank"].removeprefix("sqlite:///")
    shutil.copy(path, folder / "dev_databases" / "bank" / "bank.sqlite")
    return folder


@pytest.mark.parametrize("name", ["dev.json", "mini_dev.json", "mini_dev_sqlite.json"])
def test_a_bird_folder_is_loaded(tmp_path: Path, built_in: Dataset, name: str) -> None:
    folder = bird(tmp_path / "bird", built_in, name=name)
    dataset = load_dataset(folder, tmp_path / "unused")
    assert [(question.id, question.text, question.difficulty) for question in dataset.questions] == [
        (0, "How many?", "")
    ]
    answer = execute({"database": "bank", "sql": "SELECT COUNT(*) FROM loans"}, ToolContext(dataset.databases))
    assert answer["rows"] == [[170]]
    assert not (tmp_path / "unused").exists()


def test_a_relative_bird_folder_gives_absolute_urls(
    tmp_path: Path, built_in: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    bird(tmp_path / "bird", built_in)
    monkeypatch.chdir(tmp_path)
    assert load_dataset(Path("bird"), tmp_path).databases["bank"].startswith(f"sqlite:///{tmp_path}")


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("text", "question 0 must be an object"),
        ({"db_id": "bank", "SQL": "SELECT 1"}, "question 0 needs a text under 'question'"),
        ({"db_id": "bank", "question": "x", "SQL": " "}, "question 0 needs a text under 'SQL'"),
        ({"db_id": "bank", "question": "x", "SQL": "y", "question_id": "1"}, "whole number under 'question_id'"),
        (
            {"db_id": "shop", "question": "x", "SQL": "y"},
            "1 databases of the questions are missing, the first at .*shop",
        ),
    ],
)
def test_a_fault_in_a_bird_folder_is_named(tmp_path: Path, built_in: Dataset, entry: object, said: str) -> None:
    folder = bird(tmp_path / "bird", built_in, [entry])  # type: ignore[list-item]
    with pytest.raises(DataError, match=said):
        load_dataset(folder, tmp_path)


def test_a_folder_or_file_that_is_no_data_set_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"is no BIRD folder: it holds none of dev\.json"):
        load_questions(tmp_path)
    (tmp_path / "dev.json").write_text("{")
    with pytest.raises(DataError, match=r"dev.json cannot be read as JSON"):
        load_questions(tmp_path)
    (tmp_path / "dev.json").write_text("[]")
    with pytest.raises(DataError, match="must hold a list of questions"):
        load_questions(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be made in .*file"):
        load_dataset(None, tmp_path / "file")
