"""docker/compose.yaml starts what there is: real commands, known settings, served paths, pinned images."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable
from typing import Any

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.settings import Settings
from tests.image.compose import (
    COMPOSE_FILE,
    DOCKERFILE,
    ROOT,
    MissingVariable,
    compose,
    entry_point,
    image_environment,
    instructions,
    interpolated,
)

TEXT = COMPOSE_FILE.read_text(encoding="utf-8")
IMAGE_TEXT = DOCKERFILE.read_text(encoding="utf-8")
PASSWORD = {"POSTGRES_PASSWORD": "secret-of-this-test"}
STACK = compose(TEXT, PASSWORD)
SERVED = set(json.loads((ROOT / "openapi.json").read_text(encoding="utf-8"))["paths"])
TOP_LEVEL = {"name", "services", "volumes", "networks", "configs", "secrets"}
PARTS = {
    "image", "build", "command", "environment", "ports", "volumes", "tmpfs", "healthcheck", "depends_on", "restart",
    "read_only", "cap_drop", "security_opt", "init", "stop_grace_period", "mem_limit", "pids_limit",
}  # fmt: skip
POSTGRES_VARIABLES = {"POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"}
SHUT_DOWN_S = 15.0  # besides the drain; docs/howto/run-the-service.md
Found = list[str]


def _ours(stack: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {name: one for name, one in stack["services"].items() if "build" in one}


def _shape(stack: dict[str, Any]) -> Found:
    """Compose refuses what it does not know."""
    unknown = [key for key in stack if key not in TOP_LEVEL and not key.startswith("x-")]
    for name, service in stack["services"].items():
        unknown += [f"{name}.{key}" for key in service if key not in PARTS]
        if "image" not in service and "build" not in service:
            unknown.append(f"{name} has neither image nor build")
    return unknown


def _builds(stack: dict[str, Any]) -> Found:
    contexts = [
        (name, COMPOSE_FILE.parent / one["build"]["context"], one["build"]) for name, one in _ours(stack).items()
    ]
    return [name for name, context, build in contexts if not (context / build["dockerfile"]).is_file()]


def _settings(stack: dict[str, Any]) -> Found:
    """Every variable of ours is a setting with a value that it takes; Postgres's image knows its own."""
    wrong = [
        f"{name}: {variable}"
        for name, service in stack["services"].items()
        for variable in service.get("environment", {})
        if not (variable.startswith("ISTHMUS_") if "build" in service else variable in POSTGRES_VARIABLES)
    ]
    for name, service in _ours(stack).items():
        try:
            Settings.from_environment({**image_environment(IMAGE_TEXT), **service["environment"]})
        except Exception as error:  # whatever is wrong is the finding
            wrong.append(f"{name}: {error}")
    return wrong


def _commands(stack: dict[str, Any]) -> Found:
    """Each command is one of the program that the image starts, with options that it has."""
    help_of = {name: CliRunner().invoke(cli, [*one["command"], "--help"]) for name, one in _ours(stack).items()}
    return [f"{name}: {shown.output}" for name, shown in help_of.items() if shown.exit_code != 0]


def _images(stack: dict[str, Any]) -> Found:
    """Images that are fetched name a release; ours is built here and may be called latest."""
    fetched = {name: one["image"] for name, one in stack["services"].items() if "build" not in one}
    return [name for name, image in fetched.items() if not re.search(r":\d[\w.-]*(@sha256:[0-9a-f]{64})?$", image)]


def _ports(stack: dict[str, Any]) -> Found:
    """Nothing is open to other machines, and what is open leads to the port that the image listens on."""
    listens = image_environment(IMAGE_TEXT)["ISTHMUS_PORT"]
    return [
        f"{name}: {port}"
        for name, service in stack["services"].items()
        for port in service.get("ports", ())
        if not re.fullmatch(rf"127\.0\.0\.1:\d+:{listens}", port)
    ]


def _power(stack: dict[str, Any]) -> Found:
    wanted = {"read_only": True, "cap_drop": ["ALL"], "tmpfs": ["/tmp"], "init": True}
    wrong = [f"{n}.{key}" for n, one in _ours(stack).items() for key in wanted if one.get(key) != wanted[key]]
    for name, service in stack["services"].items():
        if "no-new-privileges:true" not in service.get("security_opt", ()):
            wrong.append(f"{name} may gain privileges")
    return wrong


def _volumes(stack: dict[str, Any]) -> Found:
    used = {one.partition(":")[0] for service in stack["services"].values() for one in service.get("volumes", ())}
    return sorted(used ^ set(stack.get("volumes", {})))


def _waits(stack: dict[str, Any]) -> Found:
    """Who is waited for exists and says when it is healthy."""
    services = stack["services"]
    return [
        f"{name} waits for {other}"
        for name, service in services.items()
        for other, how in service.get("depends_on", {}).items()
        if other not in services
        or (how["condition"] == "service_healthy" and "test" not in services[other].get("healthcheck", {}))
    ]


