"""How this process is set up: every setting with its unit, its default and its environment variable.

The only reader of the environment (`ISTHMUS_<FIELD>`, and whether OTEL_EXPORTER_OTLP_ENDPOINT is set).
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address, ip_network
from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
)

PREFIX = "ISTHMUS_"
OF_THE_CLIENT = frozenset(("server", "api_key"))  # variables that are read by Remote alone
MIB = 1024 * 1024

# Python waits for at most threading.TIMEOUT_MAX, 292 years (documentation of threading); these are 31.
LONGEST_S = 1e9
Positive = Annotated[float, Field(gt=0, le=LONGEST_S)]
PositiveInt = Annotated[int, Field(ge=1)]


def _database_url(value: str) -> str:
    if not re.match(r"(sqlite|postgresql)(\+\w+)?://", value):
        raise ValueError("write sqlite:///FILE or postgresql://USER:PASSWORD@HOST/NAME")
    return value


def _told(failure: ValidationError, spelled: Callable[[str], str]) -> str:
    """What is wrong with which setting. Who reads that may not know the password of the database."""
    first = failure.errors()[0]
    value = re.sub("//.*@", "//***@", repr(first["input"]))
    return f"{spelled(str(first['loc'][0]))}={value}: {first['msg'].removeprefix('Value error, ')}"


def _listed(value: object) -> object:
    return tuple(one.strip().lower() for one in value.split(",") if one.strip()) if isinstance(value, str) else value


def _are_host_names(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        if not re.fullmatch(r"(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*", one):
            raise ValueError(f"{one!r} is no name: write plans.example or *.lab.example, without scheme and port")
    return value


def _are_networks(value: tuple[str, ...]) -> tuple[str, ...]:
    for one in value:
        ip_network(one)
    return value


Listed = Annotated[tuple[str, ...], BeforeValidator(_listed)]
Hosts = Annotated[Listed, AfterValidator(_are_host_names)]
Networks = Annotated[Listed, AfterValidator(_are_networks)]
DatabaseUrl = Annotated[str, AfterValidator(_database_url)]


def is_loopback(host: str) -> bool:
    """Whether an address means the machine that uses it.

    >>> [is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "gpu-7")]
    [True, True, True, False, False]
    """
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class InvalidSetting(Exception):
    """An environment variable holds something that its setting does not accept."""


@dataclass(frozen=True)
class Remote:
    """The service that commands are sent to, where one is named; the key is kept out of messages."""

    server: str | None = None
    api_key: str | None = field(default=None, repr=False)

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """What ISTHMUS_SERVER and ISTHMUS_API_KEY state; empty ones state nothing.

        >>> Remote.from_environment({"ISTHMUS_SERVER": "http://gpu-7:8000", "ISTHMUS_API_KEY": ""})
        Remote(server='http://gpu-7:8000')
        """
        source = os.environ if environ is None else environ
        return cls(*(source.get(PREFIX + name) or None for name in ("SERVER", "API_KEY")))


class Solvers(BaseModel):
    """Import paths (`module:function`) of what a child process may be asked to run; tests put their own here."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    plan: str = "solver.planner:plan"
    ask: str = "solver.questions.ask:ask"
    lint: str = "solver.lint:lint"
    validate_request: str = "solver.planner:check"
    judge: str = "solver.verify.judge:judge"
    deep_judge: str = "solver.verify.deep.judge:deep_judge"
    replay: str = "solver.verify.joint_replay:joint_replay"
    calibrate: str = "app.jobs.calibration:calibration"
    import_texts: str = "app.jobs.importing:import_texts"
    schedule: str = "solver.pipeline.solve:solve_pipeline"
    warm_up: str = "solver.warm_up:warm_up"


