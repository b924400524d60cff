#!/usr/bin/env python3
"""How often `focus` keeps the passage that answers: python3 benchmarks/focus_recall.py CORPUS_FOLDER [CORPUS ...]

CORPUS_FOLDER holds NAME.tar.xz with `truth.jsonl` (one page a line: file, content_type, url) and `pages/`. Needs are derived
from each page itself, always the same ones:

    heading   the words of a heading; the answer is the first paragraph below it
    question  the same as a question, "how do I …?"
    words     the four rarest words of a sentence, in another order and number; the answer is the sentence

The table shows the share of answers that are in what `focus_passages` returns with a tenth of the page as its limit, the
same for the ordinary cut of that size, and the mean share of the limit that was used.
"""
from __future__ import annotations

import json
import os
import random
import re
import sys
import tarfile
from collections import Counter
from typing import Dict, Iterator, List, NamedTuple, Tuple

sys.path.append(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import websearch

MIN_PAGE_CHARS = 5_000  # a tenth of less is no room for a passage
NEEDS_PER_PAGE = 6  # of each kind
LIMIT_SHARE = 0.1


class Need(NamedTuple):
    """What is asked, and the words that must be in the passages."""

    kind: str
    words: str
    answer: str


def page_texts(archive: str) -> Iterator[str]:
    """The extracted Markdown of each page of an archive."""
    with tarfile.open(archive) as tar:
        truth = tar.extractfile("truth.jsonl")
        assert truth is not None
        for line in truth.read().decode().splitlines():
            row = json.loads(line)
            body = tar.extractfile("pages/" + row["file"])
            assert body is not None
            yield websearch.extract(body.read(), row["content_type"], row["url"]).text


def needs_of(text: str, chance: random.Random) -> List[Need]:
    """The needs derived from one page."""
    by_heading, by_words = list(heading_needs(text)), list(word_needs(text))
    chance.shuffle(by_heading)
    chance.shuffle(by_words)
    by_heading = by_heading[:NEEDS_PER_PAGE]
    questions = [Need("question", f"How do I {need.words.lower()}?", need.answer) for need in by_heading]
    return by_heading + questions + by_words[:NEEDS_PER_PAGE]


def heading_needs(text: str) -> Iterator[Need]:
    for found in re.finditer(r"^#{1,6} ([^\n]{8,80})\n\n([^#|`\n][^\n]{60,600})$", text, re.M):
        if text.count(found.group(1)) == 1:
            yield Need("heading", plain(found.group(1)), found.group(2)[:150])


def word_needs(text: str) -> Iterator[Need]:
    frequency = Counter(re.findall(r"[^\W\d_]{4,}", text.lower()))
    for found in re.finditer(r"(?:(?<=\. )|^)[A-Z][^.!?\n|`#\[\]]{50,250}[.!?]", text, re.M):
        words = list(dict.fromkeys(re.findall(r"[^\W\d_]{4,}", found.group().lower())))
        rarest = sorted(words, key=lambda word: (frequency[word], -len(word)))[:4]
        if len(rarest) == 4:
            yield Need("words", " ".join(toggle_plural(word) for word in sorted(rarest)), found.group())


def toggle_plural(word: str) -> str:
    return word[:-1] if word.endswith("s") else word + "s"


def plain(markdown: str) -> str:
    return re.sub(r"\[([^\]]*)\]\([^)]*\)|[*_`\\]", r"\1", markdown)


def main(folder: str, names: List[str]) -> None:
    tally: Dict[Tuple[str, str], List[float]] = {}
    for name in names:
        chance = random.Random(1)
        for text in page_texts(os.path.join(folder, name + ".tar.xz")):
            if len(text) < MIN_PAGE_CHARS:
                continue
            limit = int(len(text) * LIMIT_SHARE)
            ordinary = websearch.cut_page(text, limit, 0).text
            for need in needs_of(text, chance):
                shown = websearch.focus_passages(text, need.words, limit).text
                row = tally.setdefault((name, need.kind), [0.0, 0.0, 0.0, 0.0])
                for index, value in enumerate((1, need.answer in shown, need.answer in ordinary, len(shown) / limit)):
                    row[index] += value
    print(f"{'corpus':8} {'need':10} {'asked':>6} {'focus':>7} {'cut':>7} {'room':>7}")
    for (name, kind), (asked, kept, cut, room) in tally.items():
        print(f"{name:8} {kind:10} {asked:6.0f} {kept / asked:7.3f} {cut / asked:7.3f} {room / asked:7.2f}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2:] or ["docs", "aeb"])
