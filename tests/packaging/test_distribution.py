"""What an installation holds: recipes, found from a checkout and from a wheel, and pins that fit together."""

import configparser
import re
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from verl_mas.recipes_path import recipe_dir

ROOT = Path(__file__).resolve().parents[2]
PIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*==[A-Za-z0-9.!+]+")


def pins(name: str) -> dict[str, str]:
    """Version by normalised name (PEP 503)."""
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    versions = [line.split("==") for line in lines if line and not line.startswith("#")]
    return {re.sub(r"[-_.]+", "-", package).lower(): version for package, version in versions}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of a copy of the sources, built as pip builds it."""
    sources = tmp_path_factory.mktemp("sources")
    for folder in ("verl_mas", "recipes"):
        shutil.copytree(ROOT / folder, sources / folder, ignore=shutil.ignore_patterns("__pycache__"))
    for file in ("setup.cfg", "setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, sources)
    program = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-c", program, str(built)], cwd=sources, check=True, capture_output=True)
    (path,) = built.glob("verl_mas-*.whl")
    return path


def test_a_checkout_uses_its_own_recipes() -> None:
    assert recipe_dir() == ROOT / "recipes"


def test_a_wheel_finds_the_recipes_that_it_carries(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    program = "import sys; from verl_mas.recipes_path import recipe_dir; sys.stdout.write(str(recipe_dir()))"
    process = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert process.stdout == str(tmp_path / "verl_mas" / "recipes")
    carried = {path.name for path in (tmp_path / "verl_mas" / "recipes").iterdir()}
    assert carried == {path.name for path in (ROOT / "recipes").glob("*.yaml")}


def test_a_wheel_carries_every_module_and_every_yaml_file(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    sources = [path for suffix in ("*.py", "*.yaml", "py.typed") for path in (ROOT / "verl_mas").rglob(suffix)]
    expected = {str(path.relative_to(ROOT)) for path in sources}
    assert expected <= names
    assert not [name for name in names if name.startswith(("tests/", "recipes/", "plugins/"))]


def test_the_built_in_plugin_arrives_through_its_entry_point() -> None:
    assert {point.name: point.value for point in entry_points(group="verl_mas")}["builtin"] == "verl_mas.builtin"


@pytest.mark.parametrize("name", ["cpu", "gpu", "dev", "models"])
def test_every_requirement_is_pinned_exactly_and_once(name: str) -> None:
    lines = (ROOT / "requirements" / f"{name}.txt").read_text().splitlines()
    requirements = [line for line in lines if line and not line.startswith("#")]
    assert [line for line in requirements if not PIN.fullmatch(line)] == []
    assert len(pins(name)) == len(requirements)


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_development_pins_fit_beside_the_runtime_pins(name: str) -> None:
    runtime, development = pins(name), pins("dev")
    assert {
        key: (runtime[key], development[key])
        for key in runtime.keys() & development.keys()
        if runtime[key] != development[key]
    } == {}


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_the_pins_hold_all_that_the_package_asks_for(name: str) -> None:
    metadata = configparser.ConfigParser()
    metadata.read(ROOT / "setup.cfg")
    asked = [re.split(r"[<>=!~]", line)[0] for line in metadata["options"]["install_requires"].split()]
    assert asked
    assert set(asked) <= pins(name).keys()
