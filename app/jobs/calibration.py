"""Fits a profile to measured rows, for the command line and the HTTP service alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from app.faults import refused
from models.catalogue import entry_names
from models.stack import StackProfile, packaged_stack
from solver.calibration.fit_rows import calibrate_rows


def calibration(
    rows: Sequence[Mapping[str, str]], *, name: str, constants: Sequence[str] = (), profile: str | None = None
) -> dict[str, Any]:
    """Constants of a stack profile fitted to measured runs, with the error on runs held back, as plain values."""
    try:
        fitted = calibrate_rows(rows, name=name, start=_profile(profile), constants=constants)
    except KeyError as missing:
        remedy = "The columns are those of POST /v1/calibrations at /docs, and of docs/howto/fit-a-profile.md."
        raise refused("missing-field", f"the rows have no column {missing}", remedy=remedy) from None
    errors = {name: value for name, value in vars(fitted).items() if name.endswith("_pct")}
    found = fitted.profile.model_dump(mode="json")
    return {"profile": found, "rows": fitted.num_rows, "fitted": dict(fitted.fitted), **errors}


def _profile(name: str | None) -> StackProfile | None:
    if name is None:
        return None
    allowed = ", ".join(entry_names("stacks"))
    if name not in entry_names("stacks"):
        raise refused("unknown-name", f"no profile is called {name!r}", "/profile", allowed, f"Use one of {allowed}.")
    return packaged_stack(name)
