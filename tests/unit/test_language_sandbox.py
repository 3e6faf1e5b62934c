"""What foreign templates can neither reach nor spend."""

import pytest

from coordinator.language.definition import TemplateError
from coordinator.language.errors import DefinitionError
from coordinator.language.sandbox import FILTER_NAMES
from coordinator.language.templates import compile_text

BIG = "x" * 1_000_000
DOUBLED = "{% set a = [1, 1] %}" + "{% set a = [a, a] %}" * 40


def text(source, **context):
    return compile_text(source, "at").render(context)


def failure(source, **context) -> str:
    template = compile_text(source, "at")
    with pytest.raises(TemplateError) as caught:
        template.render(context)
    return str(caught.value)


def refusal(source) -> str:
    with pytest.raises(DefinitionError) as caught:
        compile_text(source, "at")
    return str(caught.value)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''['__class__'] }}",
        "{{ [''] | map(attribute='__class__') | list }}",
        "{{ [1] | groupby('__class__') }}",
        "{{ range.__globals__ }}",
        "{{ namespace.__init__ }}",
        "{{ namespace(a=1)._Namespace__attrs }}",
        "{% for x in [1] %}{{ loop._iterator }}{% endfor %}",
        "{{ 'a'.format(1) }}",
        "{{ '{0.__class__}'.format(1) }}",
        "{{ 'a'.join(['b']) }}",
        "{{ 'a'.ljust(9) }}",
        "{{ 'a'.encode() }}",
        "{{ 1 .to_bytes(9) }}",
        "{{ [1].append(2) }}",
        "{{ [1].index(2) }}",
        "{{ {}.update({'a': 1}) }}",
        "{{ {}.pop('a') }}",
        "{{ lipsum() }}",
        "{{ cycler('a') }}",
        "{{ joiner() }}",
        "{{ dict(a=1) }}",
        "{{ super() }}",
        "{{ 'a'() }}",
        "{{ x() }}",
        "{{ '%s' % 1 }}",
    ],
)
def test_out_of_reach(source):
    failure(source, x=1)


@pytest.mark.parametrize(
    ("source", "named"),
    [
        ("{% macro a() %}{% endmacro %}", "Macro"),
        ("{% call a() %}{% endcall %}", "CallBlock"),
        ("{% set x %}a{% endset %}", "AssignBlock"),
        ("{% filter upper %}a{% endfilter %}", "FilterBlock"),
        ("{% include 'a' %}", "Include"),
        ("{% import 'a' as b %}", "Import"),
        ("{% from 'a' import b %}", "FromImport"),
        ("{% extends 'a' %}", "Extends"),
        ("{% block a %}{% endblock %}", "Block"),
        ("{% autoescape true %}{% endautoescape %}", "Scope"),
        ("{% for a in b recursive %}{% endfor %}", "recursive"),
        ("{{ self.a }}", "self"),
    ],
)
def test_statements_beyond_the_language(source, named):
    assert named in refusal(source)


def test_filters_that_escape_or_grow_are_gone():
    gone = {"attr", "batch", "center", "escape", "filesizeformat", "format", "pprint", "random", "safe", "slice"}
    gone |= {"striptags", "urlencode", "urlize", "wordwrap", "xmlattr", "_loop", "_slice", "_built"}
    assert not gone & FILTER_NAMES
    for name in sorted(gone):
        assert f"there is no filter {name!r}" in refusal("{{ x|" + name + " }}")


def test_keys_come_before_methods():
    data = {"items": 1, "values": 2, "get": 3, "count": 4}
    assert text("{{ d.items }}{{ d.values }}{{ d.get }}{{ d.count }}{{ d.keys()|length }}", d=data) == "12344"
    assert text("{{ d['items'] }}{{ e.get('a', 7) }}", d=data, e={}) == "17"


@pytest.mark.parametrize(
    ("source", "rendered"),
    [
        ("{{ 'a,b'.split(',')|last|upper }}{{ ' x '.strip() }}", "Bx"),
        ("{{ 'abc'.startswith('ab') }} {{ 'abc'.removeprefix('a') }}", "true bc"),
        ("{% set ns = namespace(n=0) %}{% for i in range(4) %}{% set ns.n = ns.n + i %}{% endfor %}{{ ns.n }}", "6"),
        ("{% for x in [1, 2] %}{{ loop.cycle('a', 'b') }}{{ loop.last }} {% endfor %}", "afalse btrue "),
        ("{% for g in [{'a': 1}, {'a': 1}]|groupby('a') %}{{ g.grouper }}x{{ g.list|length }}{% endfor %}", "1x2"),
        ("{{ [3, 1]|sort + [5] }}{{ [0] * 2 }}{{ 'ab' * 2 }}{{ 7 % 4 }}{{ 2 ** 5 }}", "[1, 3, 5][0, 0]abab332"),
        ("{{ [{'a': 1}, {'a': 3}]|sum(start=1)|string if false else [1, 2.5]|sum }}", "3.5"),
        ("{{ none|upper }}", "NULL"),
        ("{{ x|default('d') }}{{ 'aXb'|lower|title|truncate(9) }}", "dAxb"),
        ("{% for x in [1, 2, 3] if x > 1 %}{{ x }}{% else %}none{% endfor %}", "23"),
        ("{% set a, b = (1, 2) %}{{ b }}{{ (a, b)[::-1] }}", "2[2, 1]"),
    ],
)
def test_what_remains_works(source, rendered):
    assert text(source) == rendered


