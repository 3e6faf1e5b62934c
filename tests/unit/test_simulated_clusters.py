"""Clusters to simulate, by name and from files, and what is refused of them."""

from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import InvalidDocument
from common.profiles import A100, L40S
from coordinator.simulator.cluster import Candidate, load_candidates, load_cluster


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("- a101", "must be a profile"),
        ("- 5", "must be a profile"),
        ("- {profile: a100, count: 0}", "from 1 to 256"),
        ("- {profile: a100, count: .nan}", "from 1 to 256"),
        ("- {profile: a100, count: 200}\n- {profile: l40s, count: 200}", "has 400 instances; at most 256"),
        ("- {profile: a100, kv_tokens: .nan}", "a whole number above 0"),
        ("- {profile: a100, kv_tokens: 0}", r"kv_tokens: must be a whole number above 0, not 0"),
        ("- {profile: a100, max_batch: 0}", "a whole number above 0"),
        ("- {profile: a100, max_batch: 300}", "must be at most 256, not 300"),
        ("- {profile: a100, chunk_tokens: -5}", "a whole number above 0"),
        ("- {profile: a100, weights_s: .nan}", "a number above 0"),
        ("- {profile: a100, prefill_tokens_per_s: .inf}", "a number above 0"),
        ("- {profile: a100, prefill_tokens_per_s: 0}", "a number above 0"),
        ("- {profile: a100, overhead_s: fast}", "a number above 0"),
        ("[]", "at least one"),
        ("a100", "at least one"),
        ("{}", "must be a list of instances"),
        ("{", "is not YAML: .* at line 1, column 2$"),
        ("- a100: [", "is not YAML: .* at line 1, column 10$"),
        ("small: {instances: [a100]}", "several clusters is for `plan`"),
        ("- {profile: a100, colour: red}", "is not one of chunk_tokens, .*count, .*profile"),
    ],
)
def test_a_bad_cluster_is_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InvalidDocument, match=fault):
        load_cluster(written(tmp_path, text))


def test_clusters_by_name_and_from_a_file(tmp_path: Path) -> None:
    assert [profile.name for profile in load_cluster("hetero1")] == ["a100", "a100", "a6000", "l40s"]
    path = written(tmp_path, "- a100\n- {profile: L40S, count: 2, kv_tokens: 20000, chunk_tokens: 1024}\n")
    assert load_cluster(path) == [A100, *[replace(L40S, kv_tokens=20_000, chunk_tokens=1024)] * 2]
    with pytest.raises(InvalidDocument, match="neither a file nor one of hetero1"):
        load_cluster("hetero9")


def test_candidates_with_and_without_prices(tmp_path: Path) -> None:
    hetero1 = tuple(load_cluster("hetero1"))
    assert load_candidates("hetero1") == [Candidate("hetero1", hetero1)]
    assert load_candidates("hetero1=9.5") == [Candidate("hetero1", hetero1, 9.5)]
    path = written(tmp_path, "small: {price_per_hour: 2, instances: [a100]}\nlarge: {instances: [a100, l40s]}\n")
    assert load_candidates(path) == [Candidate("small", (A100,), 2.0), Candidate("large", (A100, L40S))]
    path = written(tmp_path, "[a100]")
    assert load_candidates(f"{path}=3") == [Candidate(path, (A100,), 3.0)]
    assert load_candidates(path) == [Candidate(path, (A100,))]


@pytest.mark.parametrize("price", ["nan", "inf", "-1", "dear", ""])
def test_a_price_that_is_none_is_refused(price: str) -> None:
    with pytest.raises(InvalidDocument, match="the price must be a number from 0"):
        load_candidates(f"hetero1={price}")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("small: [a100]", "small: must be a mapping with `instances`"),
        ("small: {price_per_hour: 5}", "must be a mapping with `instances`"),
        ("small: {instances: [a100], price: 5}", "must be a mapping with `instances`"),
        ("small: {instances: [], price_per_hour: 5}", r"small.instances: must be a list of instances"),
        ("small: {instances: [a100], price_per_hour: .inf}", "must be a number from 0"),
        ("{}", "at least one"),
    ],
)
def test_bad_candidates_are_refused(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(InvalidDocument, match=fault):
        load_candidates(written(tmp_path, text))
