"""The model of the Lua operations: requests, where they are, what workflows were told. Not a test itself."""

from dataclasses import dataclass, field

from common.events import Evacuated, Event

INSTANCES = ("a", "b")
LOSSES = 3


@dataclass
class Request:
    """at: whose backlog counts it, nobody's while its workflow is told of it. from_line: it goes back there.

    key: its place in a queue, from its age on; key_of_line: it was pushed to the line last, which keeps its key.
    """

    id: str
    workflow: str
    node: str
    at: str = ""
    from_line: bool = False
    claimant: str = ""
    token: int = 0
    losses: int = 0
    key: int = 0
    key_of_line: bool = False

    @property
    def alone(self) -> bool:
        return self.losses >= LOSSES - 1


@dataclass
class Model:
    requests: dict[str, Request] = field(default_factory=dict)
    mail: dict[str, list[Event]] = field(default_factory=dict)
    claimed: dict[str, set[str]] = field(default_factory=lambda: {name: set() for name in INSTANCES})
    served: dict[str, int] = field(default_factory=dict)
    serving: set[str] = field(default_factory=lambda: set(INSTANCES))
    silent: set[str] = field(default_factory=set)
    plans: int = 0
    most: int = 1000

    @property
    def ready(self) -> set[str]:
        return self.serving - self.silent

    def queue(self, name: str) -> list[Request]:
        """In the order of their keys, else of their ids, which is that of their age."""
        found = [request for request in self.requests.values() if self.waits(request, name)]
        return sorted(found, key=lambda request: (request.key, request.id))

    def waits(self, request: Request, name: str) -> bool:
        return request.at == name and not request.claimant

    def held(self) -> list[Request]:
        return [request for request in self.requests.values() if request.claimant]

    def detach(self, request: Request) -> None:
        self.claimed.get(request.at, set()).discard(request.id)
        request.at = request.claimant = ""

    def give_back(self, request: Request) -> None:
        self.detach(request)
        if request.from_line:
            request.at = "line"
        else:
            self.mail[request.workflow].append(Evacuated(request.id, request.node))
