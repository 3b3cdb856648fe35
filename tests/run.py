"""Runs the built test programs and the checks of the tree, two at a time, and adds up their counts.

    python3 tests/run.py --preset release [--slow] [NAME...]

Called by ./test, which builds first. A GoogleTest program counts by its own lines; one that crashes, runs out of time or
runs no test at all counts as one more failure. The last line is "N passed, N failed".
"""

import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SANITIZED = ("asan", "tsan")
FUZZ_RUNS = 1_000_000
FAST_LIMIT_SECONDS = 300
SLOW_LIMIT_SECONDS = 3600


@dataclasses.dataclass
class Program:
    """One process: how it is called, and how its output is counted."""

    name: str
    command: list
    environment: dict
    limit: float


@dataclasses.dataclass
class Result:
    program: Program
    passed: int
    failed: int
    skipped: int
    seconds: float
    output: str


def count_googletest(output):
    """Passed, failed and skipped tests by the line that ends each of them; a test that only started is not counted."""
    passed = len(re.findall(r"^\[       OK \] ", output, re.MULTILINE))
    failed = len(re.findall(r"^\[  FAILED  \] .* \(\d+ ms\)$", output, re.MULTILINE))
    skipped = len(re.findall(r"^\[  SKIPPED \] .* \(\d+ ms\)$", output, re.MULTILINE))
    return passed, failed, skipped


def count_unittest(output):
    """The same by the closing lines of Python's unittest."""
    ran = re.search(r"^Ran (\d+) tests? in ", output, re.MULTILINE)
    kinds = dict(re.findall(r"(failures|errors|skipped)=(\d+)", output.rsplit("Ran ", 1)[-1]))
    failed = int(kinds.get("failures", 0)) + int(kinds.get("errors", 0))
    skipped = int(kinds.get("skipped", 0))
    return (int(ran[1]) if ran else 0) - failed - skipped, failed, skipped


def count_libfuzzer(output):
    """One target is one test: it passes when it made all of its runs and found nothing."""
    done = re.search(rf"^Done {FUZZ_RUNS} runs", output, re.MULTILINE) is not None
    return int(done), int(not done), 0


def counter_of(program):
    if program.command[0] == sys.executable:
        return count_unittest
    return count_libfuzzer if "fuzz_" in program.command[0] else count_googletest


def run(program):
    """One program's result; its output is kept whole for the case that something failed."""
    start = time.monotonic()
    trouble = ""
    with tempfile.TemporaryFile() as file:  # not a pipe, which a left-over grandchild would keep open
        try:
            status = subprocess.run(program.command, env={**os.environ, **program.environment}, cwd=ROOT, stdout=file,
                                    stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                                    timeout=program.limit).returncode
        except subprocess.TimeoutExpired:
            status = 0
            trouble = f"took more than {program.limit:.0f} s and was stopped"
        file.seek(0)
        output = file.read().decode(errors="replace")
    passed, failed, skipped = counter_of(program)(output)
    if status < 0:
        trouble = f"ended by signal {-status}"
    elif status > 0 and failed == 0:
        trouble = f"ended with status {status}, though no test failed"
    elif passed + failed + skipped == 0 and not trouble:
        trouble = "ran no test"
    if trouble:
        failed += 1
        output += f"\n{program.name} {trouble}\n"
    return Result(program, passed, failed, skipped, time.monotonic() - start, output)


def sanitizer_environment(preset):
    return {
        "asan": {"ASAN_OPTIONS": "detect_stack_use_after_return=1", "UBSAN_OPTIONS": "print_stacktrace=1"},
        # One OpenMP thread: libgomp is not instrumented, so its own hand-overs would be reported.
        "tsan": {"TSAN_OPTIONS": f"suppressions={ROOT}/tests/tsan.supp", "OMP_NUM_THREADS": "1"},
    }.get(preset, {})


