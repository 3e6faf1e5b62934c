"""Drives one workflow through the core with its queue in memory, in place of store and workers. No test by itself.

Every step is checked for what must hold of all of them: it changes nothing it was given, makes only legal moves, pushes
nothing that is queued already, leaves no workflow without a next event, and ends each one once and whole.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import count

from common import profiles, wire
from common.events import (
    DEADLINE,
    AmendAsked,
    CancelAsked,
    Completed,
    Due,
    Evacuated,
    Event,
    Failed,
    Lost,
    Outcome,
    Submitted,
)
from common.model import LINE, Grounds, Head, Instance, Json, LlmCall, Push, Slo, ToolCall, Usage
from common.policy.registry import policy
from common.policy.rules import Rules
from common.states import ENDED, REQUEST, STAGE, Table
from coordinator import core
from coordinator.cluster import Cluster
from coordinator.estimates import Estimates
from coordinator.language.compiler import compile_definition
from coordinator.language.definition import Definition, ToolBody
from coordinator.language.document import parse_document
from coordinator.places import Place, find
from coordinator.state import PENDING, Workflow

START = 1_000_000
ENDS = ("completed", "failed", "cancelled")
Answer = Callable[[Push], Json]


class AttemptFailed(Exception):
    """Raised by an answer: the attempt fails."""

    def __init__(self, error: str = "out of memory", retryable: bool = True) -> None:
        super().__init__(error)
        self.error = error
        self.retryable = retryable


def definition(document: str | dict[str, Json], inputs: Mapping[str, Json] | None = None) -> Definition:
    """Compiled; what the document leaves out is given: its name, and the inputs' declarations."""
    plain = parse_document(document) if isinstance(document, str) else dict(document)
    plain.setdefault("name", "flow")
    plain.setdefault("inputs", {name: {"type": "any"} for name in inputs or {}})
    return compile_definition(plain)


def instance(name: str, kind: str = "a100", **changes: object) -> Instance:
    """A ready instance of that kind."""
    fields = {"profile": profiles.named(kind), "models": ("m",), "features": frozenset({"json_schema"})}
    return Instance(name, 1, **{**fields, **changes})


TWO = (instance("fast"), instance("slow", "a6000"))


def asked(push: Push) -> Json:
    """What the request asks: the text of its prompt, or the arguments of its tool."""
    return push.call.text() if isinstance(push.call, LlmCall) else push.call.args


def reachable(table: Table) -> set[tuple[str, str]]:
    """All pairs (from, to) that legal moves connect, none at all included."""
    pairs = {(start, end) for (start, _), end in table.items()}
    pairs |= {(status, status) for pair in pairs for status in pair}
    while True:
        further = {(a, d) for a, b in pairs for c, d in pairs if b == c} - pairs
        if not further:
            return pairs
        pairs |= further


STAGE_MOVES, REQUEST_MOVES = reachable(STAGE), reachable(REQUEST)


