"""The desk: pages for planners, in one frame whose script asks the public API alone, so it shows what a key may see."""

from __future__ import annotations

from html import escape
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
FRAME = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" type="image/svg+xml" href="/static/favicon.svg">
<link rel="stylesheet" href="/static/report/report.css">
<link rel="stylesheet" href="/static/desk/desk.css">
<script src="/static/report/report.js" defer></script>
<script type="module" src="/static/desk/main.js"></script>
</head>
<body class="desk">
<a class="skip" href="#page">To the page</a>
<div class="top">
<nav aria-label="Pages">
<a href="/" class="mark">Isthmus</a>
<a href="/plans">Plans</a>
<a href="/new">New plan</a>
<a href="/compare">Compare</a>
<a href="/studies">Studies</a>
<a href="/accuracy">Accuracy</a>
<a href="/docs" data-elsewhere>API</a>
</nav>
<details id="door"><summary>API key</summary>
<form><label for="key">Key, if this service asks for one</label>
<input id="key" type="password" autocomplete="off" spellcheck="false"><button>Use</button>
<p>It is held in the memory of this page until you reload or close it,
and sent to this service only.</p></form></details>
</div>
<main id="page" tabindex="-1"></main>
<p id="told" role="status"></p>
<p id="titled" class="unseen" aria-live="polite"></p>
<noscript><p>These pages need JavaScript; every plan can also be had from the <a href="/docs">API</a>
and the command line.</p></noscript>
</body>
</html>
""")


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
