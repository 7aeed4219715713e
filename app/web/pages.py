"""Swagger UI from our own assets, and the way there from the root.

Owns the HTML of the documentation page. Never names another host.
"""

from __future__ import annotations

from pathlib import Path

from fastapi import APIRouter, FastAPI
from fastapi.responses import HTMLResponse, RedirectResponse
from starlette.staticfiles import StaticFiles

from app.web import plan_pages

STATIC = Path(__file__).parent / "static"
router = APIRouter(include_in_schema=False)

DOCS_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Isthmus API</title>
<link rel="icon" type="image/svg+xml" href="/static/favicon.svg">
<link rel="stylesheet" href="/static/swagger-ui/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="/static/swagger-ui/swagger-ui-bundle.js"></script>
<script src="/static/docs.js"></script>
</body>
</html>
"""


@router.get("/docs")
async def docs() -> HTMLResponse:
    """Swagger UI with the examples in it."""
    return HTMLResponse(DOCS_PAGE)


@router.get("/")
async def root() -> RedirectResponse:
    """The documentation is the front page."""
    return RedirectResponse("/docs")


def install(app: FastAPI) -> None:
    """Add the pages and their assets to the application."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    app.include_router(router)
    app.include_router(plan_pages.router)
