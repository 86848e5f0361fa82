"""How right an extracted list of records is: IoU over records by name, less for wrong attributes.

A record's *name* is the first of its fields whose gold values all differ (a person, a waybill).
Told and gold records pair by name, each once. A pair is worth

    1 - (MISSING * attributes that are missing + WRONG * attributes that are wrong) / attributes

where attributes are all fields but the name, and never less than 0; the score is the sum over pairs
over the number of different records, told or gold, in percent: 100 * sum / |told union gold|.
A record told twice, one that no gold record has, and one without a name each add to the union, and so
does a gold record that was not told. Values are compared as text, without case and double spaces.
"""

import json
import re

MISSING = 0.5  # an attribute left out: the reader sees that it is not there
WRONG = 1.0    # an attribute with another value: the reader is misled


def told_records(answer: str) -> list:
    """The objects of a JSON list in free text; of one that is cut short or broken, the whole ones."""
    start = answer.find("[")
    try:
        told = json.JSONDecoder().raw_decode(answer[start:])[0] if start >= 0 else []
    except ValueError:
        told = []
        for part in re.findall(r"\{[^{}]*\}", answer):
            try:
                told.append(json.loads(part))
            except ValueError:
                continue
    return [record for record in told if isinstance(record, dict)]


def name_field(gold: list) -> str:
    """The first field that tells all gold records apart."""
    for field in gold[0]:
        if len({_text(record[field]) for record in gold}) == len(gold):
            return field
    raise ValueError("no field tells the gold records apart")


def score(answer: str, gold: list) -> dict:
    """`score` in percent, with the counts that made it."""
    name = name_field(gold)
    by_name = {_text(record[name]): record for record in gold}
    paired, worth, missing, wrong, extra = set(), 0.0, 0, 0, 0
    for record in told_records(answer):
        key = _text(record.get(name, ""))
        if key not in by_name or key in paired:
            extra += 1
            continue
        paired.add(key)
        lacks, errs = _faults(record, by_name[key], name)
        missing, wrong = missing + lacks, wrong + errs
        attributes = len(by_name[key]) - 1
        worth += max(0.0, 1 - (MISSING * lacks + WRONG * errs) / attributes)
    return {"score": 100 * worth / (len(gold) + extra), "records": len(gold), "found": len(paired),
            "extra": extra, "missing_attributes": missing, "wrong_attributes": wrong}


def _faults(told: dict, gold: dict, name: str) -> tuple:
    missing = wrong = 0
    for field, value in gold.items():
        if field == name:
            continue
        if told.get(field) in (None, ""):
            missing += 1
        elif _text(told[field]) != _text(value):
            wrong += 1
    return missing, wrong


def _text(value) -> str:
    return " ".join(str(value).casefold().split())