class Settings(BaseModel):
    """Everything that can be set. Durations are in seconds, sizes in bytes."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    database_url: DatabaseUrl = Field(
        "sqlite:///var/isthmus.sqlite", description="SQLAlchemy URL: an SQLite file, or Postgres when shared."
    )
    host: str = Field("127.0.0.1", description="Address the service listens on.")
    allowed_hosts: Hosts = Field(
        (),
        description="Names that a Host header may have, comma separated; *.NAME stands for all below it. Empty: any "
        "where callers need a key, and else the names of this machine itself: a page elsewhere whose name leads here "
        "could otherwise ask in the name of who looks at it.",
    )
    path_prefix: str = Field(
        "",
        pattern=r"^(/[A-Za-z0-9._~-]+)*$",
        description="Path below which a reverse proxy shows the service (/planner), whether it hands that on or not.",
    )
    port: int = Field(8000, ge=0, le=65535, description="Port the service listens on; 0 takes a free one.")
    worker_id: str = Field(
        default_factory=socket.gethostname,
        min_length=1,
        max_length=120,
        description="Stable name of this worker; must differ between workers that share a database.",
    )
    run_worker: bool = Field(True, description="Whether `isthmus serve` also solves.")
    num_concurrent_solves: PositiveInt = Field(1, description="Plans that this worker searches at once.")
    queue_poll_s: Positive = Field(0.1, description="How often a worker looks for queued plans.")
    event_poll_s: Positive = Field(0.1, description="How often a waiting client's plan is looked up.")
    progress_interval_s: Positive = Field(0.2, description="Least time between two stored progress events.")
    max_time_limit_s: Positive = Field(3600.0, description="Longest options.time_limit_s accepted.")
    soft_grace_s: Positive = Field(0.25, description="Overrun of the time limit before SIGTERM; more for long limits.")
    kill_grace_s: Positive = Field(0.75, description="Time between SIGTERM and SIGKILL; more for long limits.")
    cancel_grace_s: Positive = Field(1.0, description="Time between a client's cancel and SIGKILL.")
    drain_s: float = Field(
        10.0, ge=0, le=LONGEST_S, description="Time that running searches get to end when the service stops."
    )
    child_memory_bytes: PositiveInt = Field(
        8192 * MIB, description="RLIMIT_DATA of one child process. Those that share its search have as much together."
    )
    memory_bytes: PositiveInt = Field(
        4096 * MIB, description="RLIMIT_DATA of the service or worker itself, beside its child processes."
    )
    max_attempts: PositiveInt = Field(3, description="Starts of one plan before it is given up.")
    dead_worker_s: Positive = Field(30.0, description="Silence after which the work of a worker is taken over.")
    heartbeat_s: Positive = Field(
        3.0, validate_default=True, description="How often a worker shows that it lives; at most half of dead_worker_s."
    )
    max_queued_plans: PositiveInt = Field(1000, description="Queued plans accepted before 429.")
    num_direct_solves: PositiveInt = Field(2, description="Validations, evaluations and schedules answered at once.")
    max_direct_per_key: PositiveInt = Field(1, description="The same of one key.")
    max_schedule_time_limit_s: Positive = Field(60.0, description="Longest time limit of a direct schedule.")
    max_wait_s: Positive = Field(60.0, description="Longest `Prefer: wait` honoured.")
    # Twice the largest document: the plan of 1,048,576 GPUs in 64 buildings and its request, to be evaluated, have
    # 5.6 MB. The parser holds up everybody while it reads one text: 66 ms for 16 MB of escapes.
    max_body_bytes: PositiveInt = Field(12 * MIB, description="Largest request body, once it is decompressed.")
    max_body_bytes_at_once: PositiveInt = Field(
        128 * MIB, description="Request bodies that one process holds at once, together."
    )
    max_body_bytes_per_key: PositiveInt = Field(48 * MIB, description="The same of one key.")
    body_timeout_s: Positive = Field(30.0, description="Time a client has to send its body.")
    head_timeout_s: Positive = Field(20.0, description="Time a client has to send the head of a request.")
    answer_timeout_s: Positive = Field(60.0, description="Time a client has to take the next 48 KiB of its answer.")
    max_connections: PositiveInt = Field(1000, description="Open connections of one process; more are turned away.")
    max_waiting_clients: PositiveInt = Field(
        200, description="Event streams and `Prefer: wait` that one process holds open at once."
    )
    max_waiting_per_key: PositiveInt = Field(50, description="The same of one key.")
    max_gpus: PositiveInt = Field(4_000_000, description="Largest cluster accepted, in GPUs.")
    max_cluster_parts: PositiveInt = Field(10_000, description="Most places, pools and links of a cluster together.")
    max_pipeline_operations: PositiveInt = Field(200_000, description="Largest direct schedule, in operations.")
    authentication: Literal["auto", "required", "off"] = Field(
        "auto",
        description="Whether callers need an API key. auto: on a loopback address once a key exists; on any other "
        "address always, and the service does not start without keys. off: never, on any address.",
    )
    max_active_plans: PositiveInt = Field(200, description="Queued and running plans of one key before 429.")
    max_submissions_per_minute: PositiveInt = Field(120, description="Submissions of one key in a minute before 429.")
    max_running_per_key: PositiveInt = Field(1000, description="Plans of one key searched at once, on all workers.")
    num_urgent_solves: PositiveInt = Field(1, description="Plans of priority 0 that this worker searches besides.")
    max_study_plans: PositiveInt = Field(256, description="Largest study, in plans.")
    max_calibration_rows: PositiveInt = Field(2000, description="Largest calibration, in rows.")
    max_calibrations: PositiveInt = Field(1000, description="Stored calibrations of one owner before 429.")
    calibration_limit_s: Positive = Field(60.0, description="Longest time of one calibration.")
    otel_enabled: bool = Field(
        False, description="Whether traces are sent; so they are when OTEL_EXPORTER_OTLP_ENDPOINT is set."
    )
    webhooks_enabled: bool = Field(True, description="Whether submissions may name a webhook.")
    webhook_networks: Networks = Field(
        (), description="Networks (10.2.0.0/16,::1/128) that webhooks may go to, even by http, besides public hosts."
    )
    require_idempotency_key: bool = Field(False, description="Refuse POST /v1/plans without Idempotency-Key.")
    retention_s: float = Field(
        0.0, ge=0, description="Age at which finished plans, studies and calibrations are removed; 0 keeps them."
    )
    search_retention_s: float = Field(
        604_800.0,
        ge=0,
        description="Age at which the state of an ended search, which `:resume` goes on from, is removed.",
    )
    max_search_bytes: int = Field(
        16 * MIB, ge=0, description="Largest state of a search that is kept, compressed; 0 keeps none."
    )
    search_pool: str = Field(
        "",
        pattern=r"^((tcp|tls|ws|wss|ucx)://\S+)?$",
        description="Address of a Dask scheduler (tls://HOST:8786) whose workers share long searches; certificates are "
        "in Dask's own configuration. Empty: processes of this machine do.",
    )
    log_level: str = Field("INFO", pattern="^(DEBUG|INFO|WARNING|ERROR)$", description="Least level that is logged.")
    solvers: Solvers = Field(default_factory=Solvers, description="What child processes run.")

    @field_validator("heartbeat_s")
    @classmethod
    def _beats_often_enough(cls, value: float, info: ValidationInfo) -> float:
        """A worker that shows itself less often is taken for dead between two heartbeats, by the probes too."""
        longest_s = info.data.get("dead_worker_s", LONGEST_S) / 2
        if value > longest_s:
            raise ValueError(f"at most half of the silence after which a worker is dead, {longest_s:g} s")
        return value

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] | None = None) -> Self:
        """The settings that `ISTHMUS_...` variables state, defaults for the rest.

        >>> Settings.from_environment({"ISTHMUS_PORT": "9000"}).port
        9000
        """
        source = os.environ if environ is None else environ
        known = set(cls.model_fields) - {"solvers"}
        values: dict[str, str] = {}
        for variable, value in source.items():
            if not variable.startswith(PREFIX):
                continue
            name = variable.removeprefix(PREFIX).lower()
            if name in OF_THE_CLIENT:
                continue
            if name not in known:
                allowed = ", ".join(sorted(PREFIX + one.upper() for one in known | OF_THE_CLIENT))
                raise InvalidSetting(f"{variable} is not a setting: use one of {allowed}")
            values[name] = value
        if source.get("OTEL_EXPORTER_OTLP_ENDPOINT"):
            values.setdefault("otel_enabled", "true")
        try:
            return cls.model_validate(values)
        except ValidationError as failure:
            raise InvalidSetting(PREFIX + _told(failure, str.upper)) from None

    def changed(self, values: Mapping[str, object]) -> Self:
        """These settings with some values replaced; InvalidSetting for one that is not accepted.

        >>> Settings().changed({"port": 9000}).port
        9000
        """
        try:
            return type(self).model_validate({**self.model_dump(), **values})
        except ValidationError as failure:
            raise InvalidSetting(_told(failure, str)) from None

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine reaches the service."""
        return is_loopback(self.host)

    @property
    def address(self) -> str:
        """Where a service with these settings answers."""
        return f"http://{self.host}:{self.port}"
