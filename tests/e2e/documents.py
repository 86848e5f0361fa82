"""Seeded documents with known answers, to measure what an attention method loses.

`text2json`  records scattered in prose, to be extracted as a JSON list: needs many facts at once
`lookup`     key-value lines, of which a few are asked for: needs few facts, exactly
`prose`      prose alone, with a question about its gist and no gold answer

The same seed and arguments give the same document, whatever the machine.
"""

import json
import random
import re
from dataclasses import dataclass, field

import vocabulary as words

SLOT = re.compile(r"\b[A-Z_]{4,}\b")


@dataclass(frozen=True)
class Document:
    """A document, a question about it, and the gold answer."""

    kind: str       # "json", "lookup" or "prose"
    seed: int
    text: str
    question: str
    answer: str     # gold answer: JSON without line breaks; empty for prose
    records: list = field(default_factory=list)  # what the answer says, as dicts

    def prompt_parts(self, tokenizer):
        """(document ids, question ids, answer ids): a chat prompt in three parts.

        The document's part is what workers share; the question's part ends where the answer
        begins.  Parts are encoded apart, so that the first is the same whatever is asked.
        """
        marker = "\0"
        head, tail = tokenizer.chat_text(marker).split(marker)
        return (tokenizer.encode(f"{head}{self.text}\n\n", bos=True),
                tokenizer.encode(self.question + tail), tokenizer.encode(self.answer))


def estimate_tokens(text: str) -> int:
    """A rough count where no tokenizer is at hand: words and marks, digits singly."""
    return len(re.findall(r"\d|[^\W\d]{1,7}|[^\w\s]", text))


def text2json(seed: int, tokens: int = 5000, count_tokens=estimate_tokens, records: int = 24,
              schema: str = None) -> Document:
    """Prose of about `tokens` tokens with `records` records; `schema`: one of words.SCHEMAS."""
    rng = random.Random(f"text2json {seed}")
    schema = schema or rng.choice(sorted(words.SCHEMAS))
    plan = words.SCHEMAS[schema]
    found = _records(rng, schema, records)
    told = [_tell(rng, plan, record) for record in found]
    budget = tokens - sum(count_tokens(" " + sentence) for sentence in told)
    sentences = _sentences(rng, budget, count_tokens)
    if len(sentences) < records:
        raise ValueError(f"{tokens} tokens are too few for {records} records")
    places = sorted(rng.sample(range(len(sentences)), records), reverse=True)
    for place, sentence in zip(places, reversed(told)):
        sentences.insert(place, sentence)
    question = (f"Extract {plan['what']} from the text above as a JSON list of objects with the "
                f"keys {', '.join(plan['fields'])}, in the order of the text. Answer with the "
                f"JSON alone.")
    return Document("json", seed, _paragraphs(rng, sentences), question, json.dumps(found), found)


def lookup(seed: int, tokens: int = 5000, count_tokens=estimate_tokens,
           asked: int = 12) -> Document:
    """Lines of keys and values filling about `tokens` tokens; `asked` keys are asked for."""
    rng = random.Random(f"lookup {seed}")
    pairs, total, lines = {}, 0, []
    while total < tokens:
        key = f"{rng.choice(words.ADJECTIVES)}-{rng.choice(words.THINGS)}-{rng.randint(10, 99)}"
        if key in pairs:
            continue
        pairs[key] = str(rng.randint(100000, 999999))
        lines.append(f"{key}: {pairs[key]}")
        total += count_tokens(lines[-1] + "\n")
    keys = rng.sample(list(pairs), asked)
    gold = {key: pairs[key] for key in keys}
    question = (f"Give the values of these keys from the list above as one JSON object, in this "
                f"order: {', '.join(keys)}. Answer with the JSON alone.")
    records = [{"key": key, "value": value} for key, value in gold.items()]
    return Document("lookup", seed, "\n".join(lines), question, json.dumps(gold), records)


def prose(seed: int, tokens: int = 5000, count_tokens=estimate_tokens) -> Document:
    """Prose of about `tokens` tokens."""
    rng = random.Random(f"prose {seed}")
    text = _paragraphs(rng, _sentences(rng, tokens, count_tokens))
    return Document("prose", seed, text, "Summarize the text above in three sentences.", "")


def score_extraction(answer: str, document: Document) -> float:
    """The share of gold records that a free answer, as JSON, holds exactly."""
    start = answer.find("[" if document.kind == "json" else "{")
    try:
        told, _ = json.JSONDecoder().raw_decode(answer[start:]) if start >= 0 else ([], 0)
    except ValueError:  # cut short: take the whole objects before the cut
        told = [json.loads(part) for part in re.findall(r"\{[^{}]*\}", answer) if _is_json(part)]
    if isinstance(told, dict):
        told = [{"key": key, "value": str(value)} for key, value in told.items()]
    hits = sum(1 for record in document.records if record in told)
    return hits / len(document.records) if document.records else 0.0


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _records(rng, schema: str, count: int) -> list:
    """`count` records that differ in their code and in whom or what they are about."""
    names = [f"{first} {last}" for first in words.FIRST_NAMES for last in words.LAST_NAMES]
    names = rng.sample(names, count)
    codes = rng.sample(range(1000, 10000), count)
    found = []
    for name, code in zip(names, codes):
        letters = "".join(rng.choice("BCDFGHJKLMNPRSTVWXZ") for _ in range(2))
        code = f"{letters}-{code}"
        if schema == "staff":
            values = (name, rng.choice(words.ROLES), rng.choice(words.CITIES),
                      rng.randint(1985, 2024), code)
        elif schema == "cargo":
            values = (rng.choice(words.SHIPS), rng.choice(words.GOODS), rng.randint(3, 900),
                      rng.choice(words.CITIES), code)
        else:
            values = (rng.choice(words.PLANTS), name, rng.choice(words.CITIES),
                      rng.randint(4, 180), code)
        found.append(dict(zip(words.SCHEMAS[schema]["fields"], values)))
    return found


def _tell(rng, plan: dict, record: dict) -> str:
    role = str(record.get("role", ""))
    article = "an" if role[:1] in "aeiou" else "a"
    return rng.choice(plan["sentences"]).format(a_role=f"{article} {role}", **record)


def _sentences(rng, tokens: int, count_tokens) -> list:
    """Sentences of about `tokens` tokens in all; the same one does not come twice in a row."""
    result, total, last = [], 0, None
    while total < tokens:
        template = rng.choice(words.SENTENCES)
        if template == last:
            continue
        last = template
        sentence = SLOT.sub(lambda m: rng.choice(getattr(words, m.group())), template)
        sentence = re.sub(r"\ba (?=[aeiou])", "an ", sentence)
        result.append(sentence[0].upper() + sentence[1:])
        total += count_tokens(" " + result[-1])
    return result


def _paragraphs(rng, sentences: list) -> str:
    paragraphs, start = [], 0
    while start < len(sentences):
        stop = start + rng.randint(4, 9)
        paragraphs.append(" ".join(sentences[start:stop]))
        start = stop
    return "\n\n".join(paragraphs)
