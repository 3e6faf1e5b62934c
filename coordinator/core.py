"""The heart: (workflow, events, cluster, now) -> what must take effect. Pure; the simulator runs this very code.

It walks the stage tree: a completion ends a round, then maybe a copy, a stage, a scope; ended stages let others start,
and a leaf that starts becomes a request. It must not know where events come from, nor who carries out what it returns.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from common import events
from common.events import Event, Outcome
from common.model import Json, Node, Push
from common.states import ENDED, REQUEST, STAGE, WORKFLOW, move
from coordinator.cluster import Cluster
from coordinator.language.definition import Definition, GroupBody, StageSpec, TemplateError
from coordinator.places import Place, find, group_of, place, scope_of, stage_place
from coordinator.remaining import Remaining
from coordinator.routing import Parked, Slack, route
from coordinator.scope import Scope
from coordinator.state import PENDING, Workflow

NO_DEFINITION = Definition("", "", {}, (), GroupBody((), None, ()), {})
"""Stands for a definition that is no longer kept."""

RETRY_MS = 500
LONGEST_RETRY_MS = 30_000
LOOK_AGAIN_MS = 1_000
MAX_REQUESTS = 10_000
MAX_NODES = 30_000


@dataclass(slots=True)
class Step:
    """What must take effect, all of it or nothing. `workflow` is the state after it.

    `status` is "running" or how it ended; `outcomes` and `choices` are what there is to learn from it.
    """

    workflow: Workflow
    nodes: dict[str, Node] = field(default_factory=dict)
    pushes: list[Push] = field(default_factory=list)
    delays: list[tuple[str, int]] = field(default_factory=list)
    drops: list[str] = field(default_factory=list)
    events: list[tuple[str, Json]] = field(default_factory=list)
    status: str = "running"
    result: Json = None
    outcomes: list[tuple[StageSpec, Outcome]] = field(default_factory=list)
    choices: list[tuple[str, StageSpec, bool]] = field(default_factory=list)


def step(workflow: Workflow, happened: Sequence[Event], cluster: Cluster, now: int) -> Step:
    """Apply events in their order, then start what is ready. now in ms of Redis time."""
    walk = _Walk(workflow, cluster, now)
    for event in happened:
        walk.apply(event)
        if walk.out.status != "running":
            break
    walk.dispatch()
    return walk.out


def broken(workflow: Workflow, reason: str, now: int) -> Step:
    """End a workflow that cannot be stepped, with the reason; others go on."""
    walk = _Walk(workflow, None, now)
    walk.end("fail", {"stage": "", "error": reason})
    return walk.out


class _Walk:
    """One step being worked out. `out.workflow` is a copy that is changed in place; the given one stays as it was."""

    def __init__(self, workflow: Workflow, cluster: Cluster | None, now: int) -> None:
        after = replace(workflow, nodes=dict(workflow.nodes), outputs=dict(workflow.outputs), memo=dict(workflow.memo))
        self.out = Step(after)
        self._definition = workflow.definition
        self._nodes = after.nodes
        self._outputs = after.outputs
        self._cluster = cluster
        self._now = now
        self._left_ms = after.head.slo.deadline_at - now
        self._scope = Scope(workflow.definition, workflow.head.inputs, after.nodes, after.outputs, after.memo)
        self._open: deque[Place | None] = deque()
        self._ready: list[Place] = []

    # -- events

    def apply(self, event: Event) -> None:
        match event:
            case events.Submitted():
                self._open.append(None)
            case events.Completed():
                self._completed(event)
            case events.Failed():
                self._failed(event)
            case events.Lost():
                if self._expects(event.node, event.request):
                    self._fail(event.node, f"its worker was lost {event.losses} times; see the dead letters")
            case events.Evacuated():
                self._again(event.node, "evacuate", self._expects(event.node, event.request))
            case events.Due():
                self._again(event.node, "wake", self._node(event.node).phase in ("delayed", "waiting"))
            case events.CancelAsked():
                self.end("cancel", {"error": event.reason})
        self._advance()

    def _completed(self, event: events.Completed) -> None:
        if not self._expects(event.node, event.request):
            return
        at = find(self._definition, event.node)
        self._outputs[event.node] = event.outcome
        self._request(event.node, "complete")
        self.out.outcomes.append((at.spec, event.outcome))
        self._round_ended(at)

    def _failed(self, event: events.Failed) -> None:
        if not self._expects(event.node, event.request):
            return
        node, spec = self._node(event.node), find(self._definition, event.node).spec
        if not event.retryable or node.attempt >= spec.retries:
            attempts = f" (attempt {node.attempt + 1} of {spec.retries + 1})" if event.retryable else ""
            self._fail(event.node, event.error + attempts)
            return
        self._request(event.node, "delay")
        self._set(event.node, attempt=node.attempt + 1, error=event.error)
        self.out.delays.append((event.node, min(LONGEST_RETRY_MS, RETRY_MS << node.attempt)))

    def _again(self, key: str, event: str, wanted: bool) -> None:
        """Route a request anew."""
        if wanted:
            self._request(key, event)
            self._ready.append(find(self._definition, key))

    def _expects(self, key: str, request: str) -> bool:
        """Whether this node still waits for this request: a repeated message finds that it does not."""
        node = self._node(key)
        return node.request == request and node.phase == "queued"

    # -- the stage tree, upwards

    def _round_ended(self, at: Place) -> None:
        spec = at.spec
        try:
            self._scope.round_output(at)  # an output that fails does so here, not in the stage that reads it
            again = spec.repeat is not None and self._scope.condition(at)
        except TemplateError as error:
            self._fail(at.key, str(error))
            return
        if spec.repeat is not None:
            self.out.choices.append(("while", spec, again))
            self._move(at.key, "complete")
            assert at.round is not None
            if again and at.round + 1 < spec.repeat.most:
                self._start_round(place(at.parent, spec, at.index, at.round + 1))
                return
        if spec.for_each is not None:
            self._move(at.copy_key, "complete")
            left = self._node(at.stage_key).left - 1
            self._set(at.stage_key, left=left)
            if left:
                return
        self._stage_ended(at.parent, spec, "complete")

    def _stage_ended(self, parent: Place | None, spec: StageSpec, how: str) -> None:
        key = scope_of(parent) + spec.name
        self._move(key, how)
        self._tell("stage_completed", {"stage": key, "status": self._node(key).status})
        self._open.append(parent)

    def _advance(self) -> None:
        """Start what became ready, until nothing more does. Stages stand after those they need: one pass is enough."""
        while self._open and self.out.status == "running":
            parent = self._open.popleft()
            prefix, stages = scope_of(parent), group_of(self._definition, parent).stages
            ended: set[str] = set()
            for spec in stages:
                key = prefix + spec.name
                if self._node(key).status == "pending" and ended.issuperset(spec.needs):
                    self._start_stage(parent, spec)
                    if self.out.status != "running":
                        return
                if self._node(key).status in ENDED:
                    ended.add(spec.name)
            if len(ended) == len(stages):
                self._scope_ended(parent)

    def _scope_ended(self, parent: Place | None) -> None:
        if parent is not None:
            if self._node(parent.key).status == "running":
                self._round_ended(parent)
            return
        try:
            self.end("complete", {"output": self._scope.result()})
        except TemplateError as error:
            self.end("fail", {"stage": "output", "error": str(error)})

    # -- the stage tree, downwards

    def _start_stage(self, parent: Place | None, spec: StageSpec) -> None:
        stage = stage_place(parent, spec)
        try:
            wanted = spec.when is None or bool(self._scope.render(spec.when, stage))
            elements = self._scope.elements(parent, spec) if wanted and spec.for_each is not None else []
        except TemplateError as error:
            self._fail(stage.key, str(error))
            return
        if spec.when is not None:
            self.out.choices.append(("when", spec, wanted))
        if len(self._nodes) + len(elements) >= MAX_NODES:
            self._fail(stage.key, f"the workflow has more than {MAX_NODES} stages, copies and rounds")
            return
        if not wanted:
            self._stage_ended(parent, spec, "skip")
            return
        self._move(stage.key, "start")
        self._tell("stage_started", {"stage": stage.key})
        if spec.for_each is None:
            self._start_round(place(parent, spec))
        elif not elements:
            self._stage_ended(parent, spec, "complete")
        else:
            self._set(stage.key, left=len(elements))
            for index in range(len(elements)):
                copy = place(parent, spec, index)
                self._move(copy.copy_key, "start")
                self._start_round(copy)

    def _start_round(self, at: Place) -> None:
        if at.spec.repeat is not None:
            self._set(at.copy_key, round=at.round)
            self._move(at.key, "start")
        if isinstance(at.spec.body, GroupBody):
            self._open.append(at)
        else:
            self._ready.append(at)

    # -- requests

    def dispatch(self) -> None:
        """Give every leaf that is ready its request, if the workflow still runs."""
        if not self._ready or self.out.status != "running":
            return
        if self._too_many():
            self._fail(self._ready[0].key, f"the workflow has more than {MAX_REQUESTS} requests")
            return
        assert self._cluster is not None
        work_s = Remaining(self._definition, self._nodes, self._cluster).workflow_s()
        slack = Slack(self._left_ms / 1000, work_s)
        for at in self._ready:
            self._send(at, self._cluster, slack)
            if self.out.status != "running":
                return

    def _too_many(self) -> bool:
        """Whether those that are ready would be requests too many. Another attempt is the same request."""
        if len(self._nodes) <= MAX_REQUESTS:
            return False
        keys = {key for key, node in self._nodes.items() if node.request}
        return len(keys.union(at.key for at in self._ready)) > MAX_REQUESTS

    def _send(self, at: Place, cluster: Cluster, slack: Slack) -> None:
        node = self._node(at.key)
        request = node.request or cluster.new_id()
        try:
            routed = route(self.out.workflow, at, request, self._scope, cluster, slack)
        except TemplateError as error:
            self._fail(at.key, str(error))
            return
        if isinstance(routed, Parked):
            self._park(at, routed)
            return
        self._set(at.key, phase=move(REQUEST, node.phase, "dispatch"), request=request, error="")
        self.out.pushes.append(routed)

    def _park(self, at: Place, parked: Parked) -> None:
        """Look again later, or fail where there is no use."""
        if parked.hopeless:
            self._fail(at.key, parked.reason)
            return
        if self._left_ms <= 0:
            self._fail(at.key, f"{parked.reason}, and the deadline has passed")
            return
        node = self._node(at.key)
        if node.error != parked.reason:
            self._tell("waiting", {"stage": at.key, "reason": parked.reason})
        self._set(at.key, phase=move(REQUEST, node.phase, "park"), error=parked.reason)
        self.out.delays.append((at.key, min(self._left_ms, LOOK_AGAIN_MS)))

    # -- ends

    def _fail(self, key: str, error: str) -> None:
        node = self._node(key)
        phase = move(REQUEST, node.phase, "fail") if node.phase == "queued" else node.phase
        status = move(STAGE, node.status, "fail") if node.status == "running" else node.status
        self._set(key, status=status, phase=phase, error=error)
        self.end("fail", {"stage": key, "error": error})

    def end(self, how: str, told: dict[str, Json]) -> None:
        head, out = self.out.workflow.head, self.out
        out.status = move(WORKFLOW, out.status, how)
        elapsed_s = (self._now - head.slo.arrival_at) / 1000
        told = {
            "workflow": out.workflow.id,
            "status": out.status,
            **told,
            "elapsed_s": elapsed_s,
            "slo_s": (head.slo.deadline_at - head.slo.arrival_at) / 1000,
            "slo_met": out.status == "completed" and self._now <= head.slo.deadline_at,
        }
        out.result = told
        self._tell(out.status, told)
        out.drops = [node.request for node in self._nodes.values() if node.request and node.phase != "completed"]
        out.pushes.clear()
        out.delays.clear()

    # -- nodes

    def _node(self, key: str) -> Node:
        return self._nodes.get(key, PENDING)

    def _set(self, key: str, **changes: object) -> None:
        node = replace(self._node(key), **changes)  # type: ignore[arg-type]
        self._nodes[key] = self.out.nodes[key] = node

    def _move(self, key: str, event: str) -> None:
        self._set(key, status=move(STAGE, self._node(key).status, event))

    def _request(self, key: str, event: str) -> None:
        self._set(key, phase=move(REQUEST, self._node(key).phase, event))

    def _tell(self, kind: str, data: dict[str, Json]) -> None:
        self.out.events.append((kind, data))
