"""`make bench`: pyquant beside llama.cpp's own tools, built from the same source.

Quantizing, on a generated F16 model of 1 GB, beside llama-quantize and beside copying the file;
counting codes; packing and unpacking beside copying; calibrating beside llama-imatrix; perplexity and
KLD beside llama-perplexity; type Q4_T beside stock types; writing beside llama-completion; masks
of grammars beside llguidance; passes of few tokens; a wheel's variants beside this build.
Prints ratios with their spread, as a table or as JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.billion import billion
from benchmarks.drafting import drafting
from benchmarks.generate import generate
from benchmarks.gptq import gptq
from benchmarks.grammar import grammar, mask_table
from benchmarks.grammar_added import added
from benchmarks.inputs import LARGE, ORACLE, PYQUANT, ROOT, SMALL, evaluation_text, model, quantized
from benchmarks.passes import passes
from benchmarks.plan import plan
from benchmarks.pqz import pqz
from benchmarks.small_batches import small_batches
from benchmarks.table_type import table_type
from benchmarks.timing import Runs, interleave, row, versus
from benchmarks.wheel import wheel
from pyquant.evaluate.speed import measure_speed
from pyquant.inspect.histogram import count_codes
from pyquant.machine.cpu import n_threads


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--folder", type=Path, default=ROOT / "build/bench", help="for models, some GB")
    parser.add_argument("--threads", type=int, default=n_threads(None))
    parser.add_argument("--layers", type=int, help="of the model of a billion weights; default: all")
    parser.add_argument("--memory", metavar="SIZE", help="for what error propagation keeps; default: all")
    parser.add_argument(
        "--model",
        type=Path,
        help="for `plan`, `generate` and `drafting`; default: that bundled; `small_batches`: a generated one",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("what", nargs="*", help=f"of {', '.join(SUITES)}; default: all of it")
    arguments = parser.parse_args()
    if unknown := sorted({*arguments.what} - SUITES.keys()):
        parser.error(f"no benchmark {unknown[0]!r}; there are {', '.join(SUITES)}")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    results = []
    for name in arguments.what or SUITES:
        print(f"{name} ...", file=sys.stderr)
        results += SUITES[name](arguments)
    if arguments.json:
        json.dump({"machine": machine(), "results": results}, sys.stdout, indent=2)
        return
    print(machine())
    masks = [result for result in results if "engine" in result]
    for result in results:
        if result not in masks:
            print(line(result))
    if masks:
        print(mask_table(masks))


def machine() -> str:
    names = re.findall(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{names[0] if names else platform.processor()}, {os.cpu_count()} cores, {platform.system()}"


def line(result: dict[str, Any]) -> str:
    if "coded_bits" in result:
        above = result["coded_bits"] / result["entropy"] - 1
        return (
            f"{result['command']:<32}{result['coded_bits']:9.4f} bits each, {above:+.2%} of their entropy; "
            f"{result['codes_per_second'] / 1e9:.2f} G weights decoded per second and core, "
            f"all of them in {result['decoding_seconds']:.2f} s by all threads; of "
            f"{result['gguf_bytes']:,} bytes {result['packed_bytes']:,}, by zstd -1 {result['zstd_bytes']:,}"
        )
    text = f"{result['command']:<32}"
    if "tokens_per_second" in result:
        text += f"{result['tokens_per_second']:9.1f} tokens per second"
    else:
        seconds = result["seconds"]
        text += f"{seconds:9.3f} s" if seconds > 1e-3 else f"{1e6 * seconds:9.1f} us"
    if result.get("gb_per_second"):
        text += f"{result['gb_per_second']:8.2f} GB/s"
    if "of_one" in result:
        text += f"   {result['of_one']:.2f} x one token"
    if "stock_of_one" in result:
        text += f" (stock {result['stock_of_one']:.2f})"
    if "added_us" in result:
        text += f"   {result['added_us']:.1f} us more with a grammar"
    if "share" in result:
        text += f"   {result['share']:.2%} of a forward pass"
    if "weights_per_second" in result:
        text += f"{result['weights_per_second'] / 1e6:8.1f} M weights per second"
    if "weighted_snr_db" in result:
        text += f"{result['weighted_snr_db']:8.3f} dB"
    if "file_mb" in result:
        text += f"{result['file_mb']:9.1f} MB file"
    if "reached" in result:
        text += f"   {result['reached']:.0%} reached, at {result['bandwidth_gb_per_second']:.1f} GB/s"
    if "peak_mb" in result:
        text += f"{result['peak_mb']:8.0f} MB peak"
    if "said_seconds" in result:
        text += (
            f"   {result['own_mb']:.0f} MB its own; said: {result['said_seconds']:.0f} s, "
            f"{result['said_mb']:.0f} MB, {result['said_disk_mb']:.0f} MB of disk"
        )
    if "of_passes" in result:
        text += f"; {result['of_passes']:.2f} x the passes alone"
    if "peer" in result:
        text += (
            f"   {result['times_as_fast']:.2f} ({result['low']:.2f}..{result['high']:.2f}) x {result['peer']}"
        )
    return text


def quantize(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """q4_0 and q8_0 beside llama-quantize with as many threads, and beside cp."""
    source = model(arguments, LARGE, "large-f16.gguf")
    out, threads = str(arguments.folder / "out.gguf"), str(arguments.threads)
    results = []
    for kind in ("q4_0", "q8_0"):
        ours = Runs(
            f"pyquant quantize {kind}",
            [PYQUANT, "quantize", "--mode", kind, "--threads", threads, str(source), out],
            clean=[out],
        )
        theirs = Runs(
            f"llama-quantize {kind}",
            [str(ORACLE / "llama-quantize"), str(source), out, kind, threads],
            clean=[out],
        )
        copy = Runs("cp", ["cp", str(source), out], clean=[out])
        interleave([ours, theirs, copy], arguments.rounds)
        n_bytes = source.stat().st_size
        results += [row(ours, theirs, n_bytes), row(ours, copy, n_bytes)]
        results += [row(theirs, None, n_bytes), row(copy, None, n_bytes)]
    os.unlink(out)
    return results


def dequantize(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Expanding to F16 beside llama-quantize with as many threads."""
    source, threads = model(arguments, LARGE, "large-f16.gguf"), str(arguments.threads)
    out, results = str(arguments.folder / "out.gguf"), []
    for kind in ("Q4_1", "Q4_K"):
        packed = quantized(arguments.folder / f"large-{kind}.gguf", source, mode=f"ggml:{kind}")
        command = [PYQUANT, "dequantize", str(packed), out, "--threads", threads]
        ours = Runs(f"pyquant dequantize {kind}", command, clean=[out])
        theirs = Runs(
            f"llama-quantize {kind} to F16",
            [str(ORACLE / "llama-quantize"), "--allow-requantize", str(packed), out, "F16", threads],
            clean=[out],
        )
        interleave([ours, theirs], arguments.rounds)
        results += [row(ours, theirs, source.stat().st_size), row(theirs, None, source.stat().st_size)]
    os.unlink(out)
    return results


