"""The Lua operations against a model of them, in random order: after each, the store holds what the model says.

Stale holders, duplicated calls, old seats and old plans take part: what they do must change nothing.
"""

import asyncio
import secrets
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from operations_bench import LEASE_MS, PROFILE, accept, push
from store_model import INSTANCES, LOSSES, Model, Request

from common.errors import AttemptFailed, Superseded
from common.events import AmendAsked, CancelAsked, Completed, Evacuated, Event, Failed, Lost, Outcome, Submitted
from common.lineup import Placement
from common.model import Rescore
from common.store.cell import Cell
from common.store.embedded import EmbeddedServer
from common.store.inbox import Commit, End
from common.store.limits import Full
from common.store.queues import Room, Seat
from common.store.scripts import call_id

LOAD_MS = 100
HOWS = ("complete", "fail", "release", "forfeit")
some = st.integers(0, 100)
at_instance = st.sampled_from(INSTANCES)
at_queue = st.sampled_from((*INSTANCES, "line"))


class Store(RuleBasedStateMachine):
    """One cell, its workflows, two instances and the line."""

    url = ""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.cell = Cell.open(self.url, f"model-{secrets.token_hex(4)}")
        self.model = Model()
        self.handed: list[tuple[str, int]] = []
        self.calls: dict[str, str] = {}
        self.given: dict[str, list[str]] = {}
        self.known: list[str] = []
        self.count = 0
        self.seats = {name: self.joined(name) for name in INSTANCES}

    def teardown(self) -> None:
        self.run(self.cell.close())
        self.runner.close()

    def run(self, operation: Any) -> Any:
        return self.runner.run(operation)

    def joined(self, name: str) -> Seat:
        epoch = self.run(self.cell.instances.register(name, PROFILE, ["m"], [], []))
        return Seat(name, epoch, f"{name}/{epoch}")

    def live(self, number: int) -> str:
        names = sorted(self.model.mail)
        return names[number % len(names)]

    # -- workflows

    @initialize()
    def begin(self) -> None:
        """Work in each queue, some of it claimed, one lease lost to another: from here on everything can happen."""
        for number, queue in enumerate((*INSTANCES, "line")):
            self.submit()
            self.step(number, queue, 3)
        self.claim("a", 2, empty=False)
        self.expire(0)
        self.step(0, "b", 0)
        self.claim("b", 2, empty=False)
        for how in HOWS:
            self.hand_in_late(0, how)

    @rule()
    def submit(self) -> None:
        name, running = f"w{len(self.known)}", len(self.model.mail)
        answer = self.run(accept(self.cell, name))
        if running >= self.model.most:
            assert isinstance(answer, Full)
            assert answer[:3] == ("workflows", running, self.model.most)
            return
        assert answer == "accepted"
        self.known.append(name)
        self.model.mail[name] = [Submitted()]

    @rule(most=st.sampled_from((4, 1000)))
    def limit(self, most: int) -> None:
        self.run(self.cell.limits.set("workflows", most))
        self.model.most = most

    @precondition(lambda self: self.known)
    @rule(number=some)
    def submit_again(self, number: int) -> None:
        name = self.known[number % len(self.known)]
        assert self.run(accept(self.cell, name)) == "same"
        assert self.run(accept(self.cell, name, digest="other")) == "other"

    @precondition(lambda self: self.known)
    @rule(number=some)
    def cancel(self, number: int) -> None:
        name = self.known[number % len(self.known)]
        asked = self.run(self.cell.inbox.cancel(name, "enough"))
        assert bool(asked) == (name in self.model.mail)
        if asked:
            self.model.mail[name].append(CancelAsked("enough"))

    @precondition(lambda self: self.known)
    @rule(number=some, hours=st.integers(-2, 2))
    def amend(self, number: int, hours: int) -> None:
        name, deadline_at = self.known[number % len(self.known)], hours * 3_600_000
        asked = self.run(self.cell.inbox.amend(name, deadline_at))
        assert asked == (name in self.model.mail)
        if asked:
            self.model.mail[name].append(AmendAsked(deadline_at))

    @precondition(lambda self: self.model.mail)
    @rule(number=some, queue=at_queue, new=st.integers(0, 3))
    def step(self, number: int, queue: str, new: int) -> None:
        """A coordinator takes the mail: what came back is routed anew, new requests are made, or all ends; another
        deadline is the key of all that there are.
        """
        model, name = self.model, self.live(number)
        look = self.run(self.cell.inbox.begin([(name, -1)], 1000))[0]
        own = {request.id: request for request in model.requests.values() if request.workflow == name}
        commit = Commit(name, "", look.version, len(look.mail), "json", seen=look.seen)
        if any(isinstance(event, CancelAsked | Lost) for event in look.mail):
            commit.drops, commit.end = list(own), End("failed", {"status": "failed"}, 60_000)
            for request in own.values():
                model.detach(request)
                del model.requests[request.id]
            del model.mail[name]
        else:
            commit.rescores = list(self.rescored(own.values(), look.mail))
            routed = [own[event.request] for event in look.mail if isinstance(event, Evacuated | Failed)]
            routed += list(self.made(name, new))
            commit.pushes = [
                push(request.id, request.node, queue, load_ms=LOAD_MS, tenant="acme", price=5) for request in routed
            ]
            model.mail[name] = []
            for request in routed:
                request.key = request.key if request.key_of_line and queue == "line" else 0
                request.at, request.from_line, request.key_of_line = queue, queue == "line", queue == "line"
                if queue in INSTANCES and queue not in model.ready:
                    model.give_back(request)
        assert self.run(self.cell.inbox.commit([commit]))[0].state == 1
        late = self.run(self.cell.inbox.commit([commit]))[0]  # by another coordinator that saw the same
        assert late.state == (0 if name in model.mail else -1)

    def rescored(self, requests: Iterable[Request], mail: list[Event]) -> Iterator[Rescore]:
        for deadline_at in (event.deadline_at for event in mail if isinstance(event, AmendAsked)):
            for request in requests:
                request.key = deadline_at
                yield Rescore(request.id, request.key, 0, 0, 0)

    def made(self, workflow: str, count: int) -> Iterator[Request]:
        for _ in range(count):
            self.count += 1
            request = Request(f"r{self.count:04}", workflow, f"s{self.count}")
            self.model.requests[request.id] = request
            yield request

    # -- workers

    @rule(name=at_instance, most=st.integers(1, 3), empty=st.booleans())
    def claim(self, name: str, most: int, empty: bool) -> None:
        """The oldest first, each under a token larger than its last; one that must run alone only by itself."""
        seat, call = self.seats[name], call_id()
        queue = self.model.queue(name)
        expected = list(takewhile(lambda request: not request.alone, queue))[:most]
        if empty and queue and queue[0].alone:
            expected = queue[:1]
        for request in expected:
            request.claimant = seat.claimant
            self.model.claimed[name].add(request.id)
        given = self.run(self.cell.queues.claim(seat, call, LEASE_MS, Room(most, 10_000, 10_000, empty)))
        assert [(claim.request, claim.alone) for claim in given] == [(one.id, one.alone) for one in expected]
        for request, claim in zip(expected, given, strict=True):
            assert claim.token > request.token
            request.token = claim.token
        self.handed += [(claim.request, claim.token) for claim in given]
        if given:
            self.calls[name] = call
            self.given[name] = [claim.request for claim in given]

    @rule(name=at_instance)
    def claim_again(self, name: str) -> None:
        """The reply was lost: the same call gives what it gave and is still held, and nothing else."""
        if name in self.calls:
            seat = self.seats[name]
            again = self.run(self.cell.queues.claim(seat, self.calls[name], LEASE_MS, Room(3, 10_000, 10_000)))
            held = {request.id for request in self.model.held() if request.claimant == seat.claimant}
            assert [claim.request for claim in again] == [one for one in self.given[name] if one in held]

    @precondition(lambda self: self.handed)
    @rule(number=some, how=st.sampled_from(HOWS))
    def hand_in(self, number: int, how: str) -> None:
        """By whoever ever held it, also again: it counts under the current token, once."""
        model, (name, token) = self.model, self.handed[number % len(self.handed)]
        request = model.requests.get(name)
        counts = request is not None and request.token == token and bool(request.claimant)
        if how == "release":
            self.run(self.cell.queues.release([(name, token)]))
        elif how == "forfeit":
            self.run(self.cell.queues.forfeit([(name, token)], "stalled"))
        else:
            ended = AttemptFailed("boom") if how == "fail" else Outcome(f"of {name}")
            assert self.run(self.cell.queues.finish([(name, token, ended)])) == [counts]
        if request is None or not counts:
            return
        if how == "release":
            model.give_back(request)
            return
        if how == "forfeit":
            self.lose(request, "stalled")
            return
        at = request.at
        model.detach(request)
        if how == "complete":
            model.served[at] = model.served.get(at, 0) + 1
            del model.requests[name]
        done = Completed(name, request.node, Outcome(f"of {name}"))
        model.mail[request.workflow].append(done if how == "complete" else Failed(name, request.node, "boom", True))

    def late(self) -> list[int]:
        """What was handed out of requests that another holds now."""
        held = {request.id: request.token for request in self.model.held()}
        return [at for at, (name, token) in enumerate(self.handed) if held.get(name, token) != token]

    @precondition(lambda self: bool(self.late()))
    @rule(number=some, how=st.sampled_from(HOWS))
    def hand_in_late(self, number: int, how: str) -> None:
        late = self.late()
        self.hand_in(late[number % len(late)], how)

    @rule(name=at_instance)
    def renew(self, name: str) -> None:
        """All that was ever handed out: what is not held under that token any more is told."""
        status, gone = self.run(self.cell.queues.renew(self.seats[name], LEASE_MS, self.handed))
        held = {(request.id, request.token) for request in self.model.held()}
        assert gone == [request for request, token in self.handed if (request, token) not in held]
        assert status == ("ready" if name in self.model.serving else "draining")
        self.model.silent.discard(name)

    @precondition(lambda self: self.model.held())
    @rule(number=some)
    def expire(self, number: int) -> None:
        held = self.model.held()
        request = held[number % len(held)]
        self.run(self.cell.client.zadd(self.cell.keys.leases, {request.id: 0}, xx=True))
        self.lose(request, "")

    def lose(self, request: Request, engine: str) -> None:
        request.losses += 1
        lost = self.run(self.cell.queues.reap(0, LOSSES))
        assert [(one.request, one.claimant, one.losses, one.engine) for one in lost] == [
            (request.id, request.claimant, request.losses, engine)
        ]
        if request.losses < LOSSES:
            self.model.give_back(request)
        else:
            self.model.detach(request)
            self.model.mail[request.workflow].append(Lost(request.id, request.node, LOSSES))

    # -- instances

    @rule(name=at_instance)
    def drain(self, name: str) -> None:
        queued = self.model.queue(name)
        assert self.run(self.cell.instances.evacuate(name, "draining", self.seats[name].epoch)) == len(queued)
        self.model.serving.discard(name)
        for request in queued:
            self.model.give_back(request)

    @rule(name=at_instance)
    def fall_silent(self, name: str) -> None:
        """Until it is heard of again; then it is what it was."""
        queued = self.model.queue(name)
        assert self.run(self.cell.instances.evacuate(name, "lost")) == len(queued)
        self.model.silent.add(name)
        for request in queued:
            self.model.give_back(request)

    @rule(name=at_instance)
    def start_again(self, name: str) -> None:
        """A later incarnation has the queue; what the earlier one has claimed it holds until its leases end."""
        before = self.seats[name]
        self.seats[name] = self.joined(name)
        self.model.serving.add(name)
        self.model.silent.discard(name)
        self.model.claimed[name].clear()
        self.calls.pop(name, None)
        for outdated in (
            self.cell.queues.claim(before, call_id(), LEASE_MS, Room(3, 10_000, 10_000)),
            self.cell.queues.renew(before, LEASE_MS, self.handed),
            self.cell.instances.evacuate(name, "draining", before.epoch),
        ):
            with pytest.raises(Superseded):
                self.run(outdated)

    # -- the line

    @precondition(lambda self: self.model.queue("line"))
    @rule(name=at_instance, most=st.integers(1, 3))
    def place(self, name: str, most: int) -> None:
        chosen, seat = self.model.queue("line")[:most], self.seats[name]
        plan = [Placement(request.id, name, seat.epoch or 0, LOAD_MS) for request in chosen]
        ready = name in self.model.ready
        assert self.run(self.cell.line.place(self.model.plans, plan)) == [ready] * len(plan)
        assert self.run(self.cell.line.place(self.model.plans, plan)) is None  # sent again: a plan counts once
        self.model.plans += 1
        for request in chosen if ready else ():
            request.at = name

    @precondition(lambda self: self.model.queue("line"))
    @rule(number=some)
    def unplace(self, number: int) -> None:
        waiting = self.model.queue("line")
        request = waiting[number % len(waiting)]
        assert self.run(self.cell.line.give_back([request.id])) == 1
        assert self.run(self.cell.line.give_back([request.id])) == 0
        request.from_line = False
        self.model.give_back(request)

    # -- what must hold

    @invariant()
    def the_store_is_as_the_model_says(self) -> None:
        self.run(self.compare())

    async def compare(self) -> None:
        read, keys, model = self.cell.client, self.cell.keys, self.model
        for name in (*INSTANCES, "line"):
            assert _names(await read.zrange(keys.queue(name), 0, -1)) == [one.id for one in model.queue(name)]
        for name in INSTANCES:
            assert set(_names(await read.smembers(keys.claimed(name)))) == model.claimed[name]
        assert set(_names(await read.zrange(keys.leases, 0, -1))) == {request.id for request in model.held()}
        assert set(_names(await read.zrange(keys.live, 0, -1))) == set(model.mail)
        assert set(_names(await read.hkeys(keys.workflow_tenants))) == set(model.mail)
        assert await read.hgetall(keys.running) == ({b"acme": b"%d" % len(model.mail)} if model.mail else {})
        records = [_names([key])[0].rpartition(":")[2] async for key in read.scan_iter(keys.request("*"))]
        assert sorted(records) == sorted(model.requests)
        loads = await self.cell.instances.backlogs()
        work = [request.at for request in model.requests.values()]
        assert {name: load for name, load in loads.items() if load} == {
            at: LOAD_MS * work.count(at) for at in set(work) - {""}
        }
        outstanding = await read.hgetall(keys.outstanding)
        assert outstanding == ({b"acme": str(len(records)).encode()} if records else {})
        assert await self.cell.instances.served() == model.served
        looks = await self.cell.inbox.begin([(name, -1) for name in model.mail], 1000)
        assert [look.mail for look in looks] == list(model.mail.values())
        for name, messages in model.mail.items():  # whoever has mail has been called for, and nobody else
            assert await read.hexists(keys.workflow(name), "rung") == bool(messages)


def _names(found: Any) -> list[str]:
    return [name.decode() for name in found]


@pytest.mark.slow
def test_the_operations_do_what_the_model_does(server: EmbeddedServer) -> None:
    class OnServer(Store):
        url = server.url

    slow = [HealthCheck.too_slow, HealthCheck.filter_too_much]
    run_state_machine_as_test(
        OnServer, settings=settings(max_examples=15, stateful_step_count=50, suppress_health_check=slow)
    )
