"""`sql.describe`: which tables it keeps and what it writes about them."""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from hexgen_flow.text2sql.databases import materialise
from workers.tools.registry import ToolContext, ToolError
from workers.tools.sql import describe
from workers.tools.sql_relevance import words

CHAIN = """
CREATE TABLE authors (id INTEGER PRIMARY KEY, surname TEXT);
CREATE TABLE writing (author_id INTEGER REFERENCES authors (id), edition_id INTEGER REFERENCES editions (id), PRIMARY KEY (author_id, edition_id));
CREATE TABLE editions (id INTEGER PRIMARY KEY, shop INTEGER, shelf INTEGER, FOREIGN KEY (shop, shelf) REFERENCES shelves (shop, shelf));
CREATE TABLE shelves (shop INTEGER, shelf INTEGER, room TEXT, PRIMARY KEY (shop, shelf));
CREATE TABLE "opening hours" (day TEXT, "from" INTEGER);
CREATE VIEW rooms AS SELECT DISTINCT room FROM shelves;
INSERT INTO authors VALUES (1, 'Lindqvist'), (2, 'Okafor');
INSERT INTO shelves VALUES (1, 1, 'cellar'), (1, 2, 'attic');
INSERT INTO "opening hours" VALUES ('Monday', 9);
"""  # noqa: E501


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ToolContext:
    folder = tmp_path_factory.mktemp("describe")
    with closing(sqlite3.connect(folder / "books.sqlite")) as connection:
        connection.executescript(CHAIN)
    return ToolContext({**materialise(folder), "books": f"sqlite:///{folder / 'books.sqlite'}"})


def ask(context: ToolContext, database: str, **args: Any) -> dict[str, Any]:
    answer = describe({"database": database, **args}, context)
    assert isinstance(answer, dict)
    assert set(answer) == {"schema", "tables", "values"}
    return answer


def test_columns_come_with_type_key_comment_and_values(context: ToolContext) -> None:
    schema = ask(context, "bank", keywords=["districts", "clients"])["schema"]
    assert "CREATE TABLE clients (" in schema
    assert "  client_id INTEGER PRIMARY KEY, -- values: 1, 2, 3" in schema
    assert "  district_id INTEGER REFERENCES districts (district_id), -- where the client lives; values: " in schema
    assert "  sex INTEGER, -- ISO 5218 code; values: " in schema


def test_all_values_of_a_code_are_shown_and_long_ones_shortened(context: ToolContext) -> None:
    schema = ask(context, "bank", question="loans", samples=4)["schema"]
    state = next(line for line in schema.splitlines() if line.startswith("  state TEXT"))
    assert all(code in state.split("values: ")[1] for code in ("PD", "DF", "RN", "LT"))


def test_only_tables_that_matter_are_kept(context: ToolContext) -> None:
    asked = "How many clients live in the Lakeland region?"
    tables = ask(context, "bank", question=asked, keywords=["clients", "Lakeland region"])["tables"]
    assert {"clients", "districts"} <= set(tables)
    assert not {"loans", "standing_orders", "transactions"} & set(tables)


def test_a_value_deep_in_a_table_finds_it_and_is_shown(context: ToolContext) -> None:
    answer = ask(context, "bank", keywords=["2023-04-11"], max_tables=1)
    assert answer["tables"] == ["transactions"]
    assert "values: 2023-04-11" in answer["schema"]


def test_tables_needed_to_join_are_kept_beyond_the_bound(context: ToolContext) -> None:
    tables = ask(context, "books", keywords=["surname Lindqvist", "shelves in the cellar"], max_tables=2)["tables"]
    assert tables == ["authors", "editions", "shelves", "writing"]


def test_wide_keys_odd_names_and_views_are_written(context: ToolContext) -> None:
    answer = ask(context, "books")
    assert answer["tables"] == ["authors", "editions", "opening hours", "shelves", "writing", "rooms"]
    assert "  PRIMARY KEY (author_id, edition_id)" in answer["schema"]
    assert "  FOREIGN KEY (shop, shelf) REFERENCES shelves (shop, shelf)" in answer["schema"]
    assert 'CREATE TABLE "opening hours" (\n  day TEXT, -- values: Monday\n' in answer["schema"]
    assert "room TEXT, -- values: cellar, attic" in answer["schema"]


def test_without_any_match_all_come_up_to_the_bound(context: ToolContext) -> None:
    assert len(ask(context, "racing")["tables"]) == 9
    assert len(ask(context, "racing", question="zzz qqq", max_tables=4)["tables"]) == 4


