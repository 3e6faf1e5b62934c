"""What the requests of a workflow cost its engines, added up by stage. Pure; knows no definition."""

from collections import Counter
from collections.abc import Mapping

from common.events import Outcome
from coordinator.places import segments


def usage(outputs: Mapping[str, Outcome]) -> dict[str, dict[str, int]]:
    """Requests and tokens by the path of the stage, all its copies and rounds together.

    Of completed requests, and of engines that report what they did; tools use no tokens.
    """
    totals: dict[str, Counter[str]] = {}
    for key, outcome in outputs.items():
        told = outcome.usage
        if told.prompt_tokens:
            path = ".".join(name for name, _, _ in segments(key))
            tokens = {name: getattr(told, name) for name in ("prompt_tokens", "output_tokens", "cached_tokens")}
            totals.setdefault(path, Counter()).update({"requests": 1, **tokens})
    return {path: dict(total) for path, total in sorted(totals.items())}
