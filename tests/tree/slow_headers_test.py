"""Each header compiles alone, without the precompiled header: it includes what it uses."""

import concurrent.futures
import unittest

import compiling
import sources


class Headers(unittest.TestCase):
    def test_each_header_compiles_alone(self):
        flags = compiling.flags_by_folder()
        headers = [path for path in sources.files(".h", under="src/ndmesh")]
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            for path, errors in zip(headers, pool.map(lambda path: compiling.compile_alone(path, flags), headers)):
                self.assertEqual(errors, "", sources.name_of(path))


if __name__ == "__main__":
    unittest.main()
