"""Settings from the environment (`HEXGEN_...`); command-line flags go over them."""

import json
from collections.abc import Callable
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError, ValidationInfo, field_validator
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

from common import health, logs
from common.errors import InvalidDocument
from common.policy import registry
from common.policy.rules import Rules
from common.store import urls
from common.store.keys import Keys
from common.submission import LONGEST_SLO_S

FLAGS = {
    "redis_url": "--redis",
    "namespace": "--namespace",
    "policy": "--policy",
    "alpha": "--alpha",
    "parameters": "--parameter",
    "lease_s": "--lease-s",
    "log_level": "--log-level",
}
"""The settings that have a flag too."""
_SAID = {
    "greater_than": "{input} must be above {gt:g}",
    "greater_than_equal": "{input} must be at least {ge:g}",
    "less_than_equal": "{input} must be at most {le:g}",
    "finite_number": "{input} must be a finite number",
    "float_parsing": "{input!r} must be a number",
    "int_parsing": "{input!r} must be a whole number",
    "int_from_float": "{input} must be a whole number",
    "string_type": "must be text",
    "literal_error": "{input!r} must be {expected}",
    "value_error": "{error}",
}
"""What is wrong, by pydantic's name for it."""


_EXAMPLES = {"databases": '{"bank": "sqlite:///bank.sqlite"}', "parameters": '{"harm": 2.5}'}


def _as_used(rule: Callable[[str], object]) -> AfterValidator:
    """Whoever will use the value knows what it must be, and says so."""

    def check(value: str) -> str:
        try:
            rule(value)
        except InvalidDocument as error:
            raise ValueError(error.message) from None
        return value

    return AfterValidator(check)


Number = Annotated[float, Field(allow_inf_nan=False)]
Seconds = Annotated[Number, Field(gt=0, le=86400)]


class Settings(BaseSettings):
    """What every process of a cell shares.

    `databases` is name -> SQLAlchemy URL and stays with the tool workers; `parameters` and `alpha` are other numbers of
    the policy than its own, and stay with the coordinators, as does `hopeless`.
    """

    model_config = SettingsConfigDict(env_prefix="HEXGEN_", extra="ignore", env_ignore_empty=True)

    redis_url: Annotated[str, _as_used(urls.check)] = "redis://127.0.0.1:6379/0"
    namespace: Annotated[str, _as_used(Keys)] = "default"
    policy: Annotated[str, _as_used(registry.policy)] = registry.DEFAULT
    alpha: Annotated[Number, Field(ge=0, le=1)] | None = None
    parameters: Annotated[dict[str, Number], NoDecode] = Field(default_factory=dict)
    default_slo_s: Seconds = 300.0
    hopeless: Literal["accept", "refuse"] = "accept"
    lease_s: Annotated[Number, Field(ge=0.5, le=3600)] = 30.0
    lease_losses: Annotated[int, Field(ge=1, le=100)] = 3
    keep_done_s: Seconds = 3600.0
    keep_failed_s: Seconds = 86400.0
    keep_traces: Annotated[int, Field(ge=0, le=100_000)] = 1000
    databases: Annotated[dict[str, str], NoDecode] = Field(default_factory=dict)
    health_file: Annotated[str, _as_used(health.check_file)] = ""
    log_level: Annotated[str, _as_used(logs.levels)] = "INFO"

    @field_validator("databases", "parameters", mode="before")
    @classmethod
    def _is_a_mapping(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                value = None
        if not isinstance(value, dict):
            raise ValueError(f"must be a JSON object such as {_EXAMPLES[info.field_name or '']}")
        return value

    def rules(self) -> Rules:
        """The policy with these numbers. Raises InvalidDocument for one that it does not take."""
        try:
            return registry.policy(self.policy, self._given)
        except InvalidDocument as error:
            if error.field not in self.parameters:
                raise InvalidDocument(_place("alpha"), error.message) from None
            raise InvalidDocument(_place("parameters"), str(error)) from None

    @property
    def values(self) -> dict[str, float]:
        """Other numbers of the policy than its own, by name, as `rules` has found them good; r as the alpha it is."""
        found = self._given
        if "r" in found:
            found["alpha"] = registry.alpha_of(found.pop("r"))
        return found

    @property
    def _given(self) -> dict[str, float]:
        return {**({} if self.alpha is None else {"alpha": self.alpha}), **self.parameters}

    @property
    def lease_ms(self) -> int:
        return int(self.lease_s * 1000)

    @property
    def keep_definition_ms(self) -> int:
        """How long a definition is kept that no name stands for, unless it came with workflows that have all ended: the
        longest SLO, and the time a failed one is kept.
        """
        return int((self.keep_failed_s + LONGEST_SLO_S) * 1000)


def load(**overrides: Any) -> Settings:
    """Settings with these flags on top (None: not given). Raises InvalidDocument naming the flag and the variable."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as error:
        raise _told(error.errors()[0]) from None


def _told(fault: ErrorDetails) -> InvalidDocument:
    said = _SAID.get(fault["type"], "").format(input=fault["input"], **fault.get("ctx", {}))
    return InvalidDocument(_place(*map(str, fault["loc"])), said or fault["msg"])


def _place(name: str, *within: str) -> str:
    """What a user has given it by: the flag, if there is one, and the variable."""
    variable = ".".join([f"HEXGEN_{name.upper()}", *within])
    return f"{FLAGS[name]} / {variable}" if name in FLAGS else variable
