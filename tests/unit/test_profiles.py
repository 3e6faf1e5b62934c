"""Named profiles against the published figures they come from."""

from itertools import pairwise

import pytest

from common.engine import EngineModel, Sequence
from common.profiles import PROFILES, named


def test_the_published_decode_step_of_the_three_known_kinds() -> None:
    for name, step_s in (("a100", 0.035), ("A6000", 0.058), ("l40s", 0.0545)):
        model = EngineModel(named(name))
        model.add(Sequence("a", 100, 2))
        model.step()
        assert model.step()[0] == pytest.approx(step_s, rel=0.03)


def test_profiles_rank_as_published() -> None:
    decode = [PROFILES[name].weights_s for name in ("h100", "a800", "a100", "l40s", "l40", "a6000", "a40")]
    assert all(faster < slower for faster, slower in pairwise(decode))
    with pytest.raises(ValueError, match="'b200'; known are a100, a40, a6000, a800, h100, l40, l40s"):
        named("b200")
