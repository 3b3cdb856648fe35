"""All C++ is as clang-format 14 would write it."""

import subprocess
import unittest

import sources


class Format(unittest.TestCase):
    def test_clang_format(self):
        paths = [str(path) for path in sources.cpp_files()]
        done = subprocess.run(["clang-format-14", "--dry-run", "--Werror", *paths], capture_output=True, text=True)
        wrong = sorted({line.split(":")[0] for line in done.stderr.splitlines() if "clang-format-violations" in line})
        self.assertEqual(done.returncode, 0, f"Run clang-format-14 -i {' '.join(wrong)}\n{done.stderr[:2000]}")


if __name__ == "__main__":
    unittest.main()