def _health(stack: dict[str, Any]) -> Found:
    """What serves HTTP is asked for a path that there is; a worker is asked whether it has shown itself."""
    (check,) = (one.value for one in instructions(IMAGE_TEXT) if one.name == "HEALTHCHECK")
    asked = set(re.findall(r"http://127\.0\.0\.1:8000(/[\w/-]+)", check))
    wrong = sorted(asked - SERVED) if asked else ["the image asks for nothing"]
    for name, service in _ours(stack).items():
        own = service.get("healthcheck", {"test": "as the image says"}).get("test")
        expected = "as the image says" if service["command"][0] == "serve" else ["CMD", "isthmus", "worker", "--check"]
        if own != expected:
            wrong.append(name)
    return wrong


def _patience(stack: dict[str, Any]) -> Found:
    """SIGKILL comes after the drain and what the how-to adds to it."""
    least_s = Settings().drain_s + SHUT_DOWN_S
    times = {name: str(one.get("stop_grace_period", "10s")) for name, one in _ours(stack).items()}
    return [name for name, text in times.items() if float(text.removesuffix("s")) < least_s]


def _database(stack: dict[str, Any]) -> Found:
    """All programs share the database that the Postgres of the stack makes."""
    made = stack["services"]["db"]["environment"]
    url = "postgresql://{POSTGRES_USER}:{POSTGRES_PASSWORD}@db:5432/{POSTGRES_DB}".format(**made)
    return [name for name, one in _ours(stack).items() if one["environment"].get("ISTHMUS_DATABASE_URL") != url]


RULES: tuple[Callable[[dict[str, Any]], Found], ...] = (
    _shape, _builds, _settings, _commands, _images, _ports, _power, _volumes, _waits, _health, _patience, _database,
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_the_compose_file_obeys(rule: Callable[[dict[str, Any]], Found]) -> None:
    assert rule(STACK) == []


@pytest.mark.parametrize(
    ("rule", "service", "part", "value"),
    [
        (_shape, "worker", "comand", ["worker"]),
        (_builds, "worker", "build", {"context": "..", "dockerfile": "Dockerfile"}),
        (_settings, "service", "environment", {"ISTHMUS_RUN_WORKERS": "false"}),
        (_settings, "service", "environment", {"ISTHMUS_RUN_WORKER": "perhaps"}),
        (_settings, "db", "environment", {"POSTGRES_NAME": "isthmus"}),
        (_commands, "worker", "command", ["work"]),
        (_commands, "worker", "command", ["worker", "--name", "x"]),
        (_images, "db", "image", "postgres:latest"),
        (_images, "db", "image", "postgres"),
        (_ports, "service", "ports", ["8000:8000"]),
        (_ports, "service", "ports", ["127.0.0.1:8000:9000"]),
        (_ports, "db", "ports", ["5432:5432"]),
        (_power, "worker", "read_only", False),
        (_power, "service", "cap_drop", []),
        (_power, "db", "security_opt", []),
        (_volumes, "db", "volumes", ["data:/var/lib/postgresql/data"]),
        (_waits, "worker", "depends_on", {"database": {"condition": "service_healthy"}}),
        (_waits, "db", "healthcheck", {"interval": "5s"}),
        (_health, "service", "healthcheck", {"disable": True}),
        (_health, "worker", "healthcheck", {}),
        (_patience, "worker", "stop_grace_period", "10s"),
        (_database, "worker", "environment", {"ISTHMUS_DATABASE_URL": "sqlite:///x"}),
    ],
)
def test_a_rule_objects_to_a_file_that_breaks_it(
    rule: Callable[[dict[str, Any]], Found], service: str, part: str, value: Any
) -> None:
    broken = copy.deepcopy(STACK)
    broken["services"][service][part] = value
    assert rule(broken)


def test_the_image_starts_the_program_that_the_package_installs() -> None:
    assert entry_point(IMAGE_TEXT) == ["isthmus"]
    assert 'isthmus = "app.cli:main"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_without_a_password_nothing_starts() -> None:
    with pytest.raises(MissingVariable, match="POSTGRES_PASSWORD"):
        compose(TEXT, {})


def test_there_is_no_secret_in_the_file() -> None:
    (password,) = {one["environment"]["POSTGRES_PASSWORD"] for one in [compose(TEXT, PASSWORD)["services"]["db"]]}
    assert password == PASSWORD["POSTGRES_PASSWORD"]
    assert interpolated("${A:-x}${B:?no}", {"B": "y"}) == "xy"


def test_a_service_for_everybody_is_a_choice_of_who_starts_it() -> None:
    chosen = compose(TEXT, {**PASSWORD, "ISTHMUS_AUTHENTICATION": "required"})
    assert STACK["services"]["service"]["environment"]["ISTHMUS_AUTHENTICATION"] == "off"
    assert chosen["services"]["service"]["environment"]["ISTHMUS_AUTHENTICATION"] == "required"
