"""docker/Dockerfile makes a small image that can be trusted: pinned, without root, without a shell, without secrets."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from tests.image.compose import DOCKERFILE, ROOT, Instruction, instructions

TEXT = DOCKERFILE.read_text(encoding="utf-8")
IGNORED = (ROOT / ".dockerignore").read_text(encoding="utf-8")
SECRET = re.compile(r"password|passwd|secret|token|api_?key|credential", re.I)
Found = list[str]


def _only(text: str, *names: str) -> list[Instruction]:
    return [one for one in instructions(text) if one.name in names]


def _last_stage(text: str, *names: str) -> list[Instruction]:
    found = instructions(text)
    return [one for one in _only(text, *names) if one.stage == found[-1].stage]


def _bases(text: str) -> Found:
    """Every base names a release, directly or by the default of an argument."""
    defaults = dict(one.value.split("=", 1) for one in _only(text, "ARG") if one.stage < 0 and "=" in one.value)
    bases = [one.arguments[0] for one in _only(text, "FROM")]
    named = [re.sub(r"\$\{(\w+)\}", lambda found: defaults.get(found[1], ""), base) for base in bases]
    return [base for base in named if not re.search(r":\d[\w.-]*(@sha256:[0-9a-f]{64})?$", base)]


def _user(text: str) -> Found:
    """The last user is a number that is not root's: an orchestrator can tell without the image's user list."""
    users = _last_stage(text, "USER")
    return [] if users and re.fullmatch(r"[1-9]\d*:[1-9]\d*", users[-1].value) else ["root, or a name"]


def _additions(text: str) -> Found:
    return [one.value for one in _only(text, "ADD")] + re.findall(r"curl|wget|https?://(?!127\.0\.0\.1)\S+", text)


def _packages(text: str) -> Found:
    """Lists of apt go in the layer that fetched them; pip leaves no cache and takes only what is pinned."""
    wrong = []
    for run in _only(text, "RUN"):
        if "apt-get" in run.value and "rm -rf /var/lib/apt/lists" not in run.value:
            wrong.append(run.value)
        for call in re.findall(r"pip install [^&|]*", run.value):
            is_pinned = "--constraint requirements.txt" in call or "--no-deps" in call
            wrong += [] if is_pinned and "--no-cache-dir" in call else [call]
    return wrong


def _secrets(text: str) -> Found:
    return [one.value for one in _only(text, "ARG", "ENV", "COPY") if SECRET.search(one.value)]


def _sources(text: str) -> Found:
    """What is copied exists and reaches the builder, which sees only what .dockerignore lets through."""
    let_through = {line[1:] for line in IGNORED.splitlines() if line.startswith("!")}
    assert IGNORED.splitlines()[0] == "*"
    copied = [one.arguments for one in _only(text, "COPY") if not one.value.startswith("--from=")]
    sources = [source for words in copied for source in words[:-1] if not source.startswith("--")]
    return [one for one in sources if one not in let_through or not (ROOT / one).exists()]


def _forms(text: str) -> Found:
    """Without a shell in between, SIGTERM reaches the program."""
    starts = _last_stage(text, "CMD", "ENTRYPOINT")
    if [one.name for one in starts] != ["ENTRYPOINT", "CMD"]:
        return ["one ENTRYPOINT and then one CMD"]
    return [one.value for one in starts if not one.is_exec_form]


def _health(text: str) -> Found:
    checks = _last_stage(text, "HEALTHCHECK")
    return [] if len(checks) == 1 and re.search(r"CMD \[.*\]$", checks[0].value) else ["no HEALTHCHECK in exec form"]


RULES: tuple[Callable[[str], Found], ...] = (
    _bases, _user, _additions, _packages, _secrets, _sources, _forms, _health,
)  # fmt: skip


@pytest.mark.parametrize("rule", RULES)
def test_the_dockerfile_obeys(rule: Callable[[str], Found]) -> None:
    assert rule(TEXT) == []


@pytest.mark.parametrize(
    ("rule", "good", "bad"),
    [
        (_bases, "python:3.11-slim-bookworm", "python:latest"),
        (_bases, "python:3.11-slim-bookworm", "python"),
        (_user, "USER 10001:10001\n", ""),
        (_user, "USER 10001:10001", "USER 0:0"),
        (_user, "USER 10001:10001", "USER root"),
        (_additions, "COPY README.md", "ADD README.md"),
        (_additions, "COPY README.md ./", "RUN curl -O x"),
        (_packages, "COPY README.md ./", "RUN apt-get install -y git"),
        (_packages, "--no-cache-dir --constraint requirements.txt hatchling", "hatchling"),
        (_packages, "--constraint requirements.txt hatchling", "hatchling"),
        (_secrets, "PYTHONUNBUFFERED=1", "API_KEY=1"),
        (_sources, "COPY solver solver", "COPY docs docs"),
        (_sources, "COPY solver solver", "COPY . ."),
        (_forms, 'CMD ["serve"]', "CMD serve"),
        (_forms, 'ENTRYPOINT ["isthmus"]\n', ""),
        (_health, "HEALTHCHECK", "LABEL"),
        (_health, 'CMD ["python", "-c"', "CMD curl ["),
    ],
)
def test_a_rule_objects_to_a_file_that_breaks_it(rule: Callable[[str], Found], good: str, bad: str) -> None:
    assert good in TEXT
    assert rule(TEXT.replace(good, bad))


def test_everything_that_the_package_consists_of_is_copied() -> None:
    copied = " ".join(one.value for one in _only(TEXT, "COPY"))
    assert {"models models", "solver solver", "app app", "isthmus isthmus"} <= set(re.findall(r"\w+ \w+", copied))