def test_comments_of_a_bird_folder_are_used(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.executescript("CREATE TABLE frpm (cdscode TEXT, xyz REAL);")
    (tmp_path / "database_description").mkdir()
    (tmp_path / "database_description" / "frpm.csv").write_text(
        "original_column_name,column_name,column_description,data_format,value_description\n"
        'cdscode,CDSCode,CDSCode,text,\nxyz ,,"share of meals, free",real,0 to 1\n',
        encoding="utf-8-sig",
    )
    context = ToolContext({"x": f"sqlite:///{tmp_path / 'x.sqlite'}"})
    answer = ask(context, "x", keywords=["meals"])
    assert "  xyz REAL, -- share of meals, free; 0 to 1" in answer["schema"]
    assert "  cdscode TEXT,\n" in answer["schema"]


def test_a_very_wide_table_keeps_its_key_and_what_was_asked_for(tmp_path: Path) -> None:
    columns = ", ".join(f"c{number} TEXT" for number in range(200))
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.executescript(f"CREATE TABLE wide ({columns}, salary REAL, id INTEGER PRIMARY KEY);")
    schema = ask(ToolContext({"x": f"sqlite:///{tmp_path / 'x.sqlite'}"}), "x", keywords=["salary"])["schema"]
    assert "  salary REAL," in schema
    assert "  id INTEGER PRIMARY KEY," in schema
    assert len(schema.splitlines()) == 62


def test_a_small_database_is_written_whole_and_the_same_for_every_question(context: ToolContext) -> None:
    some = ask(context, "bank", question="How many clients live in Lakeland?", keywords=["Lakeland"], whole_up_to=9)
    other = ask(context, "bank", question="Which loans defaulted?", keywords=["Kolar", "nowhere"], whole_up_to=9)
    assert some["schema"] == other["schema"]
    assert some["tables"] == other["tables"]
    assert len(some["tables"]) == 9
    assert some["values"] == "districts.region: Lakeland"
    assert "clients.last_name: Kolar" in other["values"]


def test_a_larger_or_wider_database_is_written_for_the_question(tmp_path: Path, context: ToolContext) -> None:
    asked = {"question": "How many clients live in Lakeland?", "keywords": ["Lakeland"]}
    assert ask(context, "bank", **asked, whole_up_to=8) == ask(context, "bank", **asked)
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.executescript(
            f"CREATE TABLE wide ({', '.join(f'column_{n}' for n in range(90))}); CREATE TABLE b (c);"
        )
    wide = ToolContext({"x": f"sqlite:///{tmp_path / 'x.sqlite'}"})
    assert "column_77" in ask(wide, "x", question="column 77", whole_up_to=9)["schema"]


def test_a_file_that_is_no_database_is_a_tool_error(tmp_path: Path) -> None:
    (tmp_path / "x.sqlite").write_text("no database at all, but long enough to be read as one " * 20)
    with pytest.raises(ToolError, match="file is not a database"):
        describe({"database": "x"}, ToolContext({"x": f"sqlite:///{tmp_path / 'x.sqlite'}"}))


def test_what_cannot_be_read_is_left_out(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "x.sqlite")) as connection:
        connection.executescript(
            "CREATE TABLE gone (a); CREATE VIEW broken AS SELECT a FROM gone; CREATE TABLE whole (b); DROP TABLE gone;"
        )
    context = ToolContext({"x": f"sqlite:///{tmp_path / 'x.sqlite'}"})
    assert ask(context, "x")["tables"] == ["whole"]


def test_an_empty_database_has_an_empty_schema(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "x.sqlite").close()
    (tmp_path / "x.sqlite").touch()
    assert ask(ToolContext({"x": f"sqlite:///{tmp_path / 'x.sqlite'}"}), "x") == {
        "schema": "",
        "tables": [],
        "values": "",
    }


def test_a_schema_that_takes_too_long_is_a_tool_error(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="the schema of 'bank' cannot be read"):
        describe({"database": "bank"}, ToolContext(context.databases, timeout_s=1e-6))


def test_wrong_arguments_are_tool_errors(context: ToolContext) -> None:
    with pytest.raises(ToolError, match="keywords must be a list of texts"):
        describe({"database": "bank", "keywords": "clients"}, context)
    with pytest.raises(ToolError, match="max_tables must be a whole number from 1"):
        describe({"database": "bank", "max_tables": 0}, context)
    with pytest.raises(ToolError, match="known are bank, books, racing"):
        describe({"database": "nope"}, context)


def test_words_are_split_lowered_and_singular() -> None:
    assert words("avgSalary of the HTTPServer, in cities_2023") == {"avg", "salary", "http", "server", "city", "2023"}
    assert words("class glass bus") == {"class", "glass", "bus"}
