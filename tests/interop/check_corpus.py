"""The HTML extractor on the extraction corpora: no figure may fall below its floor.

    python3 tests/interop/check_corpus.py [--only NAME,NAME] [--update]

The corpora are not part of this repository: they are looked for in ../shared/corpus (`WEBSEARCH_CORPUS` names another
folder), and without them this exits 3. Exits 1 when a figure fell below its floor in corpus_floor.json, 0 when all hold.
Quality has no tolerance, for the extractor is deterministic. Speed is a ratio against a naive extractor on
html.parser, measured in the same run, page by page in turn; machines and Pythons differ, so it has one.
`--update` writes the present figures as floors; do that only for a change that is meant.
"""
from __future__ import annotations

import argparse
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, Dict, List, Tuple

ROOT = Path(__file__).resolve().parent.parent.parent
CORPUS = Path(os.environ.get("WEBSEARCH_CORPUS", str(ROOT.parent / "shared" / "corpus")))
FLOORS = Path(__file__).with_name("corpus_floor.json")
SPEED_TOLERANCE = 0.15  # of the recorded ratio: what two runs on a busy machine differ by
SPEED_STEP = 7  # every seventh page is timed: enough for a ratio
SPEED_RUNS = 3  # the fastest of these counts
FIGURES = ("figure", "title", "structure", "f1", "code", "lang", "headings", "tables", "links", "items", "absolute")
CEILINGS = ("without", "size", "errors")  # less is better


class Naive(HTMLParser):
    """What the speed is compared with: all text outside of a few elements."""

    SKIPPED = frozenset(("nav", "header", "footer", "aside", "form", "script", "style"))
    BREAKS = frozenset(("p", "div", "li", "br", "h1", "h2", "h3"))

    def __init__(self) -> None:
        super().__init__()
        self.out: List[str] = []
        self.depth = 0

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.depth += tag in self.SKIPPED
        if tag in self.BREAKS:
            self.out.append("\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.SKIPPED and self.depth:
            self.depth -= 1

    def handle_data(self, data: str) -> None:
        if not self.depth:
            self.out.append(data)


def naive(body: bytes, content_type: str, url: str) -> str:
    """The text of a page as `Naive` sees it."""
    parser = Naive()
    parser.feed(body.decode("utf-8", "replace"))
    parser.close()
    return "".join(parser.out)


def measured(only: str) -> Dict[str, Dict[str, float]]:
    """The figures of each corpus, from the corpora's own script."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "figures.json"
        command = [sys.executable, str(CORPUS / "score.py"), "--extract", "websearch:extract", "--path", str(ROOT),
                   "--peers", "none", "--json", str(path)]
        subprocess.run(command + (["--only", only] if only else []), check=True, stdout=subprocess.DEVNULL)
        corpora = json.loads(path.read_text(encoding="utf-8"))["corpora"]
    return {name: {key: round(values[key], 4) for key in FIGURES + CEILINGS if values.get(key) is not None}
            for name, values in corpora.items()}


def speed(names: List[str]) -> float:
    """How many times as fast as the naive extractor ours is, over a sample of all pages."""
    sys.path[:0] = [str(ROOT), str(CORPUS)]
    score, websearch = importlib.import_module("score"), importlib.import_module("websearch")
    pages: List[Tuple[bytes, str, str]] = []
    for name in names:
        rows = score.load(str(CORPUS), name)[1]
        pages.extend((body, row.get("content_type") or "text/html", row.get("url") or "") for row, body in rows)
    spent = [0.0, 0.0]
    for page in pages[::SPEED_STEP]:
        best = [float("inf")] * 2
        for _ in range(SPEED_RUNS):
            for index, extractor in enumerate((naive, websearch.extract)):
                start = time.perf_counter()
                extractor(*page)
                best[index] = min(best[index], time.perf_counter() - start)
        spent = [total + took for total, took in zip(spent, best)]
    return round(spent[0] / spent[1], 2)


def losses(got: Dict[str, Dict[str, float]], floors: Dict[str, Dict[str, float]]) -> List[str]:
    """One line for each figure that is worse than its floor."""
    lines: List[str] = []
    for name, figures in got.items():
        for key, floor in floors.get(name, {}).items():
            value = figures.get(key)
            is_worse = value is None or (value > floor if key in CEILINGS else value < floor)
            if is_worse:
                lines.append(f"{name}: {key} is {value}, was {floor}")
    return lines


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", default="", help="comma-separated corpora")
    parser.add_argument("--update", action="store_true", help="write the figures as the new floors")
    options = parser.parse_args()
    if not (CORPUS / "score.py").exists():
        print(f"not run: the corpora are not at {CORPUS}")
        return 3
    got = measured(options.only)
    ratio = speed(sorted(got))
    mean = round(sum(figures["figure"] for figures in got.values()) / len(got), 4)
    print(f"mean {mean}; " + ", ".join(f"{name} {figures['figure']}" for name, figures in got.items()))
    print(f"{ratio} times the speed of the naive extractor")
    if options.update and not options.only:
        record = {"date": time.strftime("%Y-%m-%d"), "python": sys.version.split()[0], "mean": mean,
                  "speed_against_naive": ratio, "speed_tolerance": SPEED_TOLERANCE, "corpora": got}
        FLOORS.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n", encoding="utf-8")
        return 0
    floor = json.loads(FLOORS.read_text(encoding="utf-8"))
    lines = losses(got, floor["corpora"])
    least = floor["speed_against_naive"] * (1 - floor["speed_tolerance"])
    if not options.only and ratio < least:
        lines.append(f"speed is {ratio} times the naive extractor's, must be {least:.2f}")
    print("\n".join(lines) or "all figures hold")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