class Bench:
    """One workflow. `queue`: its live requests by id; `pushes`: all there were; `delays`: when a delayed node is due.

    `packed`: between steps the state goes through bytes, and nothing that is only cached survives.
    """

    def __init__(
        self,
        document: str | dict[str, Json] | Definition,
        inputs: Mapping[str, Json] | None = None,
        *,
        instances: Sequence[Instance] = TWO,
        rules: Rules | None = None,
        slo_s: float = 60.0,
        packed: bool = False,
        patience_ms: int = 0,
        on_deadline: str = "continue",
    ) -> None:
        self.patience_ms = patience_ms
        compiled = document if isinstance(document, Definition) else definition(document, inputs)
        slo = Slo(START, START + round(slo_s * 1000))
        head = Head("t", compiled.name, compiled.digest, dict(inputs or {}), slo, on_deadline=on_deadline)
        self.workflow = Workflow("w", head, compiled)
        self.now = START
        self.packed = packed
        self.queue: dict[str, Push] = {}
        self.delays: dict[str, int] = {}
        self.pushes: list[Push] = []
        self.events: list[tuple[str, Json]] = []
        self.status = "running"
        self.result: Json = None
        self._rules = rules or policy("hexgen")
        self._ids = count(1)
        self.estimates = Estimates()
        self._offered: list[frozenset[str]] = []
        self.register(*instances)
        self.offer({spec.body.tool for spec in compiled.stages.values() if isinstance(spec.body, ToolBody)})

    def register(self, *instances: Instance) -> None:
        """These are the instances now."""
        self.cluster = Cluster(instances, {}, self._rules, self.estimates, self._new_id, tools=self._offered)
        self.cluster.patience_ms = self.patience_ms

    def offer(self, *offered: Iterable[str]) -> None:
        """These are the tool workers now, by what each has; at the start there is one that has all that is needed."""
        self._offered[:] = map(frozenset, offered)

    def _new_id(self) -> str:
        return f"r{next(self._ids):05d}"

    # -- what happens

    def post(self, *happened: Event) -> core.Step:
        """One step over these events; its effects take place."""
        before = self.workflow
        nodes, outputs, memo = dict(before.nodes), dict(before.outputs), deepcopy(before.memo)
        made = core.step(before, happened, self.cluster, self.now)
        assert (before.nodes, before.outputs, before.memo) == (nodes, outputs, memo)
        for event in happened:
            self._happened(event)
        self._check(made)
        for request in made.drops:
            self.queue.pop(request, None)
        for node in made.recalls:
            self.delays.pop(node, None)
        self.queue |= {push.request: push for push in made.pushes}
        self.pushes += made.pushes
        self.delays |= {node: self.now + due_in for node, due_in in made.delays}
        self.events += made.events
        self.workflow, self.status, self.result = made.workflow, made.status, made.result
        if made.status != "running":
            self._check_end(made)
        else:
            assert self.queue or self.delays.keys() - {DEADLINE}, "it runs, and nothing will ever happen to it"
        if self.packed:
            self._pack()
        return made

    def submit(self) -> core.Step:
        return self.post(Submitted())

    def complete(self, node: str, output: Json = None) -> core.Step:
        return self.post(self.completed(node, output))

    def completed(self, node: str, output: Json = None) -> Completed:
        """The event; for a workflow that has it queued."""
        push = self.of(node)
        usage = Usage(100, 10) if isinstance(push.call, LlmCall) else Usage()
        return Completed(push.request, node, Outcome(output, push.instance, 5, 50, usage, 400))

    def fail(self, node: str, error: str = "out of memory", retryable: bool = True, tokens: int = 0) -> core.Step:
        return self.post(Failed(self.of(node).request, node, error, retryable, tokens))

    def lose(self, node: str, losses: int = 3) -> core.Step:
        return self.post(Lost(self.of(node).request, node, losses))

    def evacuate(self, node: str) -> core.Step:
        return self.post(Evacuated(self.of(node).request, node))

    def cancel(self, reason: str = "not needed") -> core.Step:
        return self.post(CancelAsked(reason))

    def amendment(self, slo_s: float) -> AmendAsked:
        """The event, as whoever has looked at the records posts it."""
        grounds: dict[str, Grounds] = {}
        for push in self.pushes:
            if push.request not in grounds or push.instance != LINE:  # the line keeps the first ones
                grounds[push.request] = wire.unpack_grounds(wire.pack_grounds(push.grounds))
        under_way = {node.request for node in self.workflow.nodes.values() if node.phase not in ENDED}
        kept = {request: known for request, known in grounds.items() if request in under_way}
        return AmendAsked(START + round(1000 * slo_s), kept)

    def amend(self, slo_s: float) -> core.Step:
        return self.post(self.amendment(slo_s))

    def wait(self) -> core.Step:
        """Time passes until the next delayed node is due."""
        node = min(self.delays, key=lambda key: (self.delays[key], key))
        self.now = max(self.now, self.delays[node])
        return self.post(Due(node))

    def run(self, answer: Answer = asked) -> "Bench":
        """To the end: requests are answered in the order they were pushed, time passes when there is none."""
        if not self.pushes and not self.delays:
            self.submit()
        while self.status == "running":
            if not self.queue:
                self.wait()
                continue
            push = next(iter(self.queue.values()))
            try:
                output = answer(push)
            except AttemptFailed as failed:
                self.fail(push.node, failed.error, failed.retryable)
            else:
                self.complete(push.node, output)
        return self

    # -- what is there to see

    def of(self, node: str) -> Push:
        """The queued request of a node."""
        return next(push for push in self.queue.values() if push.node == node)

    @property
    def queued(self) -> list[str]:
        """The nodes that have a request queued."""
        return [push.node for push in self.queue.values()]

    @property
    def output(self) -> Json:
        assert self.status == "completed", self.result
        return self.result["output"]

    @property
    def error(self) -> tuple[str, str]:
        """Stage and reason of a failure."""
        assert self.status == "failed", self.result
        return self.result["stage"], self.result["error"]

    @property
    def told(self) -> list[str]:
        """The user's events in one word each: kind, and stage where there is one."""
        return [f"{kind} {data['stage']}" if kind not in (*ENDS, "amended") else kind for kind, data in self.events]

    def calls(self) -> dict[str, Json]:
        """What was asked by each node, the last time."""
        return {push.node: asked(push) for push in self.pushes}

    # -- what must hold

    def _happened(self, event: Event) -> None:
        if isinstance(event, Completed | Failed | Lost | Evacuated):
            self.queue.pop(event.request, None)
        elif isinstance(event, Due):
            self.delays.pop(event.node, None)

    def _check(self, made: core.Step) -> None:
        for key, node in made.nodes.items():
            old = self.workflow.nodes.get(key, PENDING)
            assert (old.status, node.status) in STAGE_MOVES, key
            assert (old.phase, node.phase) in REQUEST_MOVES, key
            assert node.left >= 0, key
        assert made.workflow.nodes == self.workflow.nodes | made.nodes
        pushed = [push.request for push in made.pushes]
        assert len(set(pushed)) == len(pushed)
        assert not self.queue.keys() & set(pushed)
        assert not self.delays.keys() & {push.node for push in made.pushes}
        for push in made.pushes:
            node = made.nodes[push.node]
            assert (node.status, node.phase, node.request) == ("running", "queued", push.request)
            assert isinstance(push.call, LlmCall | ToolCall)
            assert push.load_ms >= 1
        assert len(set(made.drops)) == len(made.drops)
        assert {one.request for one in made.rescores} <= {node.request for node in self.workflow.nodes.values()}
        waited_for = {
            key
            for key, node in made.workflow.nodes.items()
            if node.phase in ("queued", "delayed", "waiting") or (node.status, node.phase) == ("running", "completed")
        }
        if made.status == "running":
            live = {push.node for push in (*self.queue.values(), *made.pushes) if push.request not in made.drops}
            live |= {node for node in self.delays if node not in made.recalls} | {node for node, _ in made.delays}
            live -= {DEADLINE}
            assert live == waited_for, "nothing is under way that nobody waits for, and nothing is waited for in vain"
            for key in waited_for:
                self._check_around(made.workflow, key)

    def _check_around(self, workflow: Workflow, key: str) -> None:
        """What is around a live request has not ended."""
        at: Place | None = find(workflow.definition, key)
        if workflow.nodes[key].status == "pending":  # it is put off whether it starts
            at = at.parent
        while at is not None:
            assert {workflow.nodes[around].status for around in (at.key, at.copy_key, at.stage_key)} == {"running"}, key
            at = at.parent

    def _check_end(self, made: core.Step) -> None:
        ends = [kind for kind, _ in self.events if kind in ENDS]
        assert ends == [self.status]
        assert self.events[-1] == (self.status, self.result)
        assert not made.pushes
        assert not made.delays
        assert self.queue == {}, "what is queued is dropped with the workflow's end"
        assert self.delays == {}, "and no delay is left"

    def _pack(self) -> None:
        state = self.workflow
        nodes = {key: wire.unpack_node(wire.pack_node(node)) for key, node in state.nodes.items()}
        outputs = {key: wire.unpack_outcome(wire.pack_outcome(value)) for key, value in state.outputs.items()}
        head = wire.unpack_head(wire.pack_head(state.head))
        self.workflow = Workflow(state.id, head, state.definition, state.version, nodes, outputs)
