"""A wide workflow: what its coordinators write and how often they get in each other's way."""

import importlib.util
from pathlib import Path

from common.store.embedded import EmbeddedServer

SCRIPT = Path(__file__).parents[2] / "scripts" / "benchmarks" / "fanout.py"


async def test_five_hundred_copies_cost_little_state_and_few_conflicts(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("bench_fanout", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    fanout = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(fanout)
    with EmbeddedServer.start(tmp_path) as server:
        found = await fanout.measure(server.url, copies=500, output_bytes=5120, pause_s=0.002)
    assert found["status"] == "completed"
    assert min(found["commits_by_coordinator"]) > 10
    assert found["state_bytes_per_completion"] < 5 * 1024
    assert found["conflict_share"] < 0.10
