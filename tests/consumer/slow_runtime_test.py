"""The runtime as an installed library: every public header compiles, and the example trains a model of one's own."""

import re
import tempfile
import unittest

import installed
from installed import ROOT, run


@unittest.skipUnless(installed.has_runtime(), "built without the runtime")
class Runtime(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.tree = cls.enterClassContext(installed.Installed())

    def test_every_header_compiles(self):
        self.tree.build(ROOT / "tests/consumer", "-DCOMPONENT=runtime", "-DHEADERS=" + ";".join(self.tree.headers()))

    def test_the_example_trains_on_any_number_of_ranks(self):
        build = self.tree.build(ROOT / "examples/own_model")
        losses = []
        for ranks in ("1", "2", "3"):
            with tempfile.TemporaryDirectory() as folder:
                said = run(build / "own_model", ranks, cwd=folder)
            losses.append([float(loss) for loss in re.findall(r"loss (\S+)", said)])
            self.assertGreater(float(re.search(r"safetensors: (\S+) %", said)[1]), 90, said)
        self.assertEqual(len(losses[0]), 4)
        for loss in zip(*losses):  # in float32, printed to four places
            self.assertLess(max(loss) - min(loss), 1e-3)


if __name__ == "__main__":
    unittest.main()
