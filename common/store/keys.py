"""Every key name in one place (the Lua operations build the same names from the prefix). See docs/protocol.md."""

from common.errors import InvalidDocument
from common.model import LINE, LlmCall, Push

GROUP = "coordinators"
"""Consumer group of the submission and completion streams."""


TICKET_FUNCTION = "workers.tools.rq_worker.run_ticket"
"""The one function that RQ runs for us, by the name both sides know."""


def lane(push: Push) -> str:
    """The queue of a request in the line, named by what it asks of an instance: one of each kind, which is a lane.

    No id has one of the characters that part it, so no lane is an instance's queue.
    """
    model = push.call.model if isinstance(push.call, LlmCall) else None
    labels = "".join(f"+{label}" for label in sorted(push.requires))
    features = "".join(f"*{feature}" for feature in sorted(push.features))
    longer = f">{push.longer_than}" if push.longer_than else ""
    return f"{LINE}{labels}{features}{longer}" + (f"/{model}" if model is not None else "")


class Keys:
    """Key names of one namespace (a cell). One hash tag: scripts span workflow, queues and streams."""

    def __init__(self, namespace: str) -> None:
        if not namespace or not namespace.replace("-", "").replace("_", "").isalnum() or not namespace.isascii():
            raise InvalidDocument("namespace", f"{namespace!r} must be letters, digits, - and _")
        self.namespace = namespace
        self.prefix = f"{{hexgen:{namespace}}}:"
        self.submissions = self.prefix + "submissions"
        self.completions = self.prefix + "completions"
        self.leases = self.prefix + "leases"
        self.relayed = self.prefix + "relayed"
        self.delayed = self.prefix + "delayed"
        self.instances = self.prefix + "instances"
        self.offers = self.prefix + "offers"
        self.coordinators = self.prefix + "coordinators"
        self.backlog = self.prefix + "backlog"
        self.served = self.prefix + "served"
        self.shares = self.prefix + "shares"
        self.outstanding = self.prefix + "outstanding"
        self.live = self.prefix + "live"
        self.limits = self.prefix + "limits"
        self.running = self.prefix + "running"
        self.workflow_tenants = self.prefix + "workflow_tenants"
        self.quotas = self.prefix + "quotas"
        self.ended = self.prefix + "ended"
        self.dead = self.prefix + "dead"
        self.server = self.prefix + "server"
        self.schema = self.prefix + "schema"
        self.lanes = self.prefix + "lanes"
        self.learned = self.prefix + "learned"
        self.workflows = self.prefix + "workflows"
        self.traces = self.prefix + "traces"
        self.parameters = self.prefix + "parameters"
        self.tuning = self.prefix + "tuning"

    @property
    def line_wake(self) -> str:
        return self.wake(LINE)

    @property
    def tickets(self) -> str:
        """The name of RQ's queue, no key of ours: a server's cells share RQ's keys, so it has the namespace in it."""
        return f"hexgen-{self.namespace}-tools"

    @property
    def tuner(self) -> str:
        """The name of RQ's queue for the tuner's jobs; as `tickets`, no key of ours."""
        return f"hexgen-{self.namespace}-tuner"

    def workflow(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}"

    def events(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}:events"

    def outputs(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}:outputs"

    def mailbox(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}:mailbox"

    def result(self, workflow: str) -> str:
        return f"{self.prefix}workflow:{workflow}:result"

    def definition(self, digest: str) -> str:
        return f"{self.prefix}definition:{digest}"

    def request(self, request: str) -> str:
        return f"{self.prefix}request:{request}"

    def queue(self, instance: str) -> str:
        return f"{self.prefix}queue:{instance}"

    def wake(self, instance: str) -> str:
        return f"{self.prefix}wake:{instance}"

    def claimed(self, instance: str) -> str:
        return f"{self.prefix}claimed:{instance}"

    def instance(self, instance: str) -> str:
        return f"{self.prefix}instance:{instance}"
