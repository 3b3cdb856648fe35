"""What the checks of the tree read out of C++ sources, without a compiler: files, includes, layers, lengths of functions."""

import os
import pathlib
import re

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRESET = os.environ.get("NDMESH_PRESET", "release")  # the built preset under test
NOT_OURS = {".git", ".venv", "build", "runs", "__pycache__"}


def files(*suffixes, under="."):
    """All files of the tree with one of the suffixes (all files without any), build outputs left out."""
    for path in sorted((ROOT / under).rglob("*")):
        inside = path.relative_to(ROOT)
        if path.is_file() and not NOT_OURS.intersection(inside.parts) and (not suffixes or path.suffix in suffixes):
            yield path


def cpp_files():
    for folder in ("src", "tests", "bench", "cmake", "examples"):
        yield from files(".h", ".cpp", under=folder)


def name_of(path):
    return str(path.relative_to(ROOT))


def includes(text):
    return re.findall(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]', text, re.MULTILINE)


def layers(cmake_text):
    """{folder: (folders it may include, whether it may include libtorch)} from src/ndmesh/CMakeLists.txt, in its order."""
    result = {}
    for name, rest in re.findall(r"^\s*ndmesh_layer\((\w+)([^)]*)\)", cmake_text, re.MULTILINE):
        words = rest.split()
        allowed = {name}
        for word in words[words.index("DEPENDS") + 1:] if "DEPENDS" in words else []:
            if word == "LIBRARIES":
                break
            if word not in result:
                raise ValueError(f"{name} depends on {word}, which is not above it")
            allowed |= result[word][0]
        result[name] = (allowed, "TORCH" in words)
    return result


def is_torch(include):
    return include.split("/")[0] in ("ATen", "c10", "torch", "caffe2")


def without_comments_and_strings(text):
    """The same text with comments, strings and character literals blanked; line breaks stay."""
    pattern = re.compile(
        r'R"(?P<mark>[^(\s]*)\((?:.|\n)*?\)(?P=mark)"'  # raw string
        r'|//[^\n]*|/\*(?:.|\n)*?\*/'
        r'|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])*'")  # not the separator in 1'000
    return pattern.sub(lambda match: "\n" * match.group().count("\n"), text)


def _kind(header):
    """What a block is whose opening brace follows `header`: namespace, class, function or other."""
    if re.search(r"\bnamespace\b|\bextern\b", header):
        return "namespace"
    if re.search(r"\).*(?<!:):(?!:)", header, re.DOTALL) and re.search(r"[\w>]\s*$", header):
        return "other"  # a member's braces in a constructor's list
    outside = re.sub(r"\([^()]*\)", "()", header)
    if "(" in header and not re.search(r"(?<!operator)(?<![=!<>])=(?!=)", outside):
        return "function"
    if re.search(r"\b(class|struct|union)\b", header):
        return "class"
    return "other"


def function_lengths(text):
    """[(lines, first line, header)] of the functions defined in a formatted C++ text; a lambda counts with its function."""
    found, stack, header, line = [], [], "", 1
    for char in without_comments_and_strings(text):
        if char == "{":
            scope = stack[-1][0] if stack else "namespace"
            kind = _kind(header) if scope in ("namespace", "class") else "inner"
            stack.append((kind, line, header.strip()))
            header = header + "{" if kind == "other" else ""
        elif char == "}" and stack:
            kind, first, name = stack.pop()
            if kind == "function":
                found.append((line - first + 1, first, " ".join(name.split())))
            header = header + "}" if kind == "other" else ""
        elif char == ";":
            header = ""
        else:
            header += char
        line += char == "\n"
    return found
