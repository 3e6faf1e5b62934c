"""What a submission is told that a limit refuses: which one is full, and when to try again. Pure."""

from common.model import Json
from common.store.limits import Full

SOONEST_S, LATEST_S = 1.0, 60.0


def refusal(entry: str, full: Full, tenant: str, chance: float) -> dict[str, Json]:
    """The data of the event `rejected`. chance: one of 0 to 1, so that those refused do not all come back at once."""
    retry_s = round(_retry_s(full, chance), 1)
    field = "tenant" if full.is_tenants else ""
    error = f"{_sentence(full, tenant)}; try again in {retry_s:.1f} s"
    return {"workflow": entry, "field": field, "error": error, "retry_after_s": retry_s}


def _retry_s(full: Full, chance: float) -> float:
    """At some time in which as many workflows end as run now; for tokens, when the debt is paid."""
    wait_s = full.wait_ms / 1000
    if full.limit == "tenant_tokens_per_s":
        return max(SOONEST_S, wait_s) * (1 + chance / 10)
    return max(SOONEST_S, min(LATEST_S, wait_s) * chance)


def _sentence(full: Full, tenant: str) -> str:
    match full.limit:
        case "workflows":
            return f"the cell runs {full.taken} of {full.most} workflows"
        case "queued":
            return f"{full.taken} requests wait in the cell's queues, of {full.most} at most"
        case "submissions":
            return f"{full.taken} submissions wait for an answer, of {full.most} at most"
        case "tenant_workflows":
            return f"tenant {tenant} runs {full.taken} of {full.most} workflows"
        case "memory":
            return f"the server holds {full.taken >> 20} MiB, of {full.most >> 20} MiB up to which it takes submissions"
    return f"tenant {tenant} has used up its {full.most} tokens per second"
