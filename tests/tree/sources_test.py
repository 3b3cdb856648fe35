"""Order of includes, lengths and other rules of CONTRIBUTING.md that a script can see."""

import re
import unittest

import sources

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 80
CMAKE = (sources.ROOT / "src/ndmesh/CMakeLists.txt").read_text()


def wrong_includes(folder, in_runtime, text, layers):
    """The includes of a source in src/ndmesh/FOLDER that its place in the order of folders does not allow."""
    if folder == "cli":  # on top of all: its runtime commands may use everything, the others what needs no libtorch
        allowed = {name for name, (_, torch) in layers.items() if in_runtime or not torch} | {"cli"}
        torch = in_runtime
    else:
        allowed, torch = layers[folder]
    for include in sources.includes(text):
        parts = include.split("/")
        if include == "torch/torch.h" or (sources.is_torch(include) and not torch):
            yield include
        elif parts[0] == "ndmesh" and parts[1] not in allowed:
            yield include


class Includes(unittest.TestCase):
    layers = sources.layers(CMAKE)

    def test_folders_include_only_folders_above(self):
        for path in sources.files(".h", ".cpp", under="src/ndmesh"):
            parts = path.relative_to(sources.ROOT / "src/ndmesh").parts
            wrong = list(wrong_includes(parts[0], "runtime" in parts, path.read_text(), self.layers))
            self.assertEqual(wrong, [], f"{sources.name_of(path)} may not include these")

    def test_a_wrong_include_is_seen(self):
        self.assertEqual(list(wrong_includes("mesh", False, '#include "ndmesh/plan/memory.h"\n', self.layers)),
                         ["ndmesh/plan/memory.h"])
        self.assertEqual(list(wrong_includes("plan", False, "#include <ATen/core/Tensor.h>\n", self.layers)),
                         ["ATen/core/Tensor.h"])
        self.assertEqual(list(wrong_includes("nn", False, '#include "ndmesh/comm/group.h"\n', self.layers)),
                         ["ndmesh/comm/group.h"])
        self.assertEqual(list(wrong_includes("train", False, "#include <torch/torch.h>\n", self.layers)),
                         ["torch/torch.h"])

    def test_the_umbrella_header_of_torch_is_nowhere(self):
        for path in sources.cpp_files():
            self.assertNotIn("torch/torch.h", sources.includes(path.read_text()), sources.name_of(path))

    def test_own_includes_start_at_the_root(self):
        for path in sources.files(".h", ".cpp", under="src"):
            quoted = re.findall(r'^#include "([^"]+)"', path.read_text(), re.MULTILINE)
            self.assertEqual([name for name in quoted if not (sources.ROOT / "src" / name).is_file()], [],
                             sources.name_of(path))

    def test_headers_are_included_once(self):
        for path in sources.cpp_files():
            if path.suffix == ".h":
                self.assertEqual(path.read_text().count("#pragma once"), 1, sources.name_of(path))


class Lengths(unittest.TestCase):
    def test_files(self):
        scripts = [sources.ROOT / name for name in ("quickstart", "test", ".ci/run")]
        for path in [*sources.cpp_files(), *sources.files(".py", ".sh"), *scripts]:
            self.assertLessEqual(path.read_text().count("\n"), MAX_FILE_LINES, sources.name_of(path))

    def test_functions(self):
        for path in sources.cpp_files():
            for lines, first, header in sources.function_lengths(path.read_text()):
                self.assertLessEqual(lines, MAX_FUNCTION_LINES, f"{sources.name_of(path)}:{first} {header}")

    def test_functions_are_measured(self):
        text = """namespace a {
struct S {
  explicit S(int x) : x_{x} {
    f();
  }
  int g() const { return 1'000'000; }  // {
  int x_;
};
const std::vector<int> table = {
    1, 2,
};
bool operator==(const S& a, const S& b) {
  return all_of(a, [](int i) {
    return i == '{';
  });
}
}  // namespace a
"""
        self.assertEqual([(lines, first) for lines, first, _ in sources.function_lengths(text)],
                         [(3, 3), (1, 6), (5, 12)])


class Text(unittest.TestCase):
    def test_no_path_of_one_machine(self):
        pattern = re.compile(r"(?<![\w.$}])/(?:work|home|root|tmp/w)/")
        for path in sources.files():
            try:
                text = path.read_text()
            except UnicodeDecodeError:
                continue  # data
            found = [line for line in text.splitlines() if pattern.search(line)]
            self.assertEqual(found if path.name != "sources_test.py" else [], [], sources.name_of(path))

    def test_lines_are_not_too_long(self):
        for path in sources.files(".cpp", ".h", ".py", ".sh", ".cmake", ".txt"):
            if "data" not in path.parts:
                long = [line for line in path.read_text().splitlines() if len(line) > 130]
                self.assertEqual(long, [], sources.name_of(path))


if __name__ == "__main__":
    unittest.main()
