"""The definitions a coordinator brings along: registered when it starts, and again should the store lose them."""

import asyncio
import logging
from collections.abc import Sequence

from common.logs import several
from common.store.records import Records
from coordinator.language.definition import Definition

log = logging.getLogger("hexgen.coordinator")


class OwnDefinitions:
    """What this coordinator registers. A name that stands for another version by now is left alone."""

    def __init__(self, records: Records, definitions: Sequence[Definition], keep_ms: int) -> None:
        self._records, self._definitions, self._keep_ms = records, definitions, keep_ms
        self._restoring = asyncio.Lock()

    async def register(self) -> None:
        """Make all of them the current versions of their names."""
        await self._register(self._definitions)

    async def restore(self) -> bool:
        """Register again those whose names stand for nothing any more; whether there were any."""
        async with self._restoring:
            known = await self._records.registered()
            missing = [definition for definition in self._definitions if definition.name not in known]
            await self._register(missing)
        if missing:
            names = several(definition.name for definition in missing)
            log.warning(
                "not registered any more, so the data of this namespace is gone: %s; registered again from here; not "
                "what was registered by hand",
                names,
            )
        return bool(missing)

    async def _register(self, definitions: Sequence[Definition]) -> None:
        for definition in definitions:
            await self._records.register(definition.name, definition.digest, definition.document, self._keep_ms)
