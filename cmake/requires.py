"""Prints what pyproject.toml needs to be built, one requirement per line, as pip reads them."""

try:
    import tomllib
except ModuleNotFoundError:  # Python 3.10, whose pip brings the same parser
    from pip._vendor import tomli as tomllib

with open("pyproject.toml", "rb") as file:
    print(*tomllib.load(file)["build-system"]["requires"], sep="\n")
