"""What a planner of the line looks at, and what it answers. Records without behaviour; knows no store, no policy."""

from dataclasses import dataclass

from common.model import Instance, InstanceLoad


@dataclass(frozen=True, slots=True)
class Asked:
    """What a request's record says: its figures, and what an instance must serve.

    key_ms: its key in any queue; prefix: the `common.prefix.chain` of its prompt, which has so many characters. token:
    its last fencing token, empty before its first claim; only a claim can change what is known of the prompt, and only
    with its key another deadline can come.
    """

    request: str
    key_ms: int
    prompt_tokens: int
    expected_tokens: int
    slo_ms: int
    prefix: bytes = b""
    model: str | None = None
    requires: frozenset[str] = frozenset()
    features: frozenset[str] = frozenset()
    characters: int = 0
    token: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """A ready instance: what it last said of itself (None: nothing), its prefix cache, and the requests bound to it.

    queued: not claimed yet; claimed: by this incarnation, and neither handed in nor given back. alone: one that must
    run alone runs there or is among the next: nothing more goes there before that one has ended. keys_ms: of what
    is queued, see `Asked`.
    """

    instance: Instance
    load: InstanceLoad | None = None
    cache: frozenset[bytes] = frozenset()
    queued: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    alone: bool = False
    keys_ms: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Lineup:
    """The heads of the line's lanes, by their keys, and all ready instances at one instant, in ms of Redis time.

    plans: how many had been carried out by then; tokens, keys_ms: of the line's requests, see `Asked`; alone: those of
    the line that must run alone. With nothing in the line there are no instances either.
    """

    now: int
    plans: int
    line: tuple[str, ...]
    standings: tuple[Standing, ...]
    tokens: tuple[str, ...] = ()
    keys_ms: tuple[int, ...] = ()
    alone: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Placement:
    """A request goes to this incarnation of an instance, and adds load_ms to its backlog."""

    request: str
    instance: str
    epoch: int
    load_ms: int
