"""Documents name only what exists: links, commands, job files and job keys."""

import re
import subprocess
import unittest

import sources

NDMESH = sources.ROOT / "build" / sources.PRESET / "ndmesh"


def documents():
    return [path for path in sources.files(".md") if "data" not in path.parts]


def anchors(text):
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.DOTALL), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path, text):
    """The relative links of a page that lead to no file, or to no heading of it."""
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = (path.parent / name).resolve() if name else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            yield link


def command_lines(text):
    """The lines of a page's sh blocks, continued lines joined, comments cut off."""
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        for line in block.replace("\\\n", " ").splitlines():
            yield line.split(" #")[0].strip()


def is_command(name):
    done = subprocess.run([NDMESH, name, "--help"], capture_output=True, text=True)
    return done.returncode == 0 and f"Usage: ndmesh {name}" in done.stdout


def job_keys(text):
    """The dotted keys of a job file as the examples are written: sections, each on one line or as an indented block."""
    section = None
    for line in text.splitlines():
        line = line.split("#")[0].rstrip()
        if match := re.match(r"(\w+): *(.*)$", line):
            section = match[1]
            line = match[2].strip("{}")
        for key in re.findall(r"(?:^|[ ,{])(\w+):", line):
            yield f"{section}.{key}"


class Documents(unittest.TestCase):
    def test_links_resolve(self):
        for path in documents():
            self.assertEqual(list(broken_links(path, path.read_text())), [], sources.name_of(path))

    def test_a_broken_link_is_seen(self):
        page = sources.ROOT / "README.md"
        self.assertEqual(list(broken_links(page, "[a](docs/none.md) [b](#two-commands) [c](#none)")),
                         ["docs/none.md", "#none"])

    def test_commands_exist(self):
        for path in documents():
            for line in command_lines(path.read_text()):
                for script in re.findall(r"(?:^|\s)(\./[\w./-]+|\.ci/\w+)", line):
                    self.assertTrue((sources.ROOT / script).exists(), f"{sources.name_of(path)}: {line}")
                for job in re.findall(r"\bexamples/[\w.-]+", line):
                    self.assertTrue((sources.ROOT / job).exists(), f"{sources.name_of(path)}: {line}")

    def test_subcommands_exist(self):
        seen = set()
        for path in documents():
            for line in command_lines(path.read_text()):
                if match := re.match(r"(?:build/\w+/)?ndmesh ([a-z]+)", line):
                    seen.add((sources.name_of(path), match[1]))
        for page, command in sorted(seen):
            self.assertTrue(is_command(command), f"{page}: ndmesh {command}")
        self.assertFalse(is_command("nothing"))


def job_files():
    return [path for path in sources.files(".yaml", under="examples") if path.parent.name == "examples"]


class Jobs(unittest.TestCase):
    def test_keys_of_the_examples_are_in_the_reference(self):
        reference = (sources.ROOT / "docs/job-reference.md").read_text()
        for path in job_files():
            keys = list(job_keys(path.read_text()))
            self.assertGreater(len(keys), 5, sources.name_of(path))
            for key in keys:
                key = "cluster" if key.startswith("cluster.") else key  # one key, whose value may be a mapping
                self.assertIn(f"`{key}`", reference, sources.name_of(path))

    def test_examples_are_read(self):
        for path in job_files():
            overrides = ["model.path=tests/data/oracle/llama"] if "model: {path" in path.read_text() else []
            done = subprocess.run([NDMESH, "inspect", "mesh", str(path), *overrides, "--json"], cwd=sources.ROOT,
                                  capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{sources.name_of(path)}: {done.stderr}")

    def test_cluster_examples_are_read(self):
        files = list(sources.files(".yaml", under="examples/clusters"))
        self.assertGreater(len(files), 0)
        for path in files:
            done = subprocess.run([NDMESH, "inspect", "cluster", str(path), "--json"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, f"{sources.name_of(path)}: {done.stderr}")


class Library(unittest.TestCase):
    def test_the_page_lists_the_public_headers(self):
        stated = re.findall(r"^    ([\w/]+\.h)\)?$", (sources.ROOT / "cmake/NdmeshPublicHeaders.cmake").read_text(), re.MULTILINE)
        self.assertGreater(len(stated), 20)
        listed = re.findall(r"^\| `ndmesh/([\w/]+\.h)` \|", (sources.ROOT / "docs/library.md").read_text(), re.MULTILINE)
        self.assertEqual(sorted(listed), sorted(stated))


if __name__ == "__main__":
    unittest.main()
