"""One namespace of one Redis, opened: everything a process needs of the store in one object."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Self

from common.store.checkup import Checkup
from common.store.client import Client, connect, connect_blocking, disconnect
from common.store.coordinators import Coordinators
from common.store.deadletters import DeadLetters
from common.store.inbox import Inbox
from common.store.instances import Instances
from common.store.keys import Keys
from common.store.limits import Limits
from common.store.line import Line
from common.store.offers import Offers
from common.store.queues import Queues
from common.store.records import Records
from common.store.retention import Retention
from common.store.schema import Schema
from common.store.traces import Traces
from common.store.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Cell:
    """The store of one namespace. Belongs to the event loop it is used in first; close it there."""

    url: str
    keys: Keys
    client: Client
    blocking: Client
    inbox: Inbox
    queues: Queues
    instances: Instances
    line: Line
    limits: Limits
    offers: Offers
    coordinators: Coordinators
    records: Records
    schema: Schema
    retention: Retention
    checkup: Checkup
    traces: Traces
    tuning: Tuning
    dead: DeadLetters

    @classmethod
    def open(cls, url: str, namespace: str) -> Self:
        """No connection is made yet. Raises StoreRefused for a bad URL and InvalidDocument for a bad namespace."""
        keys = Keys(namespace)
        client, blocking = connect(url), connect_blocking(url)
        return cls(
            url=url,
            keys=keys,
            client=client,
            blocking=blocking,
            inbox=Inbox(client, blocking, keys),
            queues=Queues(client, blocking, keys),
            instances=Instances(client, keys),
            line=Line(client, blocking, keys),
            limits=Limits(client, keys),
            offers=Offers(client, keys),
            coordinators=Coordinators(client, keys),
            records=Records(client, blocking, keys),
            schema=Schema(client, keys),
            retention=Retention(client, keys),
            checkup=Checkup(client, keys),
            traces=Traces(client, keys),
            tuning=Tuning(client, blocking, keys),
            dead=DeadLetters(client, blocking, keys),
        )

    @classmethod
    @asynccontextmanager
    async def opened(cls, url: str, namespace: str) -> AsyncIterator[Self]:
        """The store for as long as the context lasts. Raises as `open`."""
        cell = cls.open(url, namespace)
        try:
            yield cell
        finally:
            await cell.close()

    async def close(self) -> None:
        """Close the connections."""
        await disconnect(self.client)
        await disconnect(self.blocking)
