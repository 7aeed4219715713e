"""Reads docker/compose.yaml and docker/Dockerfile the way compose and the image builder do, as far as tests need it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker" / "compose.yaml"
DOCKERFILE = ROOT / "docker" / "Dockerfile"

VARIABLE = re.compile(r"\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?:(?P<how>:-|:\?)(?P<rest>[^}]*))?\}")


class MissingVariable(Exception):
    """A variable that the file insists on is not set."""


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, its lines joined."""

    name: str
    value: str
    stage: int

    @property
    def arguments(self) -> list[str]:
        """What follows the name: a JSON list in exec form, else words as a shell splits them."""
        return json.loads(self.value) if self.is_exec_form else shlex.split(self.value)

    @property
    def is_exec_form(self) -> bool:
        """Whether it is a JSON list, which no shell reads."""
        return self.value.startswith("[")


def instructions(text: str) -> list[Instruction]:
    """The instructions of a Dockerfile in order, comments left out.

    >>> [(one.name, one.arguments, one.stage) for one in instructions('FROM a AS b\\n# why\\nRUN x \\\\\\n && y')]
    [('FROM', ['a', 'AS', 'b'], 0), ('RUN', ['x', '&&', 'y'], 0)]
    """
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    found: list[Instruction] = []
    stage = -1
    for line in filter(None, (line.strip() for line in joined.splitlines())):
        name, _, value = line.partition(" ")
        stage += name.upper() == "FROM"
        found.append(Instruction(name.upper(), value.strip(), stage))
    return found


def interpolated(value: Any, variables: Mapping[str, str]) -> Any:
    """A value of the compose file with its variables replaced.

    >>> interpolated({"a": ["${NAME:-none}", "$${kept}"]}, {})
    {'a': ['none', '${kept}']}
    """
    if isinstance(value, dict):
        return {key: interpolated(one, variables) for key, one in value.items()}
    if isinstance(value, list):
        return [interpolated(one, variables) for one in value]
    if not isinstance(value, str):
        return value

    def replace(found: re.Match[str]) -> str:
        given = variables.get(found["name"], "")
        if not given and found["how"] == ":?":
            raise MissingVariable(f"{found['name']}: {found['rest']}")
        return given or (found["rest"] if found["how"] == ":-" else "")

    return "$".join(VARIABLE.sub(replace, part) for part in value.split("$$"))


def compose(text: str, variables: Mapping[str, str]) -> dict[str, Any]:
    """The compose file with anchors merged and variables replaced."""
    document: dict[str, Any] = interpolated(yaml.safe_load(text), variables)
    return document


def image_environment(text: str) -> dict[str, str]:
    """The variables that the image sets for the programs in it."""
    last = max(one.stage for one in instructions(text))
    pairs = [pair for one in instructions(text) if one.name == "ENV" and one.stage == last for pair in one.arguments]
    return dict(pair.split("=", 1) for pair in pairs)


def entry_point(text: str) -> list[str]:
    """The program of the image; the command of a service follows it."""
    return [one for one in instructions(text) if one.name == "ENTRYPOINT"][-1].arguments