def test_programs(preset, slow):
    """The GoogleTest programs of a built preset, in the order of the folders."""
    folder = ROOT / "build" / preset / "tests"
    built = sorted(folder.glob("test_*"), key=lambda path: path.stat().st_size, reverse=True)
    # Two programs share the cores, so each kernel gets one thread unless a test asks for more.
    environment = {"OMP_NUM_THREADS": "1", **sanitizer_environment(preset)}
    limit = SLOW_LIMIT_SECONDS if slow or preset in SANITIZED else FAST_LIMIT_SECONDS
    only = [] if slow else ["--gtest_filter=-*.Slow*:Slow*:*/Slow*"]
    return [Program(path.name.removeprefix("test_"), [str(path), *only], environment, limit)
            for path in built if path.suffix == ""]


def fuzz_programs():
    """The libFuzzer targets, each from examples of what it reads; what it makes of them stays in the build folder."""
    elsewhere = {"job": "examples", "cluster": "examples/clusters", "safetensors": "tests/data/safetensors"}
    programs = []
    for path in sorted((ROOT / "build/fuzz/tests/fuzz").glob("fuzz_*")):
        name = path.name.removeprefix("fuzz_")
        made = path.with_name(f"made_{name}")
        made.mkdir(exist_ok=True)
        seeds = ROOT / elsewhere.get(name, f"tests/fuzz/seeds/{name}")
        options = [f"-runs={FUZZ_RUNS}", "-seed=1", "-max_len=4096", f"-artifact_prefix={path.parent}/found_{name}_"]
        programs.append(Program(f"fuzz/{name}", [str(path), *options, str(made), str(seeds)], sanitizer_environment("asan"),
                                SLOW_LIMIT_SECONDS))
    return programs


def scripts(folder, preset, slow):
    """The checks of one folder of scripts."""
    environment = {"NDMESH_PRESET": preset, "PYTHONDONTWRITEBYTECODE": "1"}
    files = sorted((ROOT / "tests" / folder).glob("*_test.py"))
    limit = SLOW_LIMIT_SECONDS if slow else FAST_LIMIT_SECONDS
    return [Program(f"{folder}/{path.stem.removesuffix('_test')}", [sys.executable, str(path)], environment, limit)
            for path in files if slow or not path.name.startswith("slow_")]


def programs_of(preset, slow):
    """All of one preset. Slow tests and the checks of sources and documents belong to release, those of the installed library
    to planner-only too."""
    if preset == "fuzz":
        return fuzz_programs()
    programs = test_programs(preset, slow and preset not in (*SANITIZED, "planner-only"))
    if preset == "release":
        programs += scripts("tree", preset, slow)
    if preset in ("release", "planner-only"):
        programs += scripts("consumer", preset, slow)
    return programs


def print_result(result):
    skipped = f", {result.skipped} skipped" if result.skipped else ""
    counts = f"{result.passed} passed, {result.failed} failed{skipped}"
    print(f"   {result.program.name:<16} {counts:<28} {result.seconds:6.1f} s", flush=True)
    if result.failed:
        print(result.output, flush=True)


def run_preset(preset, slow, names):
    """All programs of one preset, or those that are named, two at a time."""
    programs = programs_of(preset, slow)
    known = sorted({program.name.split("/")[0] for program in programs})
    for name in names:
        if name not in known:
            print(f"No test program is named {name}; there are: {', '.join(known)}", file=sys.stderr)
            sys.exit(2)
    if names:
        programs = [program for program in programs if program.name.split("/")[0] in names]
    print(f"-- Testing build/{preset}{' (slow tests too)' if slow else ''}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
        results = []
        for finished in concurrent.futures.as_completed([pool.submit(run, program) for program in programs]):
            results.append(finished.result())
            print_result(results[-1])
    return sum(result.passed for result in results), sum(result.failed for result in results)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--preset", action="append", default=[], help="a built preset; may be given several times")
    parser.add_argument("--not-built", action="append", default=[], help="a preset whose build failed: counts as a failure")
    parser.add_argument("--slow", action="store_true")
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    passed, failed = 0, len(options.not_built)
    for preset in options.preset:
        preset_passed, preset_failed = run_preset(preset, options.slow, options.names)
        passed += preset_passed
        failed += preset_failed or preset_passed == 0
    for preset in options.not_built:
        print(f"-- build/{preset} could not be built")
    print(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
