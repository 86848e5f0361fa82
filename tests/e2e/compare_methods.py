"""Prints a table of attention methods on one seeded document.

    python tests/e2e/compare_methods.py [--model smollm2] [--kind json|lookup] [--tokens 5000]
        [--seed 1] [--steps 200] [--share 0.03125] [--json]
"""

import argparse
import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "examples"))

import documents  # noqa: E402
import metrics  # noqa: E402
import reference  # noqa: E402
from worker import KvCache, load_model  # noqa: E402

COLUMNS = ("kl", "agreement", "nll_rise", "recall", "mass_lost", "tokens_touched_share")


def run(args) -> dict:
    model = load_model(args.model)
    make = documents.text2json if args.kind == "json" else documents.lookup
    document = make(args.seed, args.tokens, lambda text: len(model.tokenizer.encode(text)))
    head, question, answer = document.prompt_parts(model.tokenizer)
    prompt, answer = head + question, answer[:args.steps]
    sys.stderr.write(f"prefill of {len(prompt)} tokens\n")
    cache = KvCache(model.config)
    first, queries = reference.prefill_with_queries(model, prompt, cache, len(prompt) // 100)
    full = metrics.full_answer_logits(model, cache, first, answer)
    options = {"share": args.share}
    methods = {
        "exact top-k": lambda: reference.ExactTopK(cache, **options),
        "yakv": lambda: reference.Yakv(cache, **options),
        "chunk means, 8": lambda: reference.ChunkMeans(cache, **options),
        "quest, 16": lambda: reference.Quest(cache, **options),
        "nacl, dropped": lambda: reference.NaclDrop(cache, queries),
    }
    rows = {}
    for name, build in methods.items():
        sys.stderr.write(f"{name}: {len(answer)} steps\n")
        rows[name] = metrics.evaluate(model, cache, first, answer, build(), full)
    return {"model": args.model, "kind": args.kind, "seed": args.seed, "prompt": len(prompt),
            "steps": len(answer), "methods": rows}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2")
    parser.add_argument("--kind", choices=("json", "lookup"), default="json")
    parser.add_argument("--tokens", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--share", type=float, default=0.03125)
    parser.add_argument("--json", action="store_true")
    result = run(parser.parse_args())
    if "--json" in sys.argv:
        print(json.dumps(result))
        return
    print(f"{'method':<16}" + "".join(f"{name:>22}" for name in COLUMNS))
    for name, row in result["methods"].items():
        print(f"{name:<16}" + "".join(f"{row[column]:>22.4f}" for column in COLUMNS))


if __name__ == "__main__":
    main()
