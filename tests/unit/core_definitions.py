"""Random workflow definitions for property tests. No test by itself."""

from itertools import count

from hypothesis import strategies as st

MOST_DEPTH = 3


@st.composite
def documents(draw: st.DrawFn, joins: bool = False, hints: bool = False) -> dict:
    """A small definition of any shape: groups in groups, copies, rounds, branches on what came before.

    joins: also stages that are optional, and copies of which not all need complete; hints: all leaves say how long
    they are expected to take.
    """
    stages = _stages(draw, count(), 1, ())
    if joins:
        _join(draw, stages)
    if hints:
        _hint(draw, stages)
    return {"name": "random", "inputs": {"flag": {"type": "boolean"}}, "stages": stages}


def _join(draw: st.DrawFn, stages: dict) -> None:
    for stage in stages.values():
        stage["optional"] = draw(st.integers(0, 2)) == 0
        copies = {"[7]": 1, "['x', 'y']": 2}.get(stage.get("for_each", "[]"), 0)
        if copies:
            stage["for_each"] = draw(st.sampled_from([stage["for_each"], "[1, 2, 3, 4]"]))
            stage["join"] = draw(st.sampled_from(["all", "first_success", {"quorum": copies}]))
        _join(draw, stage.get("stages", {}))


def _hint(draw: st.DrawFn, stages: dict) -> None:
    for stage in stages.values():
        if "tool" in stage:
            stage["expect"] = {"seconds": draw(st.integers(1, 20))}
        elif "prompt" in stage:
            stage["expect"] = {"output_tokens": draw(st.integers(1, 1000))}
        _hint(draw, stage.get("stages", {}))


def _stages(draw: st.DrawFn, numbers: count, depth: int, around: tuple[str, ...]) -> dict:
    stages: dict[str, dict] = {}
    for _ in range(draw(st.integers(3 if depth == 1 else 1, 6 - depth))):
        needs = draw(st.lists(st.sampled_from(list(stages)), unique=True, max_size=3)) if stages else []
        name = f"s{next(numbers)}"
        stages[name] = _stage(draw, numbers, depth, needs, around)
    return stages


def _stage(draw: st.DrawFn, numbers: count, depth: int, needs: list[str], around: tuple[str, ...]) -> dict:
    stage: dict = {"needs": needs}
    seen = (*needs, *around)
    tests = ["true", "false", "inputs.flag", *(f"({name}.output | tojson | length) % 2 == 0" for name in seen)]
    if draw(st.integers(0, 3)) == 0:
        stage["when"] = draw(st.sampled_from(tests))
    if draw(st.integers(0, 3)) == 0:
        sized = [f"range(({name}.output | tojson | length) % 3) | list" for name in seen]
        stage["for_each"] = draw(st.sampled_from(["[]", "[7]", "['x', 'y']", *sized]))
    if draw(st.integers(0, 3)) == 0:
        condition = draw(st.sampled_from([*tests, "round < 1", "(output | tojson | length) % 3 > 0"]))
        stage["repeat"] = {"while": condition, "max": draw(st.integers(1, 3))}
    inside = " ".join(["{{ inputs.flag }}", *(f"{{{{ {name}.output }}}} {{{{ {name}.status }}}}" for name in seen)])
    inside += " {{ index }} {{ item }}" if "for_each" in stage else ""
    inside += " {{ round }} {{ previous }}" if "repeat" in stage else ""
    kind = draw(st.sampled_from(["llm", "tool", "group", "group"] if depth < MOST_DEPTH else ["llm", "tool"]))
    if kind == "group":
        return {**stage, "stages": _stages(draw, numbers, depth + 1, seen)}
    stage["retries"] = draw(st.integers(0, 2))
    body = {"prompt": inside} if kind == "llm" else {"tool": "t", "args": {"text": inside}}
    return {**stage, **body}
