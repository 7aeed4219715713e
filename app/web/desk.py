"""The desk: pages for planners, in one frame whose script asks the public API alone, so it shows what a key may see."""

from __future__ import annotations

from html import escape
from importlib.resources import files
from string import Template
from typing import Annotated

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse

from app.exporters.report.page import STYLE_DIGEST

router = APIRouter(include_in_schema=False)
PlanId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_]{1,40}$")]

# Stricter than the policy of the other pages: our own files and our own API alone, and of what is inline only the
# style that a report carries, which the page meets when it takes a report apart.
POLICY = (
    f"default-src 'none'; script-src 'self'; style-src 'self' {STYLE_DIGEST}; img-src 'self' data:; "
    "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'"
)
# The frame of every page; `$title` is its title.
FRAME = Template((files("app.web") / "desk.html").read_text(encoding="utf-8"))


def below(prefix: str, page: str) -> str:
    """A page of ours, whose addresses all begin with a slash, with the prefix on each of them.

    >>> below("/planner", '<a href="/plans">')
    '<a href="/planner/plans">'
    """
    return page.replace('="/', f'="{prefix}/')


def page(request: Request, title: str) -> HTMLResponse:
    """The frame; what is in it depends on the address alone."""
    frame = below(request.app.state.prefix, FRAME.substitute(title=escape(title)))
    return HTMLResponse(frame, headers={"Content-Security-Policy": POLICY})


def _add(path: str, title: str) -> None:
    @router.get(path)
    async def at_path(request: Request) -> HTMLResponse:
        return page(request, title)


for _path, _title in {"/": "Isthmus", "/plans": "Plans", "/new": "New plan", "/compare": "Compare",
                      "/studies": "Studies", "/accuracy": "Accuracy"}.items():  # fmt: skip
    _add(_path, _title)


@router.get("/plans/{plan_id}")
async def plan_page(request: Request, plan_id: PlanId) -> HTMLResponse:
    """One plan: how far the search is, and what it found."""
    return page(request, f"Plan {plan_id}")


@router.get("/studies/{study_id}")
async def study_page(request: Request, study_id: PlanId) -> HTMLResponse:
    """One grid: heat maps, curves, Pareto fronts."""
    return page(request, f"Study {study_id}")
