"""python -m worker chat "Question" [--model NAME|FILE.gguf] [--tokens N] [--system TEXT]"""

import argparse
import sys
import time

from . import KvCache, WeightsError, load_model
from .weights import MODELS, fetch


def main() -> int:
    parser = argparse.ArgumentParser(prog="worker", description="a reference worker in NumPy")
    commands = parser.add_subparsers(dest="command", required=True)
    chat = commands.add_parser("chat", help="answer one question, greedily")
    chat.add_argument("question")
    chat.add_argument("--model", default="smollm2", help="%s or a GGUF file" % ", ".join(MODELS))
    chat.add_argument("--tokens", type=int, default=200, help="longest answer")
    chat.add_argument("--system", help="system prompt, instead of the model's own")
    get = commands.add_parser("fetch", help="download a model's weights into the cache")
    get.add_argument("name", choices=MODELS)
    args = parser.parse_args()
    try:
        if args.command == "fetch":
            print(fetch(args.name))
        else:
            answer(args)
    except (WeightsError, ValueError) as error:
        sys.stderr.write(f"worker: {error}\n")
        return 1
    return 0


def answer(args) -> None:
    model = load_model(args.model)
    prompt = model.tokenizer.chat_prompt(args.question, args.system)
    started, ids, shown = time.monotonic(), [], ""
    for token in model.generate(prompt, KvCache(model.config), args.tokens):
        ids.append(token)
        text = model.tokenizer.decode(ids)
        if not text.endswith("\ufffd"):  # not in the middle of a character
            print(text[len(shown):], end="", flush=True)
            shown = text
    seconds = time.monotonic() - started
    print()
    speed = f"{len(ids) / seconds:.1f} a second"
    sys.stderr.write(f"{len(prompt)} tokens in, {len(ids)} out, {speed}\n")


if __name__ == "__main__":
    sys.exit(main())
