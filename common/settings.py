"""Settings from the environment (`HEXGEN_...`); command-line flags go over them."""

import json
from typing import Annotated, Any

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from common.errors import InvalidDocument
from common.submission import LONGEST_SLO_S

Seconds = Annotated[float, Field(gt=0, le=86400, allow_inf_nan=False)]


class Settings(BaseSettings):
    """What every process of a cell shares. `databases` is name -> SQLAlchemy URL and stays with the tool workers."""

    model_config = SettingsConfigDict(env_prefix="HEXGEN_", extra="ignore")

    redis_url: str = "redis://127.0.0.1:6379/0"
    namespace: str = "default"
    policy: str = "hexgen"
    alpha: Annotated[float, Field(ge=0, le=1)] = 0.5
    default_slo_s: Seconds = 300.0
    lease_s: Annotated[float, Field(ge=0.5, le=3600)] = 30.0
    lease_losses: Annotated[int, Field(ge=1, le=100)] = 3
    keep_done_s: Seconds = 3600.0
    keep_failed_s: Seconds = 86400.0
    databases: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    log_level: str = "INFO"

    @field_validator("databases", mode="before")
    @classmethod
    def _databases_are_a_mapping(cls, value: Any) -> Any:
        if isinstance(value, str):
            try:
                return json.loads(value)
            except ValueError:
                raise ValueError('must be a JSON object such as {"bank": "sqlite:///bank.sqlite"}') from None
        return value

    @property
    def lease_ms(self) -> int:
        return int(self.lease_s * 1000)

    @property
    def keep_definition_ms(self) -> int:
        """How long a definition that no name stands for is kept: the longest SLO, and the time a failed one is kept."""
        return int((self.keep_failed_s + LONGEST_SLO_S) * 1000)


def load(**overrides: Any) -> Settings:
    """Settings with these flags on top (None: not given). Raises InvalidDocument naming the setting."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        first = error.errors()[0]
        name = ".".join(str(part) for part in first["loc"])
        raise InvalidDocument(name, first["msg"].removeprefix("Value error, ")) from None
