"""What the guard lets through and what it refuses, with the reason."""

import pytest

from workers.tools.sql_guard import LONGEST, refusal

READING = [
    ("sqlite", "SELECT 1"),
    ("sqlite", "SELECT 1;"),
    ("sqlite", "SELECT 1; -- that is all"),
    ("sqlite", "SELECT ';DROP TABLE loans' AS harmless"),
    ("sqlite", "SELECT 1 /* ; DELETE FROM loans */"),
    ("sqlite", "(SELECT 1) UNION (SELECT 2)"),
    ("sqlite", "VALUES (1), (2)"),
    ("sqlite", "WITH a AS (SELECT 1 AS n) SELECT n FROM a"),
    ("sqlite", "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 5) SELECT n FROM r"),
    ("sqlite", "SELECT `a`, [b], \"c\" FROM t WHERE replace(a, 'x', 'y') LIKE '%z'"),
    ("sqlite", "SELECT strftime('%Y', d), ROW_NUMBER() OVER (PARTITION BY a ORDER BY b) FROM t"),
    ("postgres", "SELECT pg_sleep(1), pg_typeof(1)"),
    ("postgres", "TABLE loans"),
    ("postgres", "SELECT a::numeric, b ->> 'c' FROM t WHERE d ILIKE '%e%'"),
    ("postgres", "SELECT * FROM generate_series(1, 3) AS s(n)"),
]

