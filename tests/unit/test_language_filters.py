"""The filters that are ours."""

import pytest

from coordinator.language.filters import FILTERS, FilterError, code_block, fromjson, indent, join, replace, tojson


@pytest.mark.parametrize(
    ("text", "block"),
    [
        ("Sure:\n```sql\nSELECT 1\n```\nDone.", "SELECT 1"),
        ("```sql\nSELECT 1\n```\nbetter:\n```sql\nSELECT 2;\n```", "SELECT 2;"),
        ("```sql\nSELECT 1\n```\n```python\nprint()\n```", "SELECT 1"),
        ("```python\nprint()\n```\n```\nSELECT 3\n```", "SELECT 3"),
        ("```\nx\n```\n```sql\nSELECT 4\n```\n```\ny\n```", "SELECT 4"),
        ("```SQL \n\n  SELECT 5\n  FROM t\n\n```", "SELECT 5\n  FROM t"),
        ("~~~sql\nSELECT '```'\n~~~", "SELECT '```'"),
        ("````sql\nSELECT 6\n```\nFROM t\n````", "SELECT 6\n```\nFROM t"),
        ("I ran out:\n```sql\nSELECT 7\nFROM", "SELECT 7\nFROM"),
        ("```sql title=x\r\nSELECT 8\r\n```\r\n", "SELECT 8"),
        ("  SELECT 9\n", "SELECT 9"),
        ("", ""),
        ("```python\nprint()\n```", "```python\nprint()\n```"),
        ("use `x` and ``` inline", "use `x` and ``` inline"),
    ],
)
def test_code_block(text, block):
    assert code_block(text, "sql") == block


def test_code_block_without_a_language_takes_the_last_of_any():
    assert code_block("```sql\na\n```\n```json\nb\n```") == "b"


def test_code_block_is_fast_on_long_answers():
    assert code_block("`` ` " * 200_000 + "\n```sql\nx\n```", "sql") == "x"
    assert code_block("``` a\n" * 100_000, "sql").startswith("``` a")


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: code_block(None, "sql"), "code_block: needs text, not null"),
        (lambda: code_block({"a": 1}), 'code_block: needs text, not {"a": 1}'),
        (lambda: fromjson("{"), "fromjson: not JSON at line 1, column 2: "),
        (lambda: fromjson("[NaN]"), "fromjson: NaN is not a JSON number"),
        (lambda: fromjson("1e999"), "fromjson: inf is not a JSON number"),
        (lambda: fromjson("[" * 200 + "]" * 200), "fromjson: is nested deeper than 100 levels"),
        (lambda: fromjson('"\\ud800"'), "fromjson: holds half of a surrogate pair"),
        (lambda: fromjson(1), "fromjson: needs text, not 1"),
        (lambda: tojson("x" * (1 << 20) + "x"), "the value is larger than 1048576 bytes"),
        (lambda: tojson(object()), "a object is not a value"),
        (lambda: join(["a"] * 3, "x" * (1 << 19)), "the text is longer than 1048576 characters"),
        (lambda: join(["a"], attribute="b"), "join: take the key with map(attribute=...) before it"),
        (lambda: replace("a" * 2000, "a", "b" * 2000), "the text is longer than 1048576 characters"),
        (lambda: replace("a", 1, "b"), "replace: needs text, not 1"),
        (lambda: indent("a", 101), "indent: width must be 0 to 100"),
        (lambda: FILTERS["round"](1.5, 16), "round: precision must be 0 to 15"),
        (lambda: FILTERS["sum"](["a"]), "sum: adds numbers only, not a str"),
    ],
)
def test_refusals_name_the_filter_or_the_bound(call, message):
    with pytest.raises(FilterError) as caught:
        call()
    assert str(caught.value).startswith(message)


def test_json_goes_both_ways_without_escapes():
    value = {"sql": "a < 'ü' & b > \"c\"", "n": [1, 2.5, None, True]}
    assert tojson(value) == '{"sql": "a < \'ü\' & b > \\"c\\"", "n": [1, 2.5, null, true]}'
    assert fromjson(tojson(value, 2)) == value
    assert tojson([1], 2) == "[\n  1\n]"


def test_text_filters():
    assert join([1, None, "a", {"b": []}], "; ") == '1; null; a; {"b": []}'
    assert replace("aaa", "a", "b", 2) == "bba"
    assert replace("ab", "", "-") == "-a-b-"
    assert indent("a\n\nb", 2) == "a\n\n  b"
    assert indent("a\n\nb", "> ", first=True, blank=True) == "> a\n> \n> b"
    assert FILTERS["round"](2.567, 1) == 2.6
    assert FILTERS["string"](None) == "null"
