"""What the loops of one coordinator share: the store, the cluster's view, compiled definitions, workflows at hand."""

import logging
import os
import secrets
import socket
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence

from common import clock
from common.errors import InvalidDocument
from common.events import Completed, Outcome
from common.model import Node
from common.policy.registry import policy
from common.policy.rules import Rules
from common.settings import Settings
from common.store.cell import Cell
from common.store.inbox import Look
from common.store.tuning import NONE, Parameters
from coordinator.cluster import Cluster
from coordinator.definitions import OwnDefinitions
from coordinator.estimates import Estimates
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition
from coordinator.reports import Reports
from coordinator.shares import Shares, needs_shares
from coordinator.state import Workflow

WORKFLOWS_AT_HAND = 2000
DEFINITIONS_AT_HAND = 500
REFRESH_S = 0.5
log = logging.getLogger("hexgen.coordinator")


class Desk:
    """One coordinator's memory. All of it can be lost: the store holds the truth, the version check keeps it whole."""

    def __init__(self, cell: Cell, settings: Settings, definitions: Sequence[Definition] = ()) -> None:
        self.cell = cell
        self.settings = settings
        self.own = OwnDefinitions(cell.records, definitions, settings.keep_definition_ms)
        self.policy: Rules = settings.rules()
        self._own_values = settings.values
        self.values: dict[str, float] = self._own_values
        self._taken = NONE
        self.others: Mapping[str, str] | None = None
        """The policies of the other coordinators, by name, as the roster has seen them last; None: not yet."""
        self.estimates = Estimates()
        self.reports = Reports()
        self.name = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(3)}"
        self._ids = request_ids()
        self._definitions: OrderedDict[str, Definition] = OrderedDict()
        self._workflows: OrderedDict[str, Workflow] = OrderedDict()
        self._cluster: Cluster | None = None
        self._refreshed_at = float("-inf")

    async def cluster(self) -> Cluster:
        """The cluster, with its backlog as of now where that counts; instances are read anew every half second."""
        now = clock.monotonic_s()
        if self._cluster is None or now - self._refreshed_at > REFRESH_S:
            turn = self._cluster.turn if self._cluster else secrets.randbelow(1000)
            instances = await self.cell.instances.all()
            tools = tuple((await self.cell.offers.all()).values())
            self._cluster = Cluster(
                instances, {}, self.policy, self.estimates, self._ids.__next__, turn, tools, self.settings.lease_ms,
                shut=frozenset() if self.policy.late else await self.cell.instances.shut(),
            )  # fmt: skip
            self._refreshed_at = now
        if not self.policy.late:
            self._cluster.backlog_ms = await self.cell.instances.backlogs()
        if needs_shares(self.policy):
            self._cluster.shares = Shares(*await self.cell.instances.shares())
        return self._cluster

    def take(self, found: Parameters) -> None:
        """Go on with the tuner's values, if they are for this policy and there are any, else with the settings'."""
        if (found.policy, found.values) == (self._taken.policy, self._taken.values):
            return
        self._taken, name = found, self.settings.policy
        values = self._own_values | (dict(found.values) if found.policy == name else {})
        try:
            self.policy = policy(name, values)
        except InvalidDocument as error:
            log.warning("policy %s: version %d of its parameters is not taken: %s", name, found.version, error)
            return
        if values != self.values:
            told = " ".join(f"{key} {value:.3g}" for key, value in values.items())
            log.info("policy %s goes on with %s", name, told or "its own numbers")
        self.values = values

    def refresh(self) -> None:
        """Read the instances anew before the next step."""
        self._refreshed_at = float("-inf")

    def at_hand(self, workflow: str) -> Workflow | None:
        """What is kept here, maybe no longer true. Never changed in place: whoever holds it may go on with it."""
        return self._workflows.get(workflow)

    async def workflow(self, name: str, known: Workflow | None, look: Look) -> Workflow:
        """The workflow as `look` saw it: `known` if that has its version, else read; outputs are fetched once."""
        if look.nodes is None or look.head is None:
            assert known is not None
            return known
        outputs = _still_true(known, look.nodes) if known is not None and known.head == look.head else {}
        definition = await self.definition(look.head.definition)
        found = Workflow(name, look.head, definition, look.version, look.nodes, outputs)
        fresh = {event.node for event in look.mail if isinstance(event, Completed)}
        missing = [
            key
            for key, node in look.nodes.items()
            if node.phase == "completed" and key not in outputs and key not in fresh
        ]
        if missing:
            found.outputs = outputs | await self.cell.inbox.outputs(name, missing)
        return found

    def keep(self, workflow: Workflow) -> None:
        """Remember a workflow as it is after a commit."""
        self._workflows[workflow.id] = workflow
        self._workflows.move_to_end(workflow.id)
        if len(self._workflows) > WORKFLOWS_AT_HAND:
            self._workflows.popitem(last=False)

    def forget(self, workflow: str) -> None:
        """It has ended, or what is known of it is no longer true."""
        self._workflows.pop(workflow, None)

    async def definition(self, digest: str) -> Definition:
        """A compiled definition. Raises LookupError when the store does not have it."""
        if digest in self._definitions:
            self._definitions.move_to_end(digest)
            return self._definitions[digest]
        document = await self.cell.records.definition(digest)
        if document is None:
            raise LookupError(f"definition {digest} is not kept any more")
        return self.remember(compile_definition(document))

    def remember(self, definition: Definition) -> Definition:
        """Keep a compiled definition at hand."""
        self._definitions[definition.digest] = definition
        if len(self._definitions) > DEFINITIONS_AT_HAND:
            self._definitions.popitem(last=False)
        return definition


def _still_true(known: Workflow, nodes: Mapping[str, Node]) -> dict[str, Outcome]:
    """The remembered outputs of nodes that completed in the steps remembered, not in others after a failover."""
    return {
        key: output
        for key, output in known.outputs.items()
        if key in nodes and 0 < nodes[key].completed_at == known.nodes[key].completed_at
    }


def request_ids() -> Iterator[str]:
    """Ids of 24 hex digits that sort by age: ms since the epoch, a counter, this process's own mark."""
    mark = secrets.token_hex(4)
    count = 0
    while True:
        count = (count + 1) & 0xFFFFF
        yield f"{clock.wall_ms():011x}{count:05x}{mark}"
