"""The core: which stage starts when, what it sees, what the user is told, what the workflow gives."""

from dataclasses import replace

from core_bench import Bench, asked
from hypothesis import given
from hypothesis import strategies as st

from common.model import Usage

CHAIN = """
stages:
  a: {prompt: "{{ inputs.word }}"}
  b: {needs: [a], prompt: "{{ a.output }}b"}
  c: {needs: [b], prompt: "{{ b.output }}c {{ a.output }}"}
"""
DIAMOND = """
stages:
  top: {prompt: t}
  left: {needs: [top], prompt: "{{ top.output }}l"}
  right: {needs: [top], tool: note, args: {text: "{{ top.output }}r", plain: [1, null]}}
  end: {needs: [left, right], prompt: "{{ left.output }} {{ right.output.text }}"}
"""


def test_a_chain_goes_one_by_one_and_each_sees_what_is_upstream():
    bench = Bench(CHAIN, {"word": "x"})
    step = bench.submit()
    for node, text in (("a", "x"), ("b", "xb"), ("c", "xbc x")):
        assert [(push.node, asked(push)) for push in step.pushes] == [(node, text)]
        step = bench.complete(node, text)
    assert bench.output == {"c": "xbc x"}
    assert bench.told == [
        "stage_started a", "stage_completed a", "stage_started b", "stage_completed b",
        "stage_started c", "stage_completed c", "completed",
    ]  # fmt: skip


def test_the_end_tells_what_the_user_wants_to_know():
    bench = Bench("stages: {a: {prompt: p}}", slo_s=10)
    bench.submit()
    bench.now += 10_000
    bench.complete("a", "done")
    assert bench.result == {
        "workflow": "w", "status": "completed", "output": {"a": "done"},
        "elapsed_s": 10.0, "slo_s": 10.0, "slo_met": True,
        "usage": {"a": {"requests": 1, "prompt_tokens": 100, "output_tokens": 10, "cached_tokens": 0}},
    }  # fmt: skip


def test_what_stages_cost_is_told_with_copies_and_rounds_together():
    bench = Bench(
        """
        stages:
          g: {for_each: [1, 2], stages: {a: {prompt: p, repeat: {while: output, max: 2}}, b: {tool: t}}}
          c: {needs: [g], prompt: p}
        """
    )
    bench.submit()
    for node, output in (("g[0].a@0", True), ("g[0].a@1", True), ("g[1].a@0", False), ("g[0].b", 1), ("g[1].b", 1)):
        bench.complete(node, output)
    told = bench.completed("c", "done")
    bench.post(replace(told, outcome=replace(told.outcome, usage=Usage(50, 5, 32))))
    assert bench.result["usage"] == {
        "c": {"requests": 1, "prompt_tokens": 50, "output_tokens": 5, "cached_tokens": 32},
        "g.a": {"requests": 3, "prompt_tokens": 300, "output_tokens": 30, "cached_tokens": 0},
    }


def test_one_millisecond_late_is_late():
    bench = Bench("stages: {a: {prompt: p}}", slo_s=10)
    bench.submit()
    bench.now += 10_001
    bench.complete("a", "done")
    assert bench.result["slo_met"] is False


def test_a_diamond_joins_when_both_sides_have_ended():
    bench = Bench(DIAMOND)
    bench.submit()
    step = bench.complete("top", "t")
    assert [push.node for push in step.pushes] == ["left", "right"]
    assert bench.complete("right", {"text": "tr"}).pushes == []
    step = bench.complete("left", "tl")
    assert [(push.node, asked(push)) for push in step.pushes] == [("end", "tl tr")]


def test_a_tool_goes_to_the_tools_with_its_arguments_typed():
    bench = Bench(DIAMOND).run()
    (push,) = [push for push in bench.pushes if push.node == "right"]
    assert (push.instance, push.stage) == ("tools", "flow/right")
    assert asked(push) == {"text": "tr", "plain": [1, None]}


