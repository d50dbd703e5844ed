"""Where the recipes that come with this package are: `recipes/` of a checkout, `verl_mas/recipes/` of a built wheel."""

from pathlib import Path


def recipe_dir() -> Path:
    """Folder with the recipes (*.yaml) that come with this package.

    An editable install and a source tree use the repository's own `recipes/`, so that a new recipe is there at once; a
    wheel carries a copy inside the package (see setup.py).

    Raises:
        FileNotFoundError: neither exists, so the installation is damaged.
    """
    package = Path(__file__).resolve().parent
    # Of a wheel first: `recipes` beside an installed package would be some other project's folder in site-packages.
    candidates = (package / "recipes", package.parent / "recipes")
    for candidate in candidates:
        if candidate.is_dir():
            return candidate
    raise FileNotFoundError(f"no recipes at {' or '.join(map(str, candidates))}: install verl-mas again")