def histogram(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Packed codes counted per second, on one thread and on all; Python's start not counted."""
    source = model(arguments, LARGE, "large-f16.gguf")
    results = []
    for kind in ("q4_0", "q8_0"):
        packed = quantized(arguments.folder / f"large-{kind}.gguf", source, mode=kind, pure=True)
        seconds: dict[int, list[float]] = {1: [], arguments.threads: []}
        count_codes(packed)  # not counted: it reads the file from disk
        for _ in range(arguments.rounds):
            for threads, times in seconds.items():
                begin = time.perf_counter()
                count_codes(packed, threads=threads)
                times.append(time.perf_counter() - begin)
        for threads, times in seconds.items():
            command = f"count_codes {kind}, {threads} thread" + "s" * (threads > 1)
            rate = packed.stat().st_size / statistics.median(times) / 1e9
            ratio = versus("one thread", seconds[1], times) if threads > 1 else {}
            results.append(
                {"command": command, "seconds": statistics.median(times), "gb_per_second": rate, **ratio}
            )
    return results


def perplexity(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Tokens per second beside llama-perplexity, start and tokenization included."""
    source = model(arguments, SMALL, "small-f16.gguf")
    text = evaluation_text(arguments)
    threads, chunks = str(arguments.threads), "96"
    ours = Runs(
        "pyquant perplexity",
        [PYQUANT, "perplexity", str(source), "--text", str(text), "--chunks", chunks, "--threads", threads],
    )
    theirs = Runs(
        "llama-perplexity",
        [
            str(ORACLE / "llama-perplexity"),
            "-m",
            str(source),
            "-f",
            str(text),
            "-c",
            "512",
            "--chunks",
            chunks,
        ]
        + ["-t", threads],
    )
    interleave([ours, theirs], arguments.rounds)
    return [{**row(ours, theirs, 0)}, row(theirs, None, 0)]


def calibrate(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Hessian statistics beside the passes that they need, llama-imatrix's and `pyquant perplexity`'s.

    The second run may keep a third of its sums in memory.
    """
    source, text = model(arguments, LARGE, "large-f16.gguf"), evaluation_text(arguments)
    stats, imatrix = str(arguments.folder / "stats"), str(arguments.folder / "imatrix.gguf")
    passes = ["--ctx", "512", "--chunks", "16", "--threads", str(arguments.threads)]
    # The same tokens for all of them: no random ones.
    command = [PYQUANT, "calibrate", str(source), "--text", str(text), "-o", stats, *passes, "--random", "0"]
    ours = Runs("pyquant calibrate", command, clean=[stats])
    spooled = Runs("pyquant calibrate, spooled", [*command, "--memory", "330MB"], clean=[stats])
    theirs = Runs(
        "llama-imatrix",
        [str(ORACLE / "llama-imatrix"), "-m", str(source), "-f", str(text), "-o", imatrix, "--no-ppl"]
        + ["-c", "512", "--chunks", "16", "-t", str(arguments.threads)],
    )
    plain = Runs("pyquant perplexity", [PYQUANT, "perplexity", str(source), "--text", str(text), *passes])
    interleave([ours, spooled, theirs, plain], arguments.rounds)
    for left in (stats, imatrix):
        os.unlink(left)
    return [
        *(row(runs, peer, 0) for runs in (ours, spooled) for peer in (theirs, plain)),
        row(theirs, None, 0),
        row(plain, None, 0),
    ]


CANDIDATES = ("q4_0", "q8_0", "ggml:IQ4_NL", "ggml:Q4_K", "ggml:Q5_0")


def compare(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Five candidates beside a base, against llama-perplexity run six times."""
    source = model(arguments, SMALL, "small-f16.gguf")
    text, logits = evaluation_text(arguments), arguments.folder / "logits"
    candidates = [
        quantized(arguments.folder / f"small-{mode.removeprefix('ggml:').lower()}.gguf", source, mode=mode)
        for mode in CANDIDATES
    ]
    threads, chunks = str(arguments.threads), "24"
    ours = Runs(
        "pyquant compare, 5 models",
        [PYQUANT, "compare", *map(str, [source, *candidates]), "--text", str(text)]
        + ["--chunks", chunks, "--threads", threads],
    )
    tool = f"{ORACLE / 'llama-perplexity'} -c 512 -t {threads} --kl-divergence-base {logits}"
    passes = [f"{tool} -m {source} -f {text} --chunks {chunks}"]
    passes += [f"{tool} -m {candidate} --kl-divergence" for candidate in candidates]
    theirs = Runs("llama-perplexity, 6 runs", ["sh", "-ec", "\n".join(passes)])
    interleave([ours, theirs], arguments.rounds)
    logits.unlink()
    return [row(ours, theirs, 0), row(theirs, None, 0)]


def speed(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Compare `pyquant speed` with llama-bench on one model, in turns: tokens per second."""
    source = model(arguments, SMALL, "small-f16.gguf")
    rates: dict[str, dict[str, list[float]]] = {"pyquant speed": {}, "llama-bench": {}}
    command = [str(ORACLE / "llama-bench"), "-m", str(source), "-p", "512", "-n", "64", "-o", "json"]
    command += ["-t", str(arguments.threads), "-r", "3"]
    for _ in range(arguments.rounds):
        (ours,) = measure_speed(
            [source], n_prompt=512, n_generate=64, rounds=3, threads=arguments.threads
        ).to_json()["models"]
        for test in ("prompt", "generation"):
            rates["pyquant speed"].setdefault(test, []).append(ours[test]["tokens_per_second"])
        told = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        for test, result in zip(("prompt", "generation"), json.loads(told)):
            median = statistics.median(result["samples_ts"])  # as ours is
            rates["llama-bench"].setdefault(test, []).append(median)
    ours_of, theirs_of = rates.values()
    ratios = {test: versus("llama-bench", found, theirs_of[test]) for test, found in ours_of.items()}
    return [
        {
            "command": f"{tool}, {test}",
            "tokens_per_second": statistics.median(found),
            **(ratios[test] if tests is ours_of else {}),
        }
        for tool, tests in rates.items()
        for test, found in tests.items()
    ]


def startup(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """Time `pyquant --help`."""
    runs = Runs("pyquant --help", [PYQUANT, "--help"])
    interleave([runs], max(arguments.rounds, 10))
    return [row(runs, None, 0)]


SUITES = {
    "quantize": quantize,
    "dequantize": dequantize,
    "histogram": histogram,
    "pqz": pqz,
    "perplexity": perplexity,
    "calibrate": calibrate,
    "compare": compare,
    "speed": speed,
    "startup": startup,
    "table_type": table_type,
    "gptq": gptq,
    "passes": passes,
    "billion": billion,
    "plan": plan,
    "generate": generate,
    "grammar": grammar,
    "added": added,
    "small_batches": small_batches,
    "drafting": drafting,
    "wheel": wheel,
}

if __name__ == "__main__":
    main()
