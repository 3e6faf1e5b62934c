"""The core: copies of a for_each, rounds of a repeat, both at once, and groups in between."""

import pytest
from core_bench import Bench, asked
from hypothesis import given
from hypothesis import strategies as st

EACH = """
stages:
  many: {for_each: inputs.words, as: word, prompt: "{{ index }}{{ word }}"}
  after: {needs: [many], prompt: "{{ many.output | join(' ') }}|{{ many.status }}"}
"""


def test_no_element_no_copy():
    bench = Bench(EACH, {"words": []})
    step = bench.submit()
    assert [(push.node, asked(push)) for push in step.pushes] == [("after", "|completed")]


def test_one_element_one_copy():
    bench = Bench(EACH, {"words": ["a"]}).run()
    assert [push.node for push in bench.pushes] == ["many[0]", "after"]
    assert bench.output == {"after": "0a|completed"}


@given(st.permutations(range(5)))
def test_outputs_stand_in_the_order_of_the_elements(order):
    bench = Bench(EACH, {"words": list("abcde")})
    assert len(bench.submit().pushes) == 5
    for index in order:
        bench.complete(f"many[{index}]", f"out{index}")
    assert bench.calls()["after"] == "out0 out1 out2 out3 out4|completed"


def test_the_stage_is_told_once_for_all_copies():
    bench = Bench(EACH, {"words": ["a", "b"]}).run()
    assert bench.told[:2] == ["stage_started many", "stage_completed many"]


def test_a_literal_list_of_anything():
    bench = Bench('stages: {a: {for_each: [1, {"k": "v"}, null], tool: t, args: {it: "{{ item }}"}}}').run()
    assert bench.output == {"a": [{"it": 1}, {"it": {"k": "v"}}, {"it": None}]}


def test_elements_may_come_from_a_stage():
    bench = Bench("stages: {a: {prompt: p}, b: {needs: [a], for_each: a.output, prompt: '{{ item }}'}}")
    bench.run(lambda push: ["x", "y"] if push.node == "a" else asked(push))
    assert bench.output == {"b": ["x", "y"]}


REPEAT = """
stages:
  a:
    repeat: {while: output != "stop", max: 4}
    prompt: "{{ round }} after {{ previous }}"
  after: {needs: [a], prompt: "{{ a.output }}"}
"""


def test_rounds_go_on_while_the_condition_holds():
    bench = Bench(REPEAT).run(lambda push: "stop" if push.node == "a@2" else asked(push))
    assert bench.calls() == {
        "a@0": "0 after null", "a@1": "1 after 0 after null", "a@2": "2 after 1 after 0 after null", "after": "stop",
    }  # fmt: skip
    assert bench.told.count("stage_completed a") == 1


def test_rounds_end_at_the_most_even_if_the_condition_holds():
    bench = Bench(REPEAT).run(lambda push: push.node)
    assert [push.node for push in bench.pushes] == ["a@0", "a@1", "a@2", "a@3", "after"]
    assert bench.calls()["after"] == "a@3"


def test_a_repeat_of_one_round():
    assert Bench("stages: {a: {repeat: {while: true, max: 1}, prompt: p}}").run().output == {"a": "p"}


MEND = """
stages:
  draft: {prompt: draft}
  mend:
    needs: [draft]
    repeat: {while: check.output.error or output.check.error, max: 5}
    stages:
      write: {prompt: "{{ draft.output }} {{ round }} {{ previous.check.error if previous else 'first' }}"}
      check: {needs: [write], tool: t, args: {text: "{{ write.output }}"}}
output: mend.output.check.error
"""


def test_a_group_in_a_loop_sees_its_last_round():
    def answer(push):
        round = int(push.node.split("@")[1][0]) if "@" in push.node else 0
        return {"error": f"e{round}" if round < 2 else ""} if push.node.endswith("check") else asked(push)

    bench = Bench(MEND).run(answer)
    prompts = [text for node, text in bench.calls().items() if node.endswith("write")]
    assert prompts == ["draft 0 first", "draft 1 e0", "draft 2 e1"]
    assert bench.output == ""


