"""`pyquant info`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Optional

import typer

from pyquant.cli import options, paths
from pyquant.cli.output import number, percent, print_table, show, size
from pyquant.errors import ConfigError

LONGEST = 200  # characters of a value; chat templates are longer


def info(
    model: Annotated[
        Optional[Path],
        typer.Argument(metavar="MODEL.gguf", parser=paths.source, help="GGUF of any types, or pqz file."),
    ] = None,
    tensors: Annotated[bool, typer.Option("--tensors", help="List the tensors too.")] = False,
    json: options.Json = False,
) -> None:
    """Describe a model file; without one, pyquant itself.

    Versions and the build, as a bug report needs them.
    """
    from pyquant.machine.environment import environment
    from pyquant.models.info import model_info

    if model is None:
        if tensors:
            raise ConfigError("--tensors: lists those of a model; give MODEL.gguf")
        show(environment(), json, _print_environment)
        return
    result = model_info(model).to_json()
    if not tensors:
        del result["tensors"]
    show(result, json, _print_model)


def _print_environment(result: dict[str, Any]) -> None:
    _print_lines(
        {
            "pyquant": result["pyquant"],
            "python": result["python"],
            "platform": f"{result['platform']}, {result['cores']} cores",
            "cpu features": " ".join(result["cpu_features"]),
            "ggml": f"{result['ggml']}, of llama-cpp-python {result['built_for_llama_cpp_python']}",
            "built": f"{result['build_type']}, {result['compiler']}",
            "variant": f"{result['variant']}, in {result['extension']}",
            **{gpu["name"]: f"{gpu['description']}, {_room(gpu)}" for gpu in result["devices"]},
            **{name: version or "not installed" for name, version in result["packages"].items()},
        }
    )


def _room(gpu: dict[str, Any]) -> str:
    return f"{size(gpu['free_bytes'])} of {size(gpu['memory_bytes'])} free"


def _print_model(result: dict[str, Any]) -> None:
    files = f" in {result['n_files']} files" if result["n_files"] > 1 else ""
    _print_lines(
        {
            "model": result["path"],
            "name": result["name"] or "-",
            "architecture": result["architecture"] or "-",
            "file type": result["file_type"] or "-",
            "parameters": f"{result['n_weights']:,}",
            "size": size(result["n_bytes"]) + files,
            **({"expands to": size(result["pqz"]["gguf_bytes"])} if result["pqz"] else {}),
            "bits per weight": number(result["bits_per_weight"], ".3f"),
            **{f"pyquant {key}": value for key, value in result["provenance"].items()},
        }
    )
    print_table(
        ["type", "tensors", "weights", "share", "size"],
        [
            [
                share["type"],
                str(share["n_tensors"]),
                f"{share['n_weights']:,}",
                percent(share["n_weights"] / result["n_weights"] if result["n_weights"] else None),
                size(share["n_bytes"]),
            ]
            for share in result["types"]
        ],
    )
    if result["untreated"]:
        print_table(
            ["kind", "is not", "why", "tensors", "weights"],
            [
                [_shown(u["kind"]), u["what"], _shown(u["why"]), str(u["n_tensors"]), f"{u['n_weights']:,}"]
                for u in result["untreated"]
            ],
            labels=3,
        )
    _print_lines({key: value for key, value in result["metadata"].items() if not key.startswith("pyquant.")})
    if "tensors" in result:
        print_table(
            ["tensor", "type", "shape", "size"],
            [
                [_shown(t["name"]), t["type"], " x ".join(map(str, t["shape"])), size(t["n_bytes"])]
                for t in result["tensors"]
            ],
            labels=2,
        )


def _print_lines(lines: dict[str, Any]) -> None:
    width = max(map(len, lines), default=0)
    for key, value in lines.items():
        print(f"{_shown(key):<{width}}  {_shown(value)}".rstrip())


def _shown(value: Any) -> str:
    """Shows a value on one line, without what a terminal would take for a command."""
    if isinstance(value, dict):
        return f"[{value['length']:,} items]"
    text = f"{value:g}" if isinstance(value, float) else str(value)
    text = text if len(text) <= LONGEST else text[: LONGEST - 3] + "..."
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)