REFUSED = [
    ("sqlite", "", "no SQL statement"),
    ("sqlite", "-- nothing but a comment", "no SQL statement"),
    ("sqlite", "SELECT 1; DROP TABLE loans", "one statement"),
    ("sqlite", "SELECT 1; SELECT 2", "one statement"),
    ("sqlite", "SELECT 1 --\n; DELETE FROM loans", "one statement"),
    ("sqlite", "/* a */ DELETE /* b */ FROM loans", "not DELETE"),
    ("sqlite", "INSERT INTO loans VALUES (1)", "not INSERT"),
    ("sqlite", "REPLACE INTO loans VALUES (1)", "not REPLACE"),
    ("sqlite", "UPDATE loans SET amount = 0", "not UPDATE"),
    ("sqlite", "WITH a AS (SELECT 1) INSERT INTO loans SELECT * FROM a", "not INSERT"),
    ("sqlite", "WITH a AS (DELETE FROM loans RETURNING *) SELECT * FROM a", "contain DELETE"),
    ("sqlite", "CREATE TABLE x AS SELECT 1", "not CREATE"),
    ("sqlite", "DROP TABLE loans", "not DROP"),
    ("sqlite", "ALTER TABLE loans ADD COLUMN x", "not ALTER"),
    ("sqlite", "ATTACH DATABASE '/tmp/other.db' AS other", "not ATTACH"),
    ("sqlite", "DETACH DATABASE main", "not DETACH"),
    ("sqlite", "PRAGMA query_only = OFF", "not PRAGMA"),
    ("sqlite", "SELECT * FROM pragma_database_list", "pragma_database_list"),
    ("sqlite", "SELECT * FROM pragma_table_info('loans')", "pragma_table_info"),
    ("sqlite", "VACUUM INTO '/tmp/copy.db'", "not VACUUM"),
    ("sqlite", "SELECT load_extension('/tmp/evil.so')", "load_extension"),
    ("sqlite", "SELECT \"LOAD_EXTENSION\"('/tmp/evil.so')", "LOAD_EXTENSION"),
    ("sqlite", "SELECT [load_extension] /* x */ ('/tmp/evil.so')", "load_extension"),
    ("sqlite", "SELECT 1 WHERE EXISTS (SELECT writefile('/tmp/x', 'y'))", "writefile"),
    ("sqlite", "EXPLAIN SELECT 1", "not EXPLAIN"),
    ("sqlite", "BEGIN", "not TRANSACTION"),
    ("sqlite", "SELECT 1\0; DROP TABLE loans", "NUL"),
    ("postgres", "WITH a AS (INSERT INTO t VALUES (1) RETURNING *) SELECT * FROM a", "contain INSERT"),
    ("postgres", "WITH a AS (UPDATE t SET b = 1 RETURNING *) SELECT * FROM a", "contain UPDATE"),
    ("postgres", "SELECT 1 FROM (WITH a AS (DELETE FROM t RETURNING *) SELECT * FROM a) AS b", "contain DELETE"),
    ("postgres", "SELECT * INTO copy_of_loans FROM loans", "SELECT INTO"),
    ("postgres", "SELECT * FROM loans FOR UPDATE", "lock"),
    ("postgres", "SELECT * FROM loans FOR SHARE", "lock"),
    ("postgres", "COPY loans TO '/tmp/x'", "not COPY"),
    ("postgres", "COPY loans FROM PROGRAM 'id'", "not COPY"),
    ("postgres", "DO $$ BEGIN DELETE FROM loans; END $$", "not DO"),
    ("postgres", "CALL wipe()", "not CALL"),
    ("postgres", "SET ROLE postgres", "not SET"),
    ("postgres", "PREPARE x AS DELETE FROM loans", "not PREPARE"),
    ("postgres", "EXPLAIN ANALYZE DELETE FROM loans", "not EXPLAIN"),
    ("postgres", "TRUNCATE loans", "not TRUNCATE"),
    ("postgres", "GRANT ALL ON loans TO PUBLIC", "not GRANT"),
    ("postgres", "SELECT pg_read_file('/etc/passwd')", "pg_read_file"),
    ("postgres", "SELECT pg_catalog.\"pg_read_file\" ('/etc/passwd')", "pg_read_file"),
    ("postgres", "SELECT U&\"pg\\005fread_file\"('/etc/passwd')", "U&"),
    ("postgres", "SELECT * FROM pg_ls_dir('/')", "pg_ls_dir"),
    ("postgres", "SELECT * FROM ROWS FROM (pg_ls_dir('/')) AS f", "pg_ls_dir"),
    ("postgres", "SELECT lo_import('/etc/passwd')", "lo_import"),
    ("postgres", "SELECT * FROM dblink('host=elsewhere', 'DELETE FROM t') AS t(a int)", "dblink"),
    ("postgres", "SELECT set_config('statement_timeout', '0', false)", "set_config"),
    ("postgres", "SELECT query_to_xml('DELETE FROM t', true, true, '')", "query_to_xml"),
    ("postgres", "SELECT pg_terminate_backend(1)", "pg_terminate_backend"),
    ("postgres", "SELECT nextval('s')", "nextval"),
    ("postgres", "SELECT passwd FROM pg_catalog.pg_shadow", "pg_shadow"),
]  # fmt: skip


@pytest.mark.parametrize(("dialect", "sql"), READING)
def test_a_reading_query_passes(dialect: str, sql: str) -> None:
    assert refusal(sql, dialect) is None


@pytest.mark.parametrize(("dialect", "sql", "reason"), REFUSED)
def test_anything_else_is_refused_with_the_reason(dialect: str, sql: str, reason: str) -> None:
    said = refusal(sql, dialect)
    assert said is not None
    assert said.startswith("refused: ")
    assert reason in said


@pytest.mark.parametrize("sql", ["SELECT * FROM (", "SELEC 1", "SELECT 'open", "SELECT 1 +"])
def test_what_cannot_be_parsed_is_a_syntax_error_in_one_line(sql: str) -> None:
    said = refusal(sql, "sqlite")
    assert said is not None
    assert "\n" not in said
    assert "\x1b" not in said


def test_a_statement_may_not_be_huge_or_nested_without_end() -> None:
    assert f"more than {LONGEST}" in str(refusal("SELECT " + "1" * LONGEST, "sqlite"))
    assert "nested" in str(refusal("SELECT " + "(" * 5000 + "1" + ")" * 5000, "sqlite"))
