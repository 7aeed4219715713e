"""A list of plans and a page per plan, for people; both use the public API alone, so they show what a key may see.

Owns the frames of the two pages. Never reads a plan: the script of the page asks the API.
"""

from __future__ import annotations

from html import escape
from string import Template
from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse

router = APIRouter(include_in_schema=False)
PlanId = Annotated[str, Path(pattern=r"^[A-Za-z0-9_]{1,40}$")]

FRAME = Template("""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>$title</title>
<link rel="icon" type="image/svg+xml" href="/static/favicon.svg">
<link rel="stylesheet" href="/static/plans.css">
</head>
<body>
<header>
<h1>$title</h1>
<nav aria-label="Pages"><a href="/plans">Plans</a> · <a href="/docs">API</a></nav>
<form><label for="key">API key, if this service asks for one</label>
<input id="key" type="password" autocomplete="off" spellcheck="false"><button>Use</button></form>
</header>
<main data-plan="$plan">
<p id="told" role="status">Loading</p>
$content
</main>
<script src="/static/plans.js"></script>
</body>
</html>
""")
LIST = """<div class="scroll" role="region" aria-label="Plans" tabindex="0"><table>
<thead><tr><th scope="col">plan</th><th scope="col">state</th><th scope="col">submitted</th>
<th scope="col">iteration time</th><th scope="col">lower bound</th><th scope="col">gap</th></tr></thead>
<tbody></tbody></table></div>
<p><a id="more" href="/plans" hidden>Older plans</a></p>"""
ONE = """<dl></dl>
<div class="actions">
<button type="button" data-kind="report-html" data-suffix="report.html">Report (one HTML file)</button>
<button type="button" data-kind="chrome-trace" data-suffix="trace.json">Trace for Perfetto</button>
</div>"""


@router.get("/plans")
async def list_page() -> HTMLResponse:
    """Plans, newest first."""
    return HTMLResponse(FRAME.substitute(title="Plans", plan="", content=LIST))


@router.get("/plans/{plan_id}")
async def plan_page(plan_id: PlanId) -> HTMLResponse:
    """One plan: how far the search is, and its report."""
    name = escape(plan_id)
    return HTMLResponse(FRAME.substitute(title=f"Plan {name}", plan=name, content=ONE))
