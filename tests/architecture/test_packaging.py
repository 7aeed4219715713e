"""`app`, `solver` and `models` are generic names: these guards keep them from meaning anything else."""

from __future__ import annotations

import importlib.metadata
import re
import sys
import tomllib
from typing import Any

import pytest

from tests.architecture.pins import pins_of
from tests.architecture.sources import PACKAGES, ROOT, name_of, python_files, tracked_files

GUARDED = (*PACKAGES, "tests")
PINNED = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9][A-Za-z0-9.+!-]*")


def _project() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[\[<>=!~; ]", name)[0]).lower()


def test_the_wheel_holds_the_three_packages_and_the_import_name_and_nothing_else() -> None:
    project = _project()
    assert project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"] == ["app", "solver", "models", "isthmus"]
    assert "Private :: Do Not Upload" in project["project"]["classifiers"]


def test_no_other_distribution_provides_our_names() -> None:
    providers = importlib.metadata.packages_distributions()
    strangers = {name: set(providers.get(name, ())) - {"isthmus"} for name in GUARDED}
    assert not any(strangers.values()), f"remove the distributions that shadow our packages: {strangers}"


@pytest.mark.parametrize("package", PACKAGES)
def test_our_names_mean_this_checkout(package: str) -> None:
    file = sys.modules[package].__file__ if package in sys.modules else __import__(package).__file__
    assert file == str(ROOT / package / "__init__.py")


def test_a_package_below_the_top_has_no_guarded_name_except_in_the_mirror() -> None:
    deep = {path.parent for path in python_files() if path.parent.name in PACKAGES}
    assert {name_of(folder) for folder in deep} <= {*PACKAGES, *(f"tests/unit/{package}" for package in PACKAGES)}


def test_every_folder_with_code_is_a_package() -> None:
    folders = {path.parent for path in python_files(*PACKAGES, "tests", "benchmarks")}
    with_parents = {above for folder in folders for above in (folder, *folder.parents) if above.is_relative_to(ROOT)}
    bare = sorted(name_of(folder) for folder in with_parents - {ROOT} if not (folder / "__init__.py").exists())
    assert bare == []


@pytest.mark.parametrize("folder", ["app/exporters", "app/importers"])
def test_a_format_module_takes_no_standard_library_name(folder: str) -> None:
    """A `csv.py` or `json.py` beside code that needs the real one is a trap as soon as it is run by its path."""
    formats = [path for path in python_files("app") if name_of(path.parent) == folder]
    assert [name_of(path) for path in formats if path.stem in sys.stdlib_module_names] == []


def test_requirements_pin_every_dependency_and_name_no_source() -> None:
    files = sorted(ROOT.glob("requirements*.txt"))
    pins = [pin for file in files for pin in pins_of(file)]
    assert [pin for pin in pins if not PINNED.fullmatch(pin)] == []
    pinned = {_plain(pin) for pin in pins}
    project = _project()["project"]
    wanted = project["dependencies"] + [one for extra in project["optional-dependencies"].values() for one in extra]
    assert {_plain(one) for one in wanted} <= pinned


def test_what_is_installed_has_to_have_a_hash_that_is_known() -> None:
    """But for PyTorch: whether a build for CPUs or one for some CUDA is installed is the user's choice."""
    hashed = sorted(file for file in ROOT.glob("requirements*.txt") if file.name != "requirements-torch.txt")
    assert hashed
    for file in hashed:
        for pin, hashes in pins_of(file).items():
            assert hashes, f"{file.name}: {pin} has no hash: python -m tests.architecture.pins {file.name}"
            assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", one) for one in hashes), pin


def test_the_catalogue_is_package_data() -> None:
    documents = [name_of(path) for path in tracked_files() if path.suffix == ".json" and "catalogue" in path.parts]
    assert documents
    assert all(name.startswith("models/catalogue/") for name in documents)
