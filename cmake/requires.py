"""Prints what pyproject.toml needs to be built, and what extras named here add, one requirement per line."""

import sys

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, whose pip brings the same parser
    from pip._vendor import tomli as tomllib

with open("pyproject.toml", "rb") as file:
    project = tomllib.load(file)
extras = [project["project"]["optional-dependencies"][name] for name in sys.argv[1:]]
print(*sum(extras, project["build-system"]["requires"]), sep="\n")
