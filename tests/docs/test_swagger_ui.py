"""The documentation page works with no network: every asset is ours, and the policy forbids anything else."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from app.main import create_app
from app.web.pages import DOCS_PAGE, STATIC
from tests.unit.app.service_fixture import settings_for


@pytest.fixture(scope="module")
def client() -> TestClient:
    """The application without its database: the pages need none."""
    return TestClient(create_app(settings_for(Path("unused"))))


def test_the_page_names_no_other_host() -> None:
    sources = DOCS_PAGE + (STATIC / "docs.js").read_text() + (STATIC / "favicon.svg").read_text()
    hosts = set(re.findall(r"(?:https?:)?//([\w.-]+\.\w+)", sources))
    assert hosts <= {"www.w3.org"}, "the SVG namespace is a name, not an address"


def test_every_asset_of_the_page_is_served_here(client: TestClient) -> None:
    page = client.get("/docs")
    assets = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(assets) >= 4
    for asset in assets:
        assert asset.startswith("/static/")
        assert client.get(asset).status_code == 200


def test_the_policy_allows_this_origin_only(client: TestClient) -> None:
    policy = client.get("/docs").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "script-src 'self';" in policy
    assert "http" not in policy


def test_no_asset_of_the_style_sheet_lies_elsewhere() -> None:
    style = (STATIC / "swagger-ui" / "swagger-ui.css").read_text()
    assert "@import" not in style
    assert all(url.lstrip("\"'").startswith("data:") for url in re.findall(r"url\(([^)]{1,40})", style))


def test_the_validator_badge_that_would_ask_another_host_is_off() -> None:
    assert "validatorUrl: null" in (STATIC / "docs.js").read_text()


def test_the_licence_of_the_vendored_program_is_here() -> None:
    folder = STATIC / "swagger-ui"
    assert "Apache License" in (folder / "LICENSE").read_text()
    assert {"NOTICE", "swagger-ui-bundle.js.LICENSE.txt"} <= {one.name for one in folder.iterdir()}


def test_the_framework_pages_that_load_from_elsewhere_are_absent(client: TestClient) -> None:
    assert "/redoc" not in {getattr(route, "path", "") for route in client.app.routes}  # type: ignore[attr-defined]
