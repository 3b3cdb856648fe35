"""An installed ndmesh, in a folder of its own, and projects that are built against it."""

import os
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
PRESET = os.environ.get("NDMESH_PRESET", "release")
BUILD = ROOT / "build" / PRESET


def run(*command, **options):
    """The output of a command, which must succeed."""
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, **options)
    if done.returncode:
        raise AssertionError(f"{' '.join(map(str, command))}\n{done.stdout}{done.stderr}")
    return done.stdout


def has_runtime():
    return "NDMESH_RUNTIME:BOOL=ON" in (BUILD / "CMakeCache.txt").read_text()


def stated_headers():
    """The public headers by cmake/NdmeshPublicHeaders.cmake, and those that need libtorch of them."""
    text = (ROOT / "cmake/NdmeshPublicHeaders.cmake").read_text()
    planner, runtime = (set(re.search(rf"NDMESH_{area}_HEADERS([^)]*)", text)[1].split()) for area in ("PLANNER", "RUNTIME"))
    return planner, runtime


def with_included(headers):
    """The headers of src/ndmesh that `headers` include, directly or not, and they themselves."""
    todo, found = list(headers), set()
    while todo:
        header = todo.pop()
        if header not in found:
            found.add(header)
            text = (ROOT / "src/ndmesh" / header).read_text()
            todo += re.findall(r'^#include "ndmesh/([^"]+)"', text, re.MULTILINE)
    return found


class Installed:
    """`cmake --install` of a built preset into a temporary folder, gone at the end of the with-block."""

    def __enter__(self):
        self._folder = tempfile.TemporaryDirectory(prefix="ndmesh-install-")
        self.folder = pathlib.Path(self._folder.name)
        self.prefix = self.folder / "prefix"
        run("cmake", "--install", BUILD, "--prefix", self.prefix)
        return self

    def __exit__(self, *error):
        self._folder.cleanup()

    def headers(self):
        root = self.prefix / "include/ndmesh"
        return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}

    def configure(self, project, *options):
        """Configures a project that says find_package(ndmesh); its messages, and its build folder."""
        build = self.folder / f"build-{project.name}"
        said = run("cmake", "-G", "Ninja", "-S", project, "-B", build, f"-DCMAKE_PREFIX_PATH={self.prefix}",
                   "-DCMAKE_CXX_COMPILER=g++", *options)
        return said, build

    def build(self, project, *options):
        """The build folder of a project, built."""
        _, build = self.configure(project, *options)
        run("cmake", "--build", build, "-j2")
        return build
