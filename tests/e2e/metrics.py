"""How far a method's next-token distributions are from full attention's, on a gold answer."""

import time

import numpy as np


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Over the last axis, in fp64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def kl_divergence(full: np.ndarray, other: np.ndarray) -> float:
    """Mean over rows of KL(full || other), in nats; logits [n][vocab]."""
    p, q = log_softmax(full), log_softmax(other)
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def agreement(full: np.ndarray, other: np.ndarray) -> float:
    """Share of rows with the same best token."""
    return float((full.argmax(-1) == other.argmax(-1)).mean())


def answer_nll(logits: np.ndarray, answer) -> float:
    """Mean negative log-likelihood of the answer's tokens, in nats."""
    rows = log_softmax(logits)
    return float(-rows[np.arange(len(answer)), np.asarray(answer)].mean())


def compare(full: np.ndarray, other: np.ndarray, answer) -> dict:
    """All of the above.  Row 0 is left out: it comes from the prompt's last token, whose attention
    is the same in all methods."""
    full, other, answer = full[1:], other[1:], answer[1:]
    nll_full, nll = answer_nll(full, answer), answer_nll(other, answer)
    return {"kl": kl_divergence(full, other), "agreement": agreement(full, other), "nll": nll,
            "nll_full": nll_full, "nll_rise": nll - nll_full}


def evaluate(model, cache, first_logits, answer, method, full_logits) -> dict:
    """Teacher-forces `answer` after the prompt in `cache` by `method`, built on that cache."""
    started = time.monotonic()
    logits = model.score_answer(answer, first_logits, cache.length, method)
    result = compare(full_logits, logits, answer)
    if hasattr(method, "report"):
        result.update(method.report())
    result["seconds_a_step"] = (time.monotonic() - started) / max(1, len(answer) - 1)
    return result


def full_answer_logits(model, cache, first_logits, answer) -> np.ndarray:
    """Full attention's logits of the answer, in one batch; the cache is left as it was."""
    from worker import FullAttention
    length = cache.length
    logits = model.score_answer(answer, first_logits, length, FullAttention(cache))
    cache.truncate(length)
    return logits
