"""The bill of materials names what is installed, with versions, in a form that other tools read."""

from __future__ import annotations

import json
import subprocess

from tests.architecture.pins import pins_of
from tests.unit.app.programs import ROOT


def test_every_dependency_is_in_the_bill_of_materials() -> None:
    subprocess.run(["make", "sbom"], cwd=ROOT, check=True, timeout=300, capture_output=True)
    bill = json.loads((ROOT / "sbom.json").read_text(encoding="utf-8"))
    assert bill["bomFormat"] == "CycloneDX"
    assert bill["metadata"]["component"]["name"] == "isthmus"
    versions = {one["name"].lower(): one["version"] for one in bill["components"]}
    pinned = dict(pin.lower().split("==") for pin in pins_of(ROOT / "requirements.txt"))
    assert {name: versions.get(name) for name in ("ortools", "fastapi", "sqlalchemy", "pulp")} == {
        name: pinned[name] for name in ("ortools", "fastapi", "sqlalchemy", "pulp")
    }
    assert str(ROOT) not in json.dumps(bill["components"]).replace(f"file://{ROOT}", "")
