"""The book of one step: nodes changed by legal moves only, events told, the end. Knows no stages and no requests."""

from dataclasses import replace

from common.events import DEADLINE
from common.model import Json, Node
from common.states import ENDED, REQUEST, STAGE, WORKFLOW, move
from coordinator.state import PENDING, Step, Workflow
from coordinator.usage import usage


class Ledger:
    """Writes `out`, whose workflow is a copy that is changed in place: the one given stays as it was."""

    def __init__(self, workflow: Workflow, now: int) -> None:
        after = replace(workflow, nodes=dict(workflow.nodes), outputs=dict(workflow.outputs), memo=dict(workflow.memo))
        self.out = Step(after)
        self.nodes = after.nodes
        self.now = now

    @property
    def running(self) -> bool:
        """Whether the workflow has not ended in this step."""
        return self.out.status == "running"

    @property
    def left_ms(self) -> int:
        """Time to the deadline; negative when it has passed."""
        return self.out.workflow.head.slo.deadline_at - self.now

    @property
    def ends_at_deadline(self) -> bool:
        """Whether its deadline ends the workflow."""
        return self.out.workflow.head.on_deadline == "cancel"

    def node(self, key: str) -> Node:
        """The state of a node; one that is not known is pending."""
        return self.nodes.get(key, PENDING)

    def set(self, key: str, **changes: object) -> None:
        """Change some fields of a node."""
        node = replace(self.node(key), **changes)  # type: ignore[arg-type]
        self.nodes[key] = self.out.nodes[key] = node

    def move(self, key: str, event: str, **changes: object) -> None:
        """Move a stage, copy or round, and change other fields with it. Raises IllegalTransition."""
        self.set(key, status=move(STAGE, self.node(key).status, event), **changes)

    def move_request(self, key: str, event: str, **changes: object) -> None:
        """Move the request of a leaf, and change other fields with it. Raises IllegalTransition."""
        self.set(key, phase=move(REQUEST, self.node(key).phase, event), **changes)

    def tell(self, kind: str, data: dict[str, Json]) -> None:
        """An event for the user."""
        self.out.events.append((kind, data))

    def close(self, key: str, how: str) -> None:
        """A node that has not ended fails or is cancelled ("fail", "cancel"); its request, if any, is given up."""
        if self.node(key).status in ENDED:
            return
        if self._is_put_off(key):
            self.out.recalls.append(key)
        self.move(key, how)
        if self._asks(key):
            self._give_up(key)
            self.move_request(key, how)

    def close_inside(self, key: str) -> None:
        """All that lives inside a node is cancelled, and what this step would have started there is taken back."""
        named = [other for other in self.nodes if other.startswith(key)]
        inside = dict.fromkeys(other for other in named if other[len(key) :].startswith((".", "[", "@")))
        for other in inside:
            self.close(other, "cancel")
        self.out.pushes = [push for push in self.out.pushes if push.node not in inside]
        self.out.delays = [delay for delay in self.out.delays if delay[0] not in inside]

    def fail(self, key: str, error: str) -> None:
        """A node fails, and the workflow with it."""
        self.close(key, "fail")
        self.set(key, error=error)
        self.end("fail", {"stage": key, "error": error})

    def _asks(self, key: str) -> bool:
        """Whether the node is a leaf whose request is, or would be, under way."""
        node = self.node(key)
        return bool(node.request or node.phase != "new") and node.phase not in ENDED

    def _is_put_off(self, key: str) -> bool:
        """Whether the node is a leaf whose request has completed, and what follows from that is not worked out."""
        node = self.node(key)
        return node.status == "running" and node.phase == "completed"

    def _give_up(self, key: str) -> None:
        node = self.node(key)
        if node.request:
            self.out.drops.append(node.request)
        if node.phase in ("delayed", "waiting"):
            self.out.recalls.append(key)

    def end(self, how: str, told: dict[str, Json]) -> None:
        """End the workflow: what is live is dropped, what this step would have started is taken back."""
        head, out = self.out.workflow.head, self.out
        out.status = move(WORKFLOW, out.status, how)
        out.result = {
            "workflow": out.workflow.id,
            "status": out.status,
            **told,
            "elapsed_s": (self.now - head.slo.arrival_at) / 1000,
            "slo_s": (head.slo.deadline_at - head.slo.arrival_at) / 1000,
            "slo_met": out.status == "completed" and self.now <= head.slo.deadline_at,
            "usage": usage(out.workflow.outputs),
        }
        self.tell(out.status, out.result)
        for key in self.nodes:
            if self._asks(key):
                self._give_up(key)
            elif self._is_put_off(key):
                self.out.recalls.append(key)
        if self.ends_at_deadline:
            out.recalls.append(DEADLINE)
        out.pushes.clear()
        out.delays.clear()
