"""Lists the packages: everything under verl_mas/, and recipes/ as the package verl_mas.recipes of a built wheel."""

from setuptools import find_packages, setup

setup(
    packages=[*find_packages(include=["verl_mas", "verl_mas.*"]), "verl_mas.recipes"],
    package_dir={"verl_mas.recipes": "recipes"},
)
