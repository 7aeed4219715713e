"""A campaign: requests of one seed under all laws, findings shrunk, and what was counted."""

from __future__ import annotations

import json
import re
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.laws.laws import ASKED, IN_TURN, LAWS, ON_ALL, TIMED, Breach, Law
from tests.laws.requests import random_request
from tests.laws.shrink import shrunk
from tests.laws.trial import MOST_CPU_S, Raised, Trial, is_valid, no_longer_than

Json = dict[str, Any]
RAISES = "planning raises nothing"
IN_TURN_SHARE = 0.2  # of the laws that plan once more, per request
TIMED_SHARE = 0.1
ASKED_SHARE = 0.3
SHOWN = 2  # findings of one kind that are shrunk and shown; the others are counted


@dataclass(frozen=True)
class Finding:
    """A law broken by the request of a seed, and the least request that breaks it in the same way."""

    law: str
    what: str
    seed: str
    detail: str
    document: Json
    other: Json | None = None

    @property
    def kind(self) -> tuple[str, str]:
        """Findings of one kind have one cause, most likely."""
        return self.law, self.what


@dataclass
class Campaign:
    """Findings so far and counts."""

    seed: int
    shrink_s: float = 60.0
    timed: bool = True
    counts: Counter[str] = field(default_factory=Counter)
    kinds: Counter[tuple[str, str]] = field(default_factory=Counter)
    findings: list[Finding] = field(default_factory=list)
    tightest: float = float("inf")

    def run(self, number: int, law: str | None = None) -> list[Finding]:
        """Put one request under the laws; the findings that are new."""
        name = f"{self.seed}/{number}"
        trial = Trial(random_request(name), name, self.counts)
        self.counts["requests"] += 1
        new = []
        for one in _laws_for(trial, law, timed=self.timed):
            self.counts["laws checked"] += 1
            broken = {found.kind: found for found in _broken(trial, one)}
            for found in broken.values():
                self.kinds[found.kind] += 1
                self.counts["findings"] += 1
                if self.kinds[found.kind] <= SHOWN:
                    new.append(self._least(found, one))
            if any(found.law == RAISES for found in broken.values()):
                break  # the other laws would raise the same
        self._note_tightness(trial)
        self.findings += new
        return new

    def _least(self, found: Finding, law: Law) -> Finding:
        """The finding on the least request on which it stays what it is."""
        ends = time.process_time() + self.shrink_s
        best = found

        def fails(document: Json) -> bool:
            nonlocal best
            if not is_valid(document):
                return False
            alike = [one for one in _broken(Trial(document, found.seed), law) if one.kind == found.kind]
            best = alike[0] if alike else best
            return bool(alike)

        law_of_plan = found.law == RAISES and next(_broken(Trial(found.document, found.seed), _plans), None) is not None
        law = _plans if law_of_plan else law
        if self.shrink_s:
            shrunk(found.document, fails, goes_on=lambda: time.process_time() < ends)
        return best

    def _note_tightness(self, trial: Trial) -> None:
        plan = trial.__dict__.get("watched") and trial.plan
        if plan and plan.proof.lower_bound_s > 0:
            ratio = plan.metrics.iteration_s / plan.proof.lower_bound_s
            evaluations = [time_s for value, time_s in trial.watched[1].evaluations if value < float("inf")]
            if len(evaluations) > 1 and not ratio < 1.0:
                self.tightest = min(self.tightest, ratio)

    def account(self, seconds: float) -> Iterator[str]:
        """What was done, a line each."""
        names = ("requests", "planned", "infeasible", "not_found", "optimal", "plans asked for", "evaluations")
        for name in (*names, "plans judged", "laws checked", "findings"):
            yield f"{name:16} {self.counts[name]:,}"
        yield f"{'tightest ratio':16} {self.tightest:.9f} of time to bound"
        yield f"{'seconds':16} {seconds:.0f}"
        for (law, what), count in sorted(self.kinds.items(), key=lambda one: -one[1]):
            yield f"  {count:6}  {law}: {what}"


def _plans(trial: Trial) -> Iterator[Breach]:
    """Nothing but planning, for what raises."""
    assert trial.outcome
    yield from ()


def _laws_for(trial: Trial, law: str | None, *, timed: bool) -> list[Law]:
    """All laws that look at one plan, and a share of those that take another one."""
    if law is not None:
        return [LAWS[law]]
    dice = trial.dice("which laws")
    drawn = [one for one in IN_TURN if dice.chance(IN_TURN_SHARE)]
    late = [one for one in TIMED if timed and dice.chance(TIMED_SHARE)]
    return [*ON_ALL, *drawn, *late, *(one for one in ASKED if timed and dice.chance(ASKED_SHARE))]


def _broken(trial: Trial, law: Law) -> Iterator[Finding]:
    """How a request breaks a law, or what is raised on the way."""
    try:
        with no_longer_than(MOST_CPU_S):
            breaches = list(law(trial))
        for breach in breaches:
            yield Finding(law.__name__, breach.what, trial.seed, breach.detail, trial.document, breach.other)
    except Raised as raised:
        yield Finding(RAISES, _cause(raised.error), trial.seed, str(raised), raised.document)
    except Exception as error:
        yield Finding(RAISES, _cause(error), trial.seed, f"{law.__name__}: {error!r}", trial.document)


def _cause(error: BaseException) -> str:
    """What was raised and where, without what changes from request to request."""
    where = [one for one in traceback.extract_tb(error.__traceback__) if "/solver/" in one.filename]
    if isinstance(error, TimeoutError):
        return "no end"
    place = f"{Path(where[-1].filename).name}:{where[-1].lineno} {where[-1].name}" if where else "outside the solver"
    return f"{type(error).__name__} in {place}"


def written(finding: Finding, folder: Path) -> Path:
    """The request of a finding as a file, and the other request beside it where the law takes two."""
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^a-z0-9]+", "-", f"{finding.law}-{finding.what}-{finding.seed}".lower()).strip("-")[:120]
    path = folder / f"{name}.json"
    path.write_text(json.dumps(finding.document, indent=1) + "\n", encoding="utf-8")
    if finding.other is not None:
        (folder / f"{name}.other.json").write_text(json.dumps(finding.other, indent=1) + "\n", encoding="utf-8")
    return path