@given(st.permutations(["a", "b", "c", "d"]))
def test_stages_without_needs_run_side_by_side_and_end_in_any_order(order):
    bench = Bench({"stages": {name: {"prompt": name} for name in "abcd"}})
    assert len(bench.submit().pushes) == 4
    for name in order:
        bench.complete(name, name)
    assert bench.output == {name: name for name in "abcd"}


def test_completions_of_one_step_are_folded():
    bench = Bench(DIAMOND)
    bench.submit()
    bench.complete("top", "t")
    step = bench.post(bench.completed("left", "tl"), bench.completed("right", {"text": "tr"}))
    assert [push.node for push in step.pushes] == ["end"]


WHEN = """
stages:
  a: {prompt: p}
  b: {needs: [a], when: a.output == "yes", prompt: "b"}
  c: {needs: [b], prompt: "{{ b.status }} {{ b.output is none }}"}
"""


def test_a_true_when_runs_the_stage():
    bench = Bench(WHEN).run(lambda push: "yes" if push.node == "a" else asked(push))
    assert bench.output == {"c": "completed false"}


def test_a_stage_that_needs_a_skipped_one_runs():
    bench = Bench(WHEN).run(lambda push: "no" if push.node == "a" else asked(push))
    assert "b" not in bench.calls()
    assert bench.output == {"c": "skipped true"}
    ended = next(data for kind, data in bench.events if kind == "stage_completed" and data["stage"] == "b")
    assert ended["status"] == "skipped"
    assert "stage_started b" not in bench.told


def test_a_workflow_of_which_all_is_skipped_completes_at_once():
    bench = Bench("stages: {a: {when: false, prompt: p}, b: {needs: [a], when: false, stages: {c: {prompt: p}}}}")
    bench.submit()
    assert bench.output == {"b": None}
    assert bench.pushes == []


GROUP = """
stages:
  g:
    stages:
      x: {prompt: x}
      y: {needs: [x], prompt: "{{ x.output }}y"}
      z: {needs: [x], prompt: "{{ x.output }}z"}
  after: {needs: [g], prompt: "{{ g.output.y }} {{ g.output.z }} {{ g.output | length }}"}
"""


def test_a_group_gives_its_sinks_by_default():
    assert Bench(GROUP).run().output == {"after": "xy xz 2"}


def test_keys_of_inner_nodes_are_paths():
    assert [push.node for push in Bench(GROUP).run().pushes] == ["g.x", "g.y", "g.z", "after"]


def test_a_group_gives_what_its_output_says():
    bench = Bench(
        """
        stages:
          g: {stages: {x: {prompt: x}, y: {prompt: y}}, output: "[y.output, x.output]"}
        output: "{'all': g.output, 'n': inputs.n}"
        """,
        {"n": 3},
    )
    assert bench.run().output == {"all": ["y", "x"], "n": 3}


def test_a_group_inside_a_group_sees_the_scopes_around_it():
    bench = Bench(
        """
        stages:
          a: {prompt: A}
          g:
            needs: [a]
            stages:
              b: {prompt: "{{ a.output }}B"}
              h: {needs: [b], stages: {c: {prompt: "{{ a.output }}{{ b.output }}{{ inputs.n }}"}}}
        output: g.output.h.c
        """,
        {"n": 7},
    )
    assert bench.run().output == "AAB7"


def test_stages_are_told_by_their_path():
    assert "stage_completed g.y" in Bench(GROUP).run().told


def test_messages_become_a_chat():
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "{{ inputs.q }}"}]
    bench = Bench({"stages": {"a": {"messages": messages}}}, {"q": "why?"})
    bench.submit()
    call = bench.of("a").call
    assert call.prompt is None
    assert call.messages == ({"role": "system", "content": "be brief"}, {"role": "user", "content": "why?"})


def test_what_a_step_has_to_teach_is_handed_over():
    bench = Bench(WHEN)
    bench.submit()
    step = bench.complete("a", "no")
    assert step.choices == [(bench.workflow.definition.stages["b"], False, None)]
    assert [(spec.path, outcome.output) for spec, outcome in step.outcomes] == [("a", "no")]
