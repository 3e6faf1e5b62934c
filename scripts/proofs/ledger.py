"""What a server has done, by its own append-only file: each effect counted, whatever became of the keys.

Needs a file that was never rewritten. Must not use our store: it is what is being examined.
"""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO


class Ledger:
    """How often each workflow began and ended, and each request was claimed and taken as completed.

    Claimed more often than once is no double effect: a worker may have died.
    """

    def __init__(self, prefix: str) -> None:
        """prefix: of the cell's keys, "{hexgen:NS}:"."""
        self._prefix = prefix.encode()
        self.begun: Counter[str] = Counter()
        self.ended: Counter[str] = Counter()
        self.claimed: Counter[str] = Counter()
        self.completed: Counter[str] = Counter()
        self.served = 0

    def read(self, folder: Path) -> None:
        """Add what the file in a server's state directory tells."""
        for path in _files(folder):
            with path.open("rb") as file:
                for command in _commands(file):
                    self._add(command)

    def double_effects(self) -> list[str]:
        """What took effect more often than once, a line for each time too many."""
        told = {"began": self.begun, "ended": self.ended}
        found = [f"workflow {name} {what} {n} times" for what, by in told.items() for name, n in by.items() if n > 1]
        found += [f"request {name} was completed {n} times" for name, n in self.completed.items() if n > 1]
        untold = self.served - self.completed.total()
        return found + [f"a request of a workflow that had ended was served ({untold} in all)"] * untold

    def _add(self, command: list[bytes]) -> None:
        if len(command) < 3 or not command[1].startswith(self._prefix):
            return
        name, key = command[0].upper(), command[1][len(self._prefix) :]
        if name == b"RPUSH" and key.endswith(b":mailbox"):
            told = [message.split(b" ", 2)[1] for message in command[2:] if message.startswith(b"completed ")]
            self.completed.update(request.decode() for request in told)
        elif name == b"HINCRBY" and key == b"served":
            self.served += int(command[3])
        elif name == b"HSET" and key.startswith(b"request:") and command[2] == b"token":
            self.claimed[key.removeprefix(b"request:").decode()] += 1
        elif name == b"SET" and key.startswith(b"workflow:") and key.endswith(b":result"):
            self.ended[key.split(b":")[1].decode()] += 1
        elif name == b"ZADD" and key == b"live":
            self.begun[command[-1].decode()] += 1


def _files(folder: Path) -> list[Path]:
    """Those with commands in them, the oldest first: one until Redis 6.2, a folder of them from 7.0 on."""
    parts = (folder / "appendonlydir").glob("*.incr.aof")
    return [path for path in [folder / "appendonly.aof"] if path.exists()] + sorted(
        parts, key=lambda path: int(path.name.split(".")[-3])
    )


def _commands(file: BinaryIO) -> Iterator[list[bytes]]:
    """The commands of one file; one that its end cuts off is left out."""
    while line := file.readline():
        if line.startswith(b"*"):
            parts = [_part(file) for _ in range(int(line[1:]))]
            if None in parts:
                return
            yield [part for part in parts if part is not None]


def _part(file: BinaryIO) -> bytes | None:
    size = file.readline()
    if not size.endswith(b"\r\n"):
        return None
    part = file.read(int(size[1:]) + 2)
    return part[:-2] if part.endswith(b"\r\n") else None
