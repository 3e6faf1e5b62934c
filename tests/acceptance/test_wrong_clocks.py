"""Hosts whose clocks are wrong by an hour: nothing is other than on time, since only Redis's clock counts."""

import time
from datetime import datetime
from pathlib import Path

import pytest
from counted import Counted, launch

LIBRARY = next(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"), None)
HOUR_S = 3600
SLO_S = 60.0
SOON_S = 300


@pytest.mark.slow
@pytest.mark.skipif(LIBRARY is None, reason="there is no libfaketime (Debian: faketime)")
@pytest.mark.parametrize("ahead_h", [1, -1])
def test_workers_and_coordinator_an_hour_off(
    namespace: str, tmp_path: Path, program: Path | None, ahead_h: int
) -> None:
    with launch(tmp_path, program=program) as server, Counted(server, namespace, tmp_path, HEXGEN_LEASE_S="30") as cell:
        off = {"one": ahead_h, "coordinator": -ahead_h, "tools": ahead_h}
        cell.own = {name: clock(hours) for name, hours in off.items()}
        cell.begin("--engine", "simulated", "--responder", "echo")
        for name, hours in off.items():
            assert abs(seconds_ahead(cell, name) - hours * HOUR_S) < SOON_S
        cell.submit(6, slo_s=SLO_S)
        cell.settle()
        assert cell.faults() == []
        assert cell.run_twice() == {}
        ends = [cell.client.result(name) for name in cell.answers]
        assert all(end is not None and end["slo_met"] and 0 < end["elapsed_s"] < SLO_S for end in ends)
        cell.submit_long(100, 100)
        cell.until_true(lambda: cell.count("scard", cell.keys.claimed("one")) > 0)
        cell.kill("one")
        cell.names.remove("one")
        cell.settle()  # with what it had, which nobody else ran before its lease was over
        assert cell.faults() == []
        assert "the lease of one/" in cell.log("coordinator")
        assert "is lost" in cell.log("coordinator")


def clock(hours: int) -> dict[str, str]:
    return {"LD_PRELOAD": str(LIBRARY), "FAKETIME": f"{hours:+d}h", "DONT_FAKE_MONOTONIC": "1"}


def seconds_ahead(cell: Counted, name: str) -> float:
    """Of us, by what a process writes before each line of its log."""
    told = " ".join(cell.log(name).split()[:2])
    return datetime.strptime(told, "%Y-%m-%d %H:%M:%S,%f").timestamp() - time.time()  # noqa: DTZ007