BOTH = """
stages:
  each:
    for_each: [2, 0, 1]
    as: more
    repeat: {while: round < more, max: 9}
    prompt: "copy {{ index }} round {{ round }} was {{ previous }}"
"""


@pytest.mark.parametrize("packed", [False, True])
def test_each_copy_repeats_on_its_own(packed):
    bench = Bench(BOTH, packed=packed).run(lambda push: push.node)
    assert bench.output == {"each": ["each[0]@2", "each[1]@0", "each[2]@1"]}
    assert bench.calls()["each[0]@2"] == "copy 0 round 2 was each[0]@1"


NESTED = """
stages:
  outer:
    for_each: ["a", "b"]
    as: letter
    stages:
      rounds:
        repeat: {while: round < 1, max: 3}
        stages:
          inner: {for_each: "[letter, letter ~ round]", prompt: "{{ letter }}{{ round }}{{ item }}{{ index }}"}
        output: inner.output | join(",")
    output: rounds.output
"""


@pytest.mark.parametrize("packed", [False, True])
def test_groups_in_loops_in_for_each(packed):
    bench = Bench(NESTED, packed=packed).run()
    assert bench.output == {"outer": ["a1a0,a1a11", "b1b0,b1b11"]}
    assert len(bench.pushes) == 2 * 2 * 2
    assert "outer[1].rounds@0.inner[1]" in bench.calls()


def test_an_inner_name_hides_the_outer_one_and_gives_it_back():
    bench = Bench(
        """
        stages:
          o:
            for_each: [x, y]
            stages:
              i: {for_each: [1, 2], prompt: "{{ item }}{{ index }}"}
              after: {needs: [i], prompt: "{{ item }}{{ index }}{{ i.output | join('') }}"}
        """
    )
    assert bench.run().output == {"o": [{"after": "x01021"}, {"after": "y11021"}]}


def test_when_and_for_each_of_a_repeating_stage_see_the_loop_around_it_not_their_own():
    bench = Bench(
        """
        stages:
          o:
            repeat: {while: round < 2, max: 3}
            stages:
              i:
                when: round > 0 and previous
                for_each: "range(round) | list"
                repeat: {while: round < 1, max: 2}
                prompt: "{{ round }}"
              j: {needs: [i], prompt: j}
        """
    )
    bench.run()
    assert [node for node in bench.calls() if ".i" in node] == [
        "o@1.i[0]@0", "o@1.i[0]@1", "o@2.i[0]@0", "o@2.i[1]@0", "o@2.i[0]@1", "o@2.i[1]@1",
    ]  # fmt: skip


def test_a_group_output_may_build_on_the_round_before_for_all_rounds():
    bench = Bench(
        """
        stages:
          sum:
            repeat: {while: true, max: 100}
            stages: {one: {tool: t}}
            output: (previous or 0) + 1
        output: sum.output
        """
    )
    assert bench.run(lambda push: None).output == 100


def test_a_group_of_which_all_is_skipped_still_repeats():
    bench = Bench(
        """
        stages:
          g: {repeat: {while: round < 3, max: 9}, stages: {a: {when: false, prompt: p}}, output: round}
        output: g.output
        """
    )
    bench.submit()
    assert bench.output == 3


def test_what_while_found_is_handed_over():
    bench = Bench(REPEAT)
    bench.submit()
    spec = bench.workflow.definition.stages["a"]
    assert bench.complete("a@0", "go").choices == [(spec, True, 0)]
    assert bench.complete("a@1", "stop").choices == [(spec, False, 1)]


def test_a_thousand_copies():
    words = [str(number) for number in range(1000)]
    bench = Bench("stages: {a: {for_each: inputs.words, prompt: '{{ item }}'}}", {"words": words})
    assert len(bench.submit().pushes) == 1000
    bench.post(*(bench.completed(f"a[{number}]", number) for number in reversed(range(1000))))
    assert bench.output == {"a": list(range(1000))}
