"""The calibration resource: measured runs in, a fitted profile with its errors out, to be named by later requests."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from functools import partial
from importlib.resources import files
from itertools import islice
from typing import Annotated, Any

from anyio.to_thread import run_sync
from fastapi import APIRouter, Path, Query, Request
from fastapi.responses import JSONResponse, Response
from pydantic import Field

from app.api.examples import CALIBRATION_EXAMPLES, MEASURED_RUNS_CSV
from app.api.headers import Asking, Service
from app.api.problems import documented, existing, gone
from app.api.strict import StrictRoute, in_time, whole_body
from app.api.tags import cursor_of, next_cursor
from app.csv_text import rows_of
from app.documents import check_limits, parse_json, read_model
from app.faults import Fault, refused
from app.jobs.access import Busy
from app.storage.calibrations import CalibrationRow
from app.wire import Answer, Calibration, NextCursor
from app.words import when
from models.base import MOST

router = APIRouter(prefix="/v1/calibrations", tags=["calibrations"], route_class=StrictRoute)
CalibrationId = Annotated[str, Path(pattern=r"^cal_[0-9a-f]{32}$", description="Name of the calibration.")]
Cell = (
    Annotated[str, Field(max_length=2000)]
    | Annotated[int, Field(strict=True, ge=-MOST, le=MOST)]
    | Annotated[float, Field(strict=True, allow_inf_nan=False)]
    | Annotated[bool, Field(strict=True)]
    | None
)

_LISTED = list(rows_of((files("app.api") / "measured_columns.csv").read_text(encoding="utf-8")))
# What each column of measured runs means; how its cells are read is in `solver/calibration/rows.py`.
COLUMNS: Mapping[str, str] = {row["column"]: row["meaning"] for row in _LISTED}
# A row without one of these is left out. The shape of a well-known model is filled in by its name.
NEEDED = tuple(row["column"] for row in _LISTED if row["needed"])
ROWS = (
    "The measured runs, one object each, at least two for every constant that is fitted. "
    f"Needed are {', '.join(NEEDED)}, and iter_time_s or tflops_per_gpu; the name of a well-known model stands for its "
    "shape. Cells may be text or numbers; other columns pass. All columns: "
    + "; ".join(f"`{name}` {meaning}" for name, meaning in COLUMNS.items())
    + "."
)


class CalibrationRequest(Answer):
    """Measured runs, and what to fit to them."""

    name: str = Field(
        "calibrated", min_length=1, max_length=60, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$",
        description="Name of the fitted profile.", examples=["our-cluster"],
    )  # fmt: skip
    constants: list[str] = Field(
        default_factory=list, max_length=40, examples=[["gemm_efficiency"]],
        description="Constants of the profile to fit; empty: what the rows can tell.",
    )  # fmt: skip
    profile: str | None = Field(
        None, max_length=120, description="Catalogue profile to start from; null: the one that the rows suggest.",
        examples=["megatron-2024"],
    )  # fmt: skip
    rows: list[dict[str, Cell]] = Field(
        min_length=1, description=ROWS, examples=[[{"model": "GPT-1.5B", "gpu": "A100-80G", "tp": 1}]]
    )


class CalibrationPage(Answer):
    """Some calibrations, newest first."""

    items: list[Calibration] = Field(description="Calibrations with their profiles.")
    next_cursor: NextCursor


@router.post("", name="create_calibration", status_code=201, response_model=Calibration,
             responses=documented(400, 408, 413, 415, 422, 429, 500, 503), summary="Fit a profile to measured runs",
             response_description="The fitted profile with its errors; it will be at `Location`.",
             openapi_extra={"requestBody": {"required": True, "content": {
                 "application/json": {"schema": {"$ref": "#/components/schemas/CalibrationRequest"},
                                      "examples": CALIBRATION_EXAMPLES},
                 "text/csv": {"schema": {"type": "string"}, "example": MEASURED_RUNS_CSV}}}})  # fmt: skip
async def calibrate(http: Request, service: Service, caller: Asking) -> Response:
    """Fit constants of a stack profile to measured runs; too few or contradictory rows are refused.

    A body of `text/csv` is the table alone: it has no place for a name, constants or a profile.
    """
    body, kind = await whole_body(http), http.headers.get("content-type", "")
    limit = service.settings.max_calibration_rows
    asked = await in_time(http, len(body), partial(_read, kind, body, limit))
    check_limits(("/rows", "rows", len(asked.rows), limit))
    rows = [{name: "" if value is None else str(value) for name, value in row.items()} for row in asked.rows]
    order = {"rows": rows, **asked.model_dump(include={"name", "constants", "profile"})}
    text = await run_sync(service.calibrate, json.dumps(order).encode(), caller)
    most = service.settings.max_calibrations
    row = await service.write(partial(service.calibrations.insert, caller.owner, text, most=most))
    if row is None:
        full = Fault("quota-exceeded", f"there are {most} calibrations of this owner, which is the limit", "",
                     f"at most {most} calibrations of one owner", "Delete a calibration.", limit=most)  # fmt: skip
        raise Busy(full, retry_after_s=60)
    return JSONResponse(_answer(row), status_code=201, headers={"Location": f"/v1/calibrations/{row.id}"})


@router.get("", response_model=CalibrationPage, responses=documented(400, 503), summary="List calibrations",
            response_description="One page, newest first.")  # fmt: skip
def list_calibrations(
    service: Service,
    caller: Asking,
    limit: Annotated[int, Query(ge=1, le=200, description="Calibrations of a page.")] = 50,
    cursor: Annotated[str | None, cursor_of("cal", 32)] = None,
) -> Response:
    """A page of calibrations; `next_cursor` leads to the next one."""
    rows = service.calibrations.page(limit=limit + 1, before=cursor, owner=caller.sees)
    more = next_cursor(rows, limit)
    return JSONResponse({"items": [_answer(row) for row in rows[:limit]], "next_cursor": more})


@router.get("/{calibration_id}", response_model=Calibration, responses=documented(400, 404, 503),
            response_description="The fitted profile with its errors.", summary="Read a calibration")  # fmt: skip
def read_calibration(calibration_id: CalibrationId, service: Service, caller: Asking) -> Response:
    """The fitted profile with its errors."""
    row = existing("calibration", calibration_id, service.calibrations.get(calibration_id, owner=caller.sees))
    return JSONResponse(_answer(row))


@router.delete("/{calibration_id}", status_code=204, responses=documented(400, 404, 503),
               response_description="Removed.", summary="Remove a calibration")  # fmt: skip
async def delete_calibration(calibration_id: CalibrationId, service: Service, caller: Asking) -> Response:
    """Remove it; plans that used it keep the profile they took from it."""
    if not await service.write(partial(service.calibrations.delete, calibration_id, owner=caller.sees)):
        raise gone("calibration", calibration_id)
    return Response(status_code=204)


def _read(content_type: str, body: bytes, max_rows: int) -> CalibrationRequest:
    if content_type.partition(";")[0].strip().lower() != "text/csv":
        return read_model(CalibrationRequest, parse_json(body))
    try:
        rows = list(islice(rows_of(body.decode("utf-8-sig")), max_rows + 1))
    except (UnicodeDecodeError, csv.Error) as error:
        raise refused("invalid-request", f"the body is not CSV: {error}", "", "CSV in UTF-8 with a header",
                      "Correct the line.") from None  # fmt: skip
    return read_model(CalibrationRequest, {"rows": rows})


def _answer(row: CalibrationRow) -> dict[str, Any]:
    return {"id": row.id, "created_at": when(row.created_at), **json.loads(row.document)}
