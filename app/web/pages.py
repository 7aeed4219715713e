"""Swagger UI from our own assets, the desk, and the files of both."""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import HTMLResponse
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from app.exporters import report
from app.web import desk
from app.web.desk import below

STATIC = Path(__file__).parent / "static"
REPORT_STATIC = Path(report.__file__).parent / "static"  # one style and one zoom for the report file and the desk


class Assets(StaticFiles):
    """Files of ours, small and sent whole: a range that cannot be met would be refused in words of the framework."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as if no range had been asked for."""
        headers = [one for one in scope["headers"] if one[0] != b"range"]
        await super().__call__({**scope, "headers": headers}, receive, send)


router = APIRouter(include_in_schema=False)

DOCS_PAGE = (Path(__file__).parent / "docs.html").read_text(encoding="utf-8")


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """Swagger UI with the examples in it."""
    return HTMLResponse(below(request.app.state.prefix, DOCS_PAGE))


def install(app: FastAPI) -> None:
    """Add the pages and their assets to the application."""
    app.mount("/static/report", Assets(directory=REPORT_STATIC), name="report-static")
    app.mount("/static", Assets(directory=STATIC), name="static")
    app.include_router(router)
    app.include_router(desk.router)
