"""The commands `simulate` and `plan`: what they print, write and refuse."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from coordinator.commands import simulate_files
from hexgen_flow.cli import main

CALLS = [
    {"stage": "draft", "prompt_tokens": 6000, "output_tokens": 300, "prefix": [["instructions", 5000]]},
    {"stage": "check", "prompt_tokens": 900, "output_tokens": 40},
]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("trace.json").write_text(json.dumps([{"calls": CALLS}, {"calls": CALLS[:1], "tenant": "chat"}]))


def told(command: str) -> Result:
    return CliRunner().invoke(main, command.split())


def simulated(options: str = "") -> Result:
    return told(f"simulate --trace trace.json --workflows 20 --seeds 2 --policy vllm,flow {options}")


def refused(command: str) -> str:
    done = told(command)
    assert done.exit_code == 2, done.output
    return done.output.strip().splitlines()[-1]


def test_json_has_each_run_and_nothing_is_written() -> None:
    done = simulated("--rate 0.1 --json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    assert set(found) == {"runs", "slo_s", "elapsed_s"}
    runs = found["runs"]
    assert [(run["policy"], run["seed"]) for run in runs] == [("vllm", 0), ("vllm", 1), ("flow", 0), ("flow", 1)]
    assert all(0 < run["p50_s"] <= run["p95_s"] <= run["p99_s"] and 0 <= run["attainment"] <= 1 for run in runs)
    assert all(set(run["tenants"]) == {"chat", "default"} and 0.5 <= run["fairness"] <= 1 for run in runs)
    assert sorted(path.name for path in Path().iterdir()) == ["trace.json"]


def test_an_events_file_that_cannot_be_written_is_told_before_the_work() -> None:
    done = simulated("--rate 0.1 --no-plots --events none/events.json")
    assert done.exit_code == 2
    assert "P95" not in done.output


@pytest.mark.parametrize("tenants", [4, 9])
def test_the_table_of_tenants_is_whole_however_many_there_are(tenants: int) -> None:
    workflow = [{"calls": CALLS[1:], "tenant": f"tenant-{at}"} for at in range(tenants)]
    Path("trace.json").write_text(json.dumps(workflow))
    done = told("simulate --trace trace.json --workflows 100 --seeds 2 --policy hexgen-no-wb --rate 20 --no-plots")
    assert done.exit_code == 0, done.output
    assert all(len(line) <= 80 and "…" not in line for line in done.output.splitlines())
    assert len(re.findall(r"^  policy .* fairness", done.output, re.MULTILINE)) == (1 if tenants <= 6 else 2)
    assert len(re.findall(r"±\d+\.\d\b", done.output)) == tenants + 2  # also of P95 and in time


def test_the_table_fits_a_narrow_terminal() -> None:
    done = simulated("--rate 0.1 --rate 0.2 --no-plots")
    assert done.exit_code == 0, done.output
    lines = done.output.splitlines()
    assert sum(line.lstrip().startswith("flow") for line in lines) == 4  # two rates, of each a table of tenants
    assert all(len(line) <= 80 and "…" not in line for line in lines)
    assert "±" in done.output
    assert not Path("simulation").exists()


@pytest.mark.slow
def test_plots_and_events_are_written() -> None:
    done = simulated("--rate 0.1 --rate 0.2 --events events.json")
    assert done.exit_code == 0, done.output
    names = {"p95", "p95-0.1", "p95-0.2", "attainment-0.1", "attainment-0.2", "latency-0.1", "latency-0.2", "instances"}
    files = {path.name: path for path in Path("simulation").iterdir()}
    assert set(files) == {f"{name}.{kind}" for name in names for kind in ("png", "svg")}
    assert all(files[f"{name}.png"].read_bytes().startswith(b"\x89PNG") for name in names)
    assert all("</svg>" in files[f"{name}.svg"].read_text() for name in names)
    assert len(json.loads(Path("events.json").read_text())["traceEvents"]) > 100


def test_plots_are_written_where_asked() -> None:
    assert simulated("--rate 0.1 --json --plots here").exit_code == 0
    assert Path("here/instances.png").exists()


def test_without_matplotlib_the_table_is_printed_and_says_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulate_files, "find_spec", lambda _: None)
    done = simulated("--rate 0.1")
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, simulate_files.HOW)
    assert "need the extra sim" in refused("simulate --trace trace.json --rate 1 --plots here")


def test_prefixes_count_only_with_the_cache() -> None:
    shares = [json.loads(simulated(f"--rate 0.1 --json {option}").output)["runs"][0]["cached"]
              for option in ("", "--prefix-cache")]  # fmt: skip
    assert shares[0] == 0.0
    assert shares[1] > 0.5


def test_alpha_is_that_of_hexgen_and_of_no_other() -> None:
    def p95(alpha: str) -> list[float]:
        options = f"--rate 0.4 --json --alpha {alpha}"
        done = told(f"simulate --trace trace.json --workflows 60 --seeds 1 --policy hexgen,hexgen:best,flow {options}")
        return [run["p95_s"] for run in json.loads(done.output)["runs"]]

    (low, *others), (high, *same) = p95("0.01"), p95("1")
    assert low != high
    assert others == same


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--rate 0", "'--rate': 0.0 is not in the range x>=1e-06"),
        ("--rate -1", "not in the range x>=1e-06"),
        ("--rate 1e-300", "not in the range x>=1e-06"),
        ("--rate nan", "must be a finite number"),
        ("--rate inf", "must be a finite number"),
        ("--rate 1 --slo-scale 0", "not in the range x>0"),
        ("--rate 1 --slo-scale nan", "must be a finite number"),
        ("--rate 1 --alpha 2", "not in the range 0<=x<=1"),
        (
            "--rate 1 --alpha 0.3 --policy flow,hexgen:best",
            "--alpha: is no parameter of flow,hexgen:best; hexgen, hexgen-no-pq take it",
        ),
        ("--rate 1 --seeds 0", "not in the range"),
        ("--rate 1 --policy best", "'best' is not one of all, vllm"),
        ("--rate 1 --cluster nowhere", "'nowhere' is neither a file nor one of hetero1"),
        ("--rate 1 --cluster tiny.yaml", "has a call of 6300 tokens; no instance of the cluster holds over 5000"),
        ("--rate 1 --arrivals file", "the trace has no arrival_s"),
        ("--rate 1 --plots trace.json/x", "--plots: trace.json/x cannot be made"),
        ("--rate 1 --workflows 5 --no-plots --events none/events.json", "none/events.json cannot be written"),
    ],
)
def test_what_is_refused_is_told_in_a_sentence(options: str, fault: str) -> None:
    Path("tiny.yaml").write_text("- {profile: a100, kv_tokens: 5000}")
    assert fault in refused(f"simulate --trace trace.json {options}")


def test_a_trace_that_is_none_is_refused() -> None:
    Path("empty.json").write_text("[]")
    assert "at least one" in refused("simulate --rate 1 --trace empty.json")
    assert "nowhere.json" in refused("simulate --rate 1 --trace nowhere.json")


def planned(options: str) -> Result:
    return told(f"plan --trace trace.json --workflows 60 --seeds 2 {options}")


def test_the_cheapest_that_holds_the_rate_is_told() -> None:
    Path("several.yaml").write_text(
        "one: {price_per_hour: 2, instances: [a100]}\nthree: {price_per_hour: 6, instances: [a100, a100, a100]}\n"
        "tiny: {price_per_hour: 0.1, instances: [{profile: a100, kv_tokens: 5000}]}\n"
    )
    done = planned("--cluster several.yaml --rate 0.3 --json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.output)
    one, three, tiny = found["candidates"]
    assert one["highest_rate"] < 0.3 < three["highest_rate"]
    assert [each["holds"] for each in found["candidates"]] == [False, True, False]
    assert found["cheapest"] == "three"
    assert "no instance of the cluster holds over 5000" in tiny["fault"]
    shown = planned("--cluster several.yaml --rate 0.3").output
    assert "tiny: the trace has a call of 6300 tokens" in shown
    assert shown.splitlines()[-1].startswith("the cheapest that holds 0.3 workflows/s, 95 % of them within")
    shown = planned("--cluster several.yaml").output
    assert shown.splitlines()[-1].startswith("the least price of each workflow, 95 % of them within")


def test_one_cluster_is_told_what_it_holds() -> None:
    assert "NAME=PRICE" in planned("--cluster hetero1").output.splitlines()[-1]
    assert planned("--cluster hetero1 --slo-s 1").output.splitlines()[-1].startswith("none holds any rate")


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--cluster hetero1=x", "the price must be a number from 0"),
        ("--cluster hetero1 --rate 0", "not in the range x>=1e-06"),
        ("--cluster hetero1 --attainment 0", "not in the range 0<x<=1"),
        ("--cluster hetero1 --policy vllm,flow", "must be one policy, not vllm,flow"),
        ("--cluster hetero1 --slo-s 1e9 --seeds 1 --workflows 5", "is met at every rate"),
    ],
)
def test_a_plan_refuses_in_a_sentence(options: str, fault: str) -> None:
    assert fault in refused(f"plan --trace trace.json {options}")
