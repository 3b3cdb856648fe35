"""The planner as an installed library: what is installed, a program that uses it, what is refused."""

import json
import re
import unittest

import installed
from installed import ROOT, run

CONSUMER = ROOT / "tests/consumer"


class Planner(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = cls.enterClassContext(installed.Installed())

    def test_public_headers_and_what_they_include_are_installed(self):
        planner, runtime = installed.stated_headers()
        expected = planner | runtime if installed.has_runtime() else planner
        self.assertEqual(self.tree.headers(), installed.with_included(expected))

    def test_headers_need_only_the_standard_library_and_libtorch(self):
        planner, _ = installed.stated_headers()
        without_torch = installed.with_included(planner)
        for header in self.tree.headers():
            text = (self.tree.prefix / "include/ndmesh" / header).read_text()
            foreign = re.findall(r"^#include <(\w+)/", text, re.MULTILINE)
            allowed = set() if header in without_torch else {"ATen", "c10", "torch"}
            self.assertEqual(set(foreign) - allowed, set(), header)

    def test_the_program_runs(self):
        self.assertIn("dp_shard=2", run(self.tree.prefix / "bin/ndmesh", "inspect", "mesh", "--mesh", "dp_shard=2"))

    def test_a_consumer_plans_as_the_program_does(self):
        headers = installed.with_included(installed.stated_headers()[0])
        build = self.tree.build(CONSUMER, "-DCOMPONENT=planner", "-DHEADERS=" + ";".join(headers))
        said = run(build / "consumer")
        plan = json.loads(run(self.tree.prefix / "bin/ndmesh", "plan", "llama-3-8b", "cluster=2x8xH100-SXM", "--json"))
        mesh = ",".join(f"{axis}={size}" for axis, size in plan["plans"][0]["mesh"].items() if size > 1)
        self.assertIn(f"best: {mesh}\n", said)
        self.assertIn("refused: 2 problems", said)
        self.assertIn("batch.global", said)

    def test_what_cannot_be_found_is_said(self):
        wrong = self.tree.folder / "wrong"
        (wrong / "lib").mkdir(parents=True)
        (wrong / "version.py").write_text("__version__ = '1.0.0+cpu'\n")
        (wrong / "lib/libtorch_cpu.so").touch()
        said, _ = self.tree.configure(CONSUMER / "refusals", f"-DNDMESH_TORCH={wrong}")
        messages = dict(re.findall(r"^-- (\w+): (.*)$", said, re.MULTILINE))
        self.assertEqual(messages["unknown"], "ndmesh has no component wings: it has planner and runtime")
        if installed.has_runtime():
            self.assertRegex(messages["runtime"], r"is torch 1\.0\.0, but ndmesh was built with \d+\.\d+\.\d+: install")
        else:
            self.assertIn("was built with NDMESH_RUNTIME=OFF", messages["runtime"])
        self.assertEqual(messages["optional"], "found")
        self.assertEqual(messages["twice"], "found")
        self.assertNotEqual(messages["version"], "found")


if __name__ == "__main__":
    unittest.main()
