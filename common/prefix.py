"""What prompts have in common at their start, told by hashes of content. Pure; knows no tokenizer and no engine."""

from hashlib import blake2b

BLOCK_CHARS = 1024
"""A prompt is compared in blocks of so many characters; what follows its last full block is left out."""

HASH_BYTES = 8


def chain(text: str) -> bytes:
    """HASH_BYTES for each full block of `text`, in order; each is the hash of everything from the start to there.

    Two prompts share a hash if, and but for one chance in 2^64 only if, they are equal up to the end of its block.
    """
    hashed = blake2b(digest_size=HASH_BYTES)
    digests: list[bytes] = []
    for end in range(BLOCK_CHARS, len(text) + 1, BLOCK_CHARS):
        # Lone surrogates cannot be told to an engine, but telling so is not this function's business.
        hashed.update(text[end - BLOCK_CHARS : end].encode(errors="surrogatepass"))
        digests.append(hashed.digest())
    return b"".join(digests)


def shared_blocks(chain: bytes, held: set[bytes] | frozenset[bytes]) -> int:
    """How many blocks from the start of a prompt with this chain are among the hashes held."""
    for block in range(len(chain) // HASH_BYTES):
        if chain[block * HASH_BYTES : (block + 1) * HASH_BYTES] not in held:
            return block
    return len(chain) // HASH_BYTES
