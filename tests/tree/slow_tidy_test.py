"""clang-tidy 14, with the checks of .clang-tidy, finds nothing in src/. A source that came out clean is not read again until it,
a header that it includes or the checks change: reading them all takes the better part of an hour."""

import concurrent.futures
import hashlib
import subprocess
import unittest

import compiling
import sources


def key_of(arguments):
    """A hash of all that clang-tidy reads: the source with its headers and comments, and the checks."""
    text = subprocess.run([*arguments, "-E", "-C", "-P"], capture_output=True, check=True).stdout
    return hashlib.sha256((sources.ROOT / ".clang-tidy").read_bytes() + text).hexdigest()


def tidy(path, database, arguments):
    """What clang-tidy says of a source; empty when it finds nothing."""
    clean = database / "clean" / key_of(arguments)
    if clean.exists():
        return ""
    done = subprocess.run(["clang-tidy-14", "--quiet", "-p", str(database), str(path)], capture_output=True, text=True)
    if "warning:" in done.stdout or done.returncode:
        return done.stdout or done.stderr
    clean.parent.mkdir(exist_ok=True)
    clean.write_text(sources.name_of(path))
    return ""


class Tidy(unittest.TestCase):
    def test_sources(self):
        database, arguments = compiling.write_lint_commands()
        paths = list(sources.files(".cpp", under="src"))
        with concurrent.futures.ThreadPoolExecutor(max_workers=2) as pool:
            found = "".join(pool.map(lambda path: tidy(path, database, arguments[str(path)]), paths))
        self.assertEqual(found, "")


if __name__ == "__main__":
    unittest.main()
