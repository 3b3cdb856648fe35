"""The runner counts what happened: failures, crashes, time-outs and programs that ran nothing."""

import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import run  # noqa: E402  # tests/run.py

PASSED = "[       OK ] Mesh.Groups (0 ms)"
FAILED = "[  FAILED  ] Mesh.Order, where GetParam() = 3 (12 ms)"
SUMMARY = "[  FAILED  ] 1 test, listed below:\n[  FAILED  ] Mesh.Order"


def counts(script, limit=10):
    result = run.run(run.Program("sample", ["bash", "-c", script], {}, limit))
    return result.passed, result.failed


class Runner(unittest.TestCase):
    def test_counts_tests_once(self):
        self.assertEqual(run.count_googletest("\n".join([PASSED, PASSED, FAILED, SUMMARY])), (2, 1, 0))
        self.assertEqual(run.count_unittest("Ran 7 tests in 0.1s\n\nFAILED (failures=2, errors=1, skipped=1)\n"), (3, 3, 1))
        self.assertEqual(run.count_unittest("Ran 1 test in 0.1s\n\nOK\n"), (1, 0, 0))

    def test_a_failure_is_not_counted_twice(self):
        self.assertEqual(counts(f"echo '{PASSED}'; echo '{FAILED}'; exit 1"), (1, 1))

    def test_a_crash_is_a_failure(self):
        self.assertEqual(counts(f"echo '{PASSED}'; kill -SEGV $$"), (1, 1))

    def test_a_failing_exit_is_a_failure(self):
        self.assertEqual(counts(f"echo '{PASSED}'; exit 66"), (1, 1))

    def test_running_out_of_time_is_a_failure(self):
        self.assertEqual(counts(f"echo '{PASSED}'; exec sleep 5", limit=0.2), (1, 1))

    def test_running_nothing_is_a_failure(self):
        self.assertEqual(counts("true"), (0, 1))


if __name__ == "__main__":
    unittest.main()
