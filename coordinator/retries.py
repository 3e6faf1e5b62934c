"""When a request that has failed is tried again. Knows nothing of stages."""

from zlib import crc32

RETRY_MS = 500
LONGEST_RETRY_MS = 30_000
JITTER = 0.25
"""Up to this share a retry comes sooner or later, so that what failed together is not tried again together."""


def retry_ms(request: str, attempt: int) -> int:
    """Doubling with each attempt; what is added or taken off follows from the request's id."""
    chance = crc32(f"{request} {attempt}".encode()) / 0xFFFFFFFF
    return round(min(LONGEST_RETRY_MS, RETRY_MS << attempt) * (1 + JITTER * (2 * chance - 1)))
