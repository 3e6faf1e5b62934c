"""The heart: (workflow, events, cluster, now) -> what must take effect. Pure; the simulator runs this very code.

It walks the stage tree: a completion ends a round, then maybe a copy, a stage, a scope; ended stages let others start,
and a leaf that starts becomes a request. It must not know where events come from, nor who carries out what it returns.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace

from common import events
from common.events import DEADLINE, Event
from common.model import Grounds, Json
from common.states import ENDED
from coordinator.cluster import Cluster
from coordinator.language.definition import Definition, GroupBody, StageSpec, TemplateError, needed
from coordinator.ledger import Ledger
from coordinator.places import Place, find, group_of, live_copies, place, scope_of, stage_place
from coordinator.remaining import Remaining
from coordinator.rescoring import rescores
from coordinator.retries import retry_ms
from coordinator.routing import Parked, Work, route
from coordinator.scope import Scope
from coordinator.state import Choice, Step, Workflow

__all__ = ["NO_DEFINITION", "Step", "broken", "step"]

NO_DEFINITION = Definition("", "", {}, (), GroupBody((), None, ()), {})
"""Stands for a definition that is no longer kept."""

LOOK_AGAIN_MS = 1_000
DROPPED = "dropped: the deadline would not be met"
MAX_REQUESTS = 10_000
MAX_NODES = 30_000
STEP_CHARACTERS = 16 << 20
STEP_EFFORT = 2_000_000  # of templates, before the rest is put off


def step(workflow: Workflow, happened: Sequence[Event], cluster: Cluster, now: int) -> Step:
    """Apply events in their order, then start what is ready. now in ms of Redis time."""
    walk = _Walk(workflow, cluster, now)
    for event in happened:
        walk.apply(event)
        if not walk.running:
            break
    # Last: what has come in before, a late look at it must not make undone.
    if walk.running and walk.ends_at_deadline and walk.left_ms <= 0:
        walk.end("cancel", {"error": "its deadline has passed"})
    walk.rescore()
    walk.dispatch()
    return walk.out


def broken(workflow: Workflow, reason: str, now: int) -> Step:
    """End a workflow that cannot be stepped, with the reason; others go on."""
    ledger = Ledger(workflow, now)
    ledger.end("fail", {"stage": "", "error": reason})
    return ledger.out


class _Walk(Ledger):
    """One step being worked out."""

    def __init__(self, workflow: Workflow, cluster: Cluster, now: int) -> None:
        super().__init__(workflow, now)
        after = self.out.workflow
        self._definition = after.definition
        self._outputs = after.outputs
        self._cluster = cluster
        self._scope = Scope(after.definition, after.head.inputs, after.nodes, after.outputs, after.memo)
        self._open: deque[Place | None] = deque()
        self._ready: list[Place] = []
        self._grounds: Mapping[str, Grounds] = {}

    @property
    def _tired(self) -> bool:
        return self._scope.spent >= STEP_EFFORT

    # -- events

    def apply(self, event: Event) -> None:
        match event:
            case events.Submitted():
                self._open.append(None)
                self._await_deadline()
            case events.Completed():
                self._completed(event)
            case events.Failed():
                self._failed(event)
            case events.Lost():
                self._lost(event)
            case events.Evacuated():
                self._again(event.node, "evacuate", self._expects(event.node, event.request))
            case events.Due(node) if node == DEADLINE:  # come, which `step` sees, or not yet: the clock was put back
                self._await_deadline()
            case events.Due():
                self._due(event.node)
            case events.CancelAsked():
                self.end("cancel", {"error": event.reason})
            case events.AmendAsked():
                self._amend(event)
        self._advance()

    def _lost(self, event: events.Lost) -> None:
        if self._expects(event.node, event.request):
            reason = f"its worker or engine was lost {event.losses} times; see the dead letters"
            self._fail(find(self._definition, event.node), reason)

    def _await_deadline(self) -> None:
        if self.ends_at_deadline:
            self.out.delays.append((DEADLINE, self.left_ms))

    def _amend(self, event: events.AmendAsked) -> None:
        """Another deadline. What becomes ready from here on has its key from it, what was before is rescored."""
        workflow = self.out.workflow
        slo = replace(workflow.head.slo, deadline_at=event.deadline_at)
        workflow.head = self.out.head = replace(workflow.head, slo=slo)
        self._grounds = event.grounds
        self.tell("amended", {"deadline_at": event.deadline_at})
        self._await_deadline()

    def _completed(self, event: events.Completed) -> None:
        if not self._expects(event.node, event.request):
            return
        at = find(self._definition, event.node)
        self._outputs[event.node] = event.outcome
        self.move_request(event.node, "complete", completed_at=self.now)
        self.out.outcomes.append((at.spec, event.outcome))
        self._answered(at)

    def _due(self, key: str) -> None:
        """Go on with what was put off, or delayed."""
        node = self.node(key)
        if node.phase == "completed" and node.status == "running":
            self._answered(find(self._definition, key))
        elif node.status == "pending" and node.phase == "waiting":
            self.move_request(key, "wake")
            self._open.append(find(self._definition, key).parent)
        else:
            self._again(key, "wake", node.phase in ("delayed", "waiting"))

    def _answered(self, at: Place) -> None:
        """A leaf's request has completed; what follows from that may be put off."""
        if self._tired:
            self.out.delays.append((at.key, 0))
        else:
            self._round_ended(at)

    def _failed(self, event: events.Failed) -> None:
        if not self._expects(event.node, event.request):
            return
        node, at = self.node(event.node), find(self._definition, event.node)
        if event.prompt_tokens > node.prompt_tokens:  # too long for that engine; another may have more room
            self.set(event.node, prompt_tokens=event.prompt_tokens)
            self._again(event.node, "evacuate", True)
            return
        if not event.retryable or node.attempt >= at.spec.retries:
            attempts = f" (attempt {node.attempt + 1} of {at.spec.retries + 1})" if event.retryable else ""
            self._fail(at, event.error + attempts)
            return
        self.move_request(event.node, "delay", attempt=node.attempt + 1, error=event.error)
        self.out.delays.append((event.node, retry_ms(event.request, node.attempt)))

    def _again(self, key: str, event: str, wanted: bool) -> None:
        """Route a request anew."""
        if wanted:
            self.move_request(key, event)
            self._ready.append(find(self._definition, key))

    def _expects(self, key: str, request: str) -> bool:
        """Whether this node still waits for this request: a repeated message finds that it does not."""
        node = self.node(key)
        return node.request == request and node.phase == "queued"

    def _lives(self, at: Place | None) -> bool:
        """Whether a place, or the workflow itself, has not ended: others may have, and all in it with them."""
        return self.running and (at is None or self.node(at.key).status == "running")

    # -- the stage tree, upwards

    def _round_ended(self, at: Place) -> None:
        spec = at.spec
        try:
            self._scope.round_output(at)  # an output that fails does so here, not in the stage that reads it
            again = spec.repeat is not None and self._scope.condition(at)
        except TemplateError as error:
            self._fail(at, str(error))
            return
        if spec.repeat is not None:
            self.out.choices.append(Choice(spec, again, at.round))
            self.move(at.key, "complete")
            assert at.round is not None
            if again and at.round + 1 < spec.repeat.most:
                self._start_round(place(at.parent, spec, at.index, at.round + 1))
                return
        if spec.for_each is not None:
            self.move(at.copy_key, "complete")
            left = self.node(at.stage_key).left - 1
            self.set(at.stage_key, left=left)
            if left:
                return
            if spec.join != "all":
                self.close_inside(at.stage_key)
        self._stage_ended(at.parent, spec, "complete")

    def _stage_ended(self, parent: Place | None, spec: StageSpec, how: str, **told: str) -> None:
        key = scope_of(parent) + spec.name
        self.move(key, how, **told)
        self.tell("stage_completed", {"stage": key, "status": self.node(key).status, **told})
        self._open.append(parent)

    def _fail(self, at: Place, error: str) -> None:
        """A place fails, and all around it up to a copy that its join can do without, or an optional stage."""
        self.set(at.key, error=error)
        failed: list[str] = []
        here: Place | None = at
        while here is not None:
            failed += (here.key, here.copy_key)
            if here.index is not None and self._others_suffice(here):
                self._close_all(failed)
                return
            failed.append(here.stage_key)
            if here.spec.optional:
                self._close_all(failed)
                self.tell("stage_completed", {"stage": here.stage_key, "status": "failed", "error": error})
                self._open.append(here.parent)
                return
            here = here.parent
        self.fail(at.key, error)

    def _others_suffice(self, copy: Place) -> bool:
        """Whether as many other copies as must still complete have not ended."""
        others = sum(index != copy.index for index in live_copies(self.nodes, copy.stage_key))
        return others >= self.node(copy.stage_key).left

    def _close_all(self, failed: list[str]) -> None:
        """These fail, the innermost first; what else lives in the outermost is cancelled."""
        for key in failed:
            self.close(key, "fail")
        self.close_inside(failed[-1])

    def _advance(self) -> None:
        """Start what became ready, until nothing more does. Stages stand after those they need: one pass is enough."""
        while self._open:
            parent = self._open.popleft()
            if self._lives(parent):
                self._start_ready(parent)

    def _start_ready(self, parent: Place | None) -> None:
        prefix, stages = scope_of(parent), group_of(self._definition, parent).stages
        ended: set[str] = set()
        for spec in stages:
            key = prefix + spec.name
            if self.node(key).status == "pending" and ended.issuperset(spec.needs):
                if self.node(key).phase == "new" and self._tired:
                    self._put_off(key)
                if self.node(key).phase == "waiting":  # the rest of the scope waits with it
                    return
                self._start_stage(parent, spec)
                if not self._lives(parent):
                    return
            if self.node(key).status in ENDED:
                ended.add(spec.name)
        if len(ended) == len(stages):
            self._scope_ended(parent)

    def _scope_ended(self, parent: Place | None) -> None:
        if parent is not None:
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
            dropped = wanted and spec.optional and self._too_late_for(place(parent, spec))
            elements = self._elements(parent, spec) if wanted and not dropped and spec.for_each is not None else []
        except TemplateError as error:
            self._fail(stage, str(error))
            return
        if spec.when is not None:
            self.out.choices.append(Choice(spec, wanted))
        if len(self.nodes) + len(elements) >= MAX_NODES:
            self.fail(stage.key, f"the workflow has more than {MAX_NODES} stages, copies and rounds")
            return
        if not wanted or dropped:
            told = {"error": DROPPED} if dropped else {}
            self._stage_ended(parent, spec, "skip", **told)
            return
        self.move(stage.key, "start", left=needed(spec.join, len(elements)))
        self.tell("stage_started", {"stage": stage.key})
        if spec.for_each is None:
            self._start_round(place(parent, spec))
        elif not elements:
            self._stage_ended(parent, spec, "complete")
        else:
            for index in range(len(elements)):
                copy = place(parent, spec, index)
                self.move(copy.copy_key, "start")
                self._start_round(copy)

    def _too_late_for(self, at: Place) -> bool:
        """Whether the deadline is not expected to be met if this stage starts."""
        return 1000 * Remaining(self._definition, self.nodes, self._cluster).through_s(at) > self.left_ms

    def _elements(self, parent: Place | None, spec: StageSpec) -> list[Json]:
        """Of its copies. Raises TemplateError, also where they are too few."""
        elements = self._scope.elements(parent, spec)
        wanted = needed(spec.join, len(elements))
        if wanted > len(elements):
            raise TemplateError(f"join wants {wanted} copies to complete, and for_each has {len(elements)} elements")
        return elements

    def _start_round(self, at: Place) -> None:
        if at.spec.repeat is not None:
            self.set(at.copy_key, round=at.round)
            self.move(at.key, "start")
        if isinstance(at.spec.body, GroupBody):
            self._open.append(at)
        else:
            self._ready.append(at)

    # -- requests

    def rescore(self) -> None:
        """If the deadline was amended, give the requests that were queued before the keys that follow from it."""
        if self.running:
            self.out.rescores = rescores(self.out.workflow, self._grounds, self._cluster.policy)

    def dispatch(self) -> None:
        """Give every leaf that is ready its request, if the workflow still runs. One that fails may ready others."""
        room = STEP_CHARACTERS
        while self._ready and self.running:
            if self._too_many():
                self.fail(self._ready[0].key, f"the workflow has more than {MAX_REQUESTS} requests")
                return
            room = self._dispatch_ready(room)
            self._advance()

    def _dispatch_ready(self, room: int) -> int:
        """Returns how many more characters this step can carry."""
        ready, self._ready = self._ready, []
        remaining = Remaining(self._definition, self.nodes, self._cluster)
        work = Work(self.now, remaining.workflow_s(), remaining.after_s)
        for at in ready:
            if not self._lives(at):
                continue
            if room > 0 and not self._tired:
                room -= self._send(at, work)
            else:
                self._put_off(at.key)
        return room

    def _too_many(self) -> bool:
        """Whether those that are ready would be requests too many. Another attempt is the same request."""
        if len(self.nodes) <= MAX_REQUESTS:
            return False
        keys = {key for key, node in self.nodes.items() if node.request}
        return len(keys.union(at.key for at in self._ready)) > MAX_REQUESTS

    def _put_off(self, key: str) -> None:
        """A leaf or a stage that could start, to one of the next steps: none may take long, nor more than the store."""
        self.move_request(key, "park")
        self.out.delays.append((key, 0))

    def _send(self, at: Place, work: Work) -> int:
        """Give a leaf its request. Returns the characters it carries."""
        request = self.node(at.key).request or self._cluster.new_id()
        try:
            routed = route(self.out.workflow, at, request, self._scope, self._cluster, work)
        except TemplateError as error:
            self._fail(at, str(error))
            return 0
        if isinstance(routed, Parked):
            self._park(at, routed)
            return 0
        self.move_request(at.key, "dispatch", request=request, error="", waiting_since=0)
        self.out.pushes.append(routed)
        return routed.call.characters()

    def _park(self, at: Place, parked: Parked) -> None:
        """Look again later, or fail where there is no use."""
        if parked.hopeless:
            self._fail(at, parked.reason)
            return
        since = self.node(at.key).waiting_since or self.now
        patience_ms = max(self.left_ms, since + self._cluster.patience_ms - self.now)
        if patience_ms <= 0:
            self._fail(at, f"{parked.reason}, and the deadline has passed")
            return
        if self.node(at.key).error != parked.reason:
            self.tell("waiting", {"stage": at.key, "reason": parked.reason})
        self.move_request(at.key, "park", error=parked.reason, waiting_since=since)
        self.out.delays.append((at.key, min(patience_ms, LOOK_AGAIN_MS)))
