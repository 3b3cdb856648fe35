"""The compile commands of a built preset, without the precompiled header, for the checks that compile or lint."""

import json
import pathlib
import shlex
import subprocess

import sources

BUILD = sources.ROOT / "build" / sources.PRESET


def _plain(command):
    """A command's options: no compiler, input, output or precompiled header."""
    words = shlex.split(command)
    start = next(i for i, word in enumerate(words) if pathlib.Path(word).name.startswith(("g++", "c++", "clang++")))
    options, skip = [], False
    for i, word in enumerate(words[start + 1:], start + 1):
        if skip:
            skip = False
        elif word in ("-o", "-c"):
            skip = True
        elif word == "-include" and "cmake_pch" in words[i + 1]:
            skip = True
        elif word != "-Winvalid-pch":
            options.append(word)
    return options


def commands():
    """{source: options} of everything that the preset builds from the tree."""
    entries = json.loads((BUILD / "compile_commands.json").read_text())
    return {entry["file"]: _plain(entry["command"]) for entry in entries
            if pathlib.Path(entry["file"]).is_relative_to(sources.ROOT) and "cmake_pch" not in entry["file"]}


def flags_by_folder():
    """{folder under src/ndmesh: options of one of its sources}."""
    result = {}
    for file, options in commands().items():
        path = pathlib.Path(file)
        if path.is_relative_to(sources.ROOT / "src/ndmesh"):
            result.setdefault(path.parent, options)
    return result


def compile_alone(header, flags):
    """The compiler's complaints about a header on its own; empty when there are none."""
    done = subprocess.run(["g++", *flags[header.parent], "-fsyntax-only", "-x", "c++", "-include", str(header),
                           "/dev/null"], capture_output=True, text=True)
    return done.stderr if done.returncode else ""


def write_lint_commands():
    """A compilation database for clang-tidy: its folder, and {source: arguments}. Warnings that only g++ knows are no finding."""
    folder = BUILD / "lint"
    folder.mkdir(exist_ok=True)
    arguments = {file: ["clang++-14", *options, "-Wno-unknown-warning-option", "-c", file]
                 for file, options in commands().items()}
    entries = [{"file": file, "directory": str(BUILD), "arguments": words} for file, words in arguments.items()]
    (folder / "compile_commands.json").write_text(json.dumps(entries))
    return folder, arguments
