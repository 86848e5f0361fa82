"""The quick fidelity run: a short document, SmolLM2, a real daemon. `python tests/e2e/test_fidelity.py`"""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
FIELDS = {"model", "document", "method", "budget", "kl", "agreement", "dnll", "recall", "mass_lost",
          "output_error", "bytes_per_step"}


class QuickFidelity(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            rows, plot = Path(folder, "rows.json"), Path(folder, "plot.svg")
            cls.outcome = subprocess.run(
                [str(HERE / "fidelity"), "--quick", "--json", str(rows), "--plot", str(plot)],
                capture_output=True, text=True, env=os.environ, check=False)
            cls.rows = json.loads(rows.read_text()) if rows.exists() else []
            cls.plot = plot.read_text() if plot.exists() else ""
        cls.by = {(r["method"], r["budget"]): r for r in cls.rows}

    def test_no_goal_is_missed(self):
        self.assertEqual(self.outcome.returncode, 0, self.outcome.stdout + self.outcome.stderr)
        self.assertNotIn("GOAL MISSED", self.outcome.stdout)

    def test_rows_say_all_that_a_script_reads(self):
        self.assertGreaterEqual(len(self.rows), 5)
        for row in self.rows:
            self.assertLessEqual(FIELDS, set(row))

    def test_the_rest_is_ten_times_closer_than_exact_selection(self):
        rest, exact = self.by["cairn-2b+rest", 0.03125], self.by["exact-topk", 0.03125]
        self.assertLess(rest["kl"] * 10, exact["kl"])

    def test_landmarks_of_tokens_find_what_chunk_means_do_not(self):
        token, chunk = self.by["cairn-2b", 0.03125], self.by["chunk-mean", 0.03125]
        self.assertGreater(token["recall"], 2 * chunk["recall"])
        self.assertLess(token["mass_lost"], chunk["mass_lost"])

    def test_what_is_demoted_keeps_the_answer_that_dropping_loses(self):
        drop = self.by["nacl-drop", 0.2]
        demote, rest = (self.by[name, 0.2 + 0.03125] for name in ("nacl-demote", "nacl-demote+rest"))
        self.assertGreater(drop["kl"], 20 * demote["kl"])
        self.assertGreater(demote["agreement"], drop["agreement"] + 0.1)
        self.assertLess(rest["kl"], demote["kl"])

    def test_the_error_bar_of_the_mass_covers_and_is_not_wide(self):
        for method in ("cairn-2b", "cairn-2b+rest"):
            row = self.by[method, 0.03125]
            self.assertGreaterEqual(row["mass_coverage"], 0.93)
            self.assertGreater(row["mass_gap"], 0)
            self.assertLessEqual(row["mass_bar"], 2 * row["mass_gap"])

    def test_the_plot_shows_every_method(self):
        for method in {r["method"] for r in self.rows} - {"full"}:
            self.assertIn(f">{method}</text>", self.plot)


if __name__ == "__main__":
    unittest.main()
