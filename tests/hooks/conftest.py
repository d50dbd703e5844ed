"""Installs real distributions (a package and its dist-info folder) in a temporary directory on sys.path."""

import importlib
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import distributions
from pathlib import Path
from textwrap import dedent

import pytest

from verl_mas.hooks import ENTRY_POINT_GROUP

Install = Callable[..., Path]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """install(package, module, source): the only plugins that can be found are those installed with it."""
    others = [
        path
        for path in sys.path
        if not any(found.entry_points.select(group=ENTRY_POINT_GROUP) for found in distributions(path=[path]))
    ]
    monkeypatch.setattr(sys, "path", [str(tmp_path), *others])
    before = set(sys.modules)

    def install_package(package: str, module: str, source: str, value: str | None = None, name: str = "main") -> Path:
        file = tmp_path / f"{module}.py"
        file.write_text(dedent(source))
        info = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{ENTRY_POINT_GROUP}]\n{name} = {value or module}\n")
        importlib.invalidate_caches()
        return file

    yield install_package
    for module in set(sys.modules) - before:
        if Path(getattr(sys.modules[module], "__file__", None) or "/").is_relative_to(tmp_path):
            del sys.modules[module]