@pytest.mark.parametrize(
    "source",
    [
        "{{ range(1001) }}",
        "{{ range(10 ** 30) }}",
        "{{ 'x' * 10 ** 9 }}",
        "{{ 10 ** 9 * 'x' }}",
        "{{ [0] * 10 ** 9 }}",
        "{{ 9 ** (9 ** 9) }}",
        "{% set n = namespace(x=2) %}{% for i in range(99) %}{% set n.x = n.x * n.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
        "{% set n = namespace(x='x') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{% set n = namespace(x=[1]) %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
        "{{ big|replace('', big) }}",
        "{{ range(1000)|join(big) }}",
        "{{ ('a' ~ '\\n' * 60000)|indent(100) }}",
        "{{ 'a'|indent(10 ** 9) }}",
        "{{ 1|tojson(10 ** 9) }}",
        "{{ 1|round(10 ** 9) }}",
        "{{ [[1]]|sum(start=[]) }}",
    ],
)
def test_small_templates_make_nothing_large(source):
    failure(source, big=BIG)


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(1000) %}{% for j in range(1000) %}{% endfor %}{% endfor %}",
        "{% for i in range(1000) %}{% if big|upper %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if big ~ '!' %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if big[1:] %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if big.split('y') %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if rows|sort(attribute='a') %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if rows|map(attribute='a')|list %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if big == same %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if 'z' in big %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if i not in rows %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if big is eq(same) %}{% endif %}{% endfor %}",
        "{% for i in range(1000) %}{% if i is in(rows) %}{% endif %}{% endfor %}",
        "{{ range(1000)|map('string')|select('in', big)|list }}",
        "{% set l = [big] * 500 %}{{ l.count(same) }}",
        "{{ ([big, same] * 500)|sort|length }}",
        "{{ ([big, same] * 500)|unique|list|length }}",
        DOUBLED + "{{ a }}",
        DOUBLED + "{{ a|upper }}",
        DOUBLED + "{% if a == [a] %}{% endif %}",
        "{% set a = [1] * 1000 %}{% set a = [a] * 1000 %}{% set a = [a] * 1000 %}",
    ],
)
def test_small_templates_take_no_long_time(source):
    expected = "at: the template takes too much effort: loop over less, or do it in a tool stage"
    same = BIG[:1] + BIG[1:]
    assert failure(source, big=BIG, same=same, rows=[{"a": n} for n in range(5000)]) == expected


def test_ordinary_effort_is_enough():
    tables = [{"name": f"t{n}", "columns": [{"name": f"c{m}", "type": "TEXT"} for m in range(20)]} for n in range(100)]
    source = (
        "{% for t in tables %}CREATE TABLE {{ t.name }} ("
        "{% for c in t.columns %}{{ c.name|lower }} {{ c.type }}{{ ', ' if not loop.last }}{% endfor %});\n{% endfor %}"
    )
    assert text(source, tables=tables).count("c19 TEXT") == 100
    names = [f"a table named {n}" for n in range(1000)]
    both = "{% for n in names %}{% if n in names and n in known and n != names[0] %}x{% endif %}{% endfor %}"
    assert text(both, names=names, known=dict.fromkeys(names, names)) == "x" * 999
    drafts = ["x" * 2000] * 500
    assert len(text("{{ drafts|map('code_block', 'sql')|join('\n') }}", drafts=drafts)) == 500 * 2001 - 1


def test_each_rendering_has_an_effort_of_its_own():
    half = "{% for i in range(700) %}{% for j in range(200) %}{{ j }}{% endfor %}{% endfor %}"
    template = compile_text(half, "at")
    assert template.render({}) == template.render({})
    assert "too much effort" in failure(half + half)


def test_a_template_does_not_change_its_context():
    context = {"x": 1, "rows": [1]}
    compile_text("{% set x = 2 %}{% set y = rows + [2] %}{{ x }}{{ y }}", "at").render(context)
    assert context == {"x": 1, "rows": [1]}
