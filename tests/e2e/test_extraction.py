"""The score of extracted records, and the guesses of free generation. `python tests/e2e/test_extraction.py`"""

import json
import os
import sys
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("client/python", "client/examples", "tests/e2e")]

import extraction

GOLD = [{"name": "Ada Moss", "role": "clerk", "city": "Lyon", "year": 1999, "badge": "BC-1234"},
        {"name": "Ben Rook", "role": "clerk", "city": "Oslo", "year": 2001, "badge": "DF-5678"}]


def score_of(records):
    return extraction.score(json.dumps(records), GOLD)["score"]


def changed(**attributes):
    return [{**GOLD[0], **attributes}, GOLD[1]]


class Score(unittest.TestCase):
    def test_the_gold_answer_is_worth_a_hundred(self):
        self.assertEqual(score_of(GOLD), 100)
        self.assertEqual(score_of(GOLD[::-1]), 100)

    def test_fences_case_and_numbers_as_text_do_not_matter(self):
        told = changed(year="1999", role=" Clerk ")
        self.assertEqual(extraction.score(f"Here:\n```json\n{json.dumps(told, indent=2)}\n```", GOLD)["score"], 100)

    def test_a_record_not_told_costs_its_share(self):
        self.assertEqual(score_of(GOLD[:1]), 50)
        self.assertEqual(score_of([]), 0)
        self.assertEqual(extraction.score("I cannot.", GOLD)["score"], 0)

    def test_an_invented_or_repeated_record_adds_to_the_union(self):
        self.assertAlmostEqual(score_of([*GOLD, {"name": "Cy Nobody"}]), 200 / 3)
        self.assertAlmostEqual(score_of([*GOLD, GOLD[0]]), 200 / 3)
        self.assertAlmostEqual(score_of([*GOLD, {"badge": "BC-1234"}]), 200 / 3)

    def test_a_wrong_attribute_costs_twice_a_missing_one(self):
        wrong = score_of(changed(city="Rome"))
        missing = score_of([{k: v for k, v in GOLD[0].items() if k != "city"}, GOLD[1]])
        self.assertAlmostEqual(100 - wrong, 100 * extraction.WRONG / 4 / 2)
        self.assertAlmostEqual(100 - missing, 100 * extraction.MISSING / 4 / 2)
        self.assertEqual(score_of(changed(city="")), missing)

    def test_no_pair_is_worth_less_than_nothing(self):
        self.assertEqual(score_of(changed(role="x", city="x", year=1, badge="x")), 50)

    def test_an_answer_cut_short_counts_its_whole_records(self):
        text = json.dumps(GOLD)
        result = extraction.score(text[:len(text) - 20], GOLD)
        self.assertEqual((result["score"], result["found"]), (50, 1))

    def test_what_is_no_object_does_not_count(self):
        self.assertEqual(extraction.score('["Ada Moss", 3]', GOLD)["extra"], 0)

    def test_the_name_is_the_first_field_that_tells_all_apart(self):
        self.assertEqual(extraction.name_field(GOLD), "name")
        self.assertEqual(extraction.name_field([{"ship": "Tern", "waybill": 1}, {"ship": "Tern", "waybill": 2}]),
                         "waybill")
        with self.assertRaises(ValueError):
            extraction.name_field([{"a": 1}, {"a": 1}])


@unittest.skipUnless(os.environ.get("CAIRN_LIBRARY"), "libcairn is not built")
class Guesses(unittest.TestCase):
    def setUp(self):
        import generate
        self.generate = generate

    def test_what_followed_before_is_guessed(self):
        told = [1, 2, 3, 4, 5, 1, 2, 3]
        self.assertEqual(self.generate.guess(told, [])[:2], [4, 5])
        self.assertEqual(self.generate.guess([7, 8, 9], [[6, 7, 8, 9, 10, 11]]), [10, 11])

    def test_nothing_is_guessed_from_what_never_came(self):
        self.assertEqual(self.generate.guess([1, 2], [[1, 2, 3]]), [])
        self.assertEqual(self.generate.guess([1, 2, 3], [[4, 5, 6]]), [])

    def test_answers_do_not_depend_on_guesses(self):
        """A model that counts down from what it was told: any guess yields the same tokens."""
        way = Counted()
        alone = self.generate.write(Countdown(), [20], 5, way, [], 50)
        guessed = self.generate.write(Countdown(), [20], 5, Counted(), [[20, 19, 18, 17, 16, 3, 2]], 50)
        self.assertEqual(alone, list(range(20, 0, -1)))
        self.assertEqual(guessed, alone)
        self.assertEqual(way.length, len(alone))


class Counted:
    """An attention that counts the tokens that it holds."""

    def __init__(self):
        self.length, self.attention = 0, self

    def attend_batch(self, count):
        self.length += count

    def forget(self, steps):
        self.length -= steps


class Countdown:
    """After token n comes n - 1; 0 ends."""

    class tokenizer:
        stop_ids = {0}

    def forward(self, tokens, position, attend_batch, logits):
        import numpy as np
        assert position == 5 + attend_batch.__self__.length
        attend_batch(len(tokens))
        return np.eye(32, dtype=np.float32)[[token - 1 for token in tokens]]


if __name__ == "__main__":
    unittest.main()
