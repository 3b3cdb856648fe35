"""clang-tidy 14, with the checks of .clang-tidy, finds nothing in src/."""

import concurrent.futures
import subprocess
import unittest

import compiling
import sources


def tidy(path, database):
    done = subprocess.run(["clang-tidy-14", "--quiet", "-p", str(database), str(path)], capture_output=True, text=True)
    return done.stdout if "warning:" in done.stdout or done.returncode else ""


class Tidy(unittest.TestCase):
    def test_sources(self):
        database = compiling.write_lint_commands()
        paths = list(sources.files(".cpp", under="src"))
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            found = "".join(pool.map(lambda path: tidy(path, database), paths))
        self.assertEqual(found, "")


if __name__ == "__main__":
    unittest.main()
