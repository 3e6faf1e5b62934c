"""Workflows laid out as arrays for the simulator's loop, one after the other. Each is laid out once, however often it
comes; draws nothing.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from common.enginerecords import NONE
from coordinator.simulator.expectation import Expected
from coordinator.simulator.records import BLOCK, CALL, Rows
from coordinator.simulator.trace import TracedCall

Numbers = NDArray[np.int64]


class Block(NamedTuple):
    """A part of prompts that can be shared, after that of its parent, a position in its piece's list or NONE."""

    key: str
    end: int
    tokens: int
    parent: int


class Piece(NamedTuple):
    """One workflow, by itself: its positions count from 0. leaves: each call's last block, a position in `blocks`."""

    calls: Rows
    children: Numbers
    roots: Numbers
    leaves: Numbers
    blocks: list[Block]


def piece(workflow: Sequence[TracedCall], expected: Sequence[Expected]) -> Piece:
    """Lay out a workflow and what is expected of its calls."""
    children: list[list[int]] = [[] for _ in workflow]
    for at, call in enumerate(workflow):
        for before in call.needs:
            children[before].append(at)
    calls = np.zeros(len(workflow), CALL)
    for name in ("prompt_tokens", "output_tokens", "tool_s"):
        calls[name] = [getattr(call, name) for call in workflow]
    calls["needs"] = [len(call.needs) for call in workflow]
    calls["children"] = [len(after) for after in children]
    calls["first_child"] = np.cumsum(calls["children"]) - calls["children"]
    calls["expected_tokens"], calls["stage_s"], calls["rest_s"] = zip(*expected, strict=True)
    calls["instance"], calls["started_at"] = NONE, -1.0
    roots = [at for at, call in enumerate(workflow) if not call.needs]
    leaves, blocks = _prefixes(workflow)
    return Piece(calls, _numbers([child for after in children for child in after]), _numbers(roots), leaves, blocks)


def join(pieces: Sequence[Piece]) -> tuple[Rows, Rows, Numbers, Numbers]:
    """Calls, blocks, children and roots of these workflows, numbered from 0 on."""
    calls = np.concatenate([one.calls for one in pieces], dtype=CALL)
    calls["workflow"] = np.repeat(np.arange(len(pieces)), [len(one.calls) for one in pieces])
    calls["first_child"] += _offsets([len(one.children) for one in pieces], [len(one.calls) for one in pieces])
    children, roots = (
        np.concatenate([getattr(one, name) for one in pieces])
        + _offsets([len(one.calls) for one in pieces], [len(getattr(one, name)) for one in pieces])
        for name in ("children", "roots")
    )
    known: dict[tuple[int, str], int] = {}
    rows: list[tuple[int, int, int]] = []
    calls["leaf"] = np.concatenate([_ids(number, one, known, rows) for number, one in enumerate(pieces)])
    return calls, np.array(rows or [(1, 1, NONE)], BLOCK), children, roots


def _prefixes(workflow: Sequence[TracedCall]) -> tuple[Numbers, list[Block]]:
    known: dict[str, int] = {}
    blocks: list[Block] = []
    leaves = []
    for call in workflow:
        leaf, start = NONE, 0
        for key, end in call.prefix:
            if key not in known:
                known[key] = len(blocks)
                blocks.append(Block(key, end, end - start, leaf))
            leaf, start = known[key], end
        leaves.append(leaf)
    return _numbers(leaves), blocks


def _ids(number: int, one: Piece, known: dict[tuple[int, str], int], rows: list[tuple[int, int, int]]) -> Numbers:
    """The leaves of the so manieth workflow by number among all blocks; those seen first are added to `rows`."""
    ids = np.full(len(one.blocks) + 1, NONE)  # its last stands for NONE, which is -1
    for at, block in enumerate(one.blocks):
        name = (number if block.key.startswith(".") else NONE, block.key)
        if name not in known:
            known[name] = len(rows)
            rows.append((block.end, block.tokens, int(ids[block.parent])))
        ids[at] = known[name]
    return ids[one.leaves]


def _offsets(sizes: Sequence[int], times: Sequence[int]) -> Numbers:
    """What is before each of some runs of these sizes, each so many times."""
    return np.repeat(np.cumsum(sizes) - sizes, times)


def _numbers(values: Sequence[int]) -> Numbers:
    return np.array(values, np.int64)
