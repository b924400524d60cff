"""The page extractor beside three libraries, on the extraction corpora: quality by the corpora's own metric, and CPU.

    python3 benchmarks/extraction.py [--corpus DIR] [--peers DIR] [--only NAME,NAME] [--step N] [--json]

Page by page in turn, so that a busy machine is unfair to nobody; `ratio` is the CPU against websearch-mcp on the same pages.
The corpora are not part of this repository: they are looked for in ../shared/corpus, and without them this exits 3. `--peers DIR`
installs the libraries into a virtual environment there and runs in it; `--step N` takes every Nth page.
"""
from __future__ import annotations

import importlib
import os
import sys
import time
import warnings
from pathlib import Path
from typing import Any, Callable, Dict, List, Tuple

import common
import peers

CORPUS = common.ROOT.parent / "shared" / "corpus"
LIBRARIES = ("trafilatura", "readability-lxml", "markdownify")
Extractor = Callable[[bytes, str, str], Any]


def decoded(body: bytes) -> str:
    return body.decode("utf-8", "replace")


def trafilatura(body: bytes, content_type: str, url: str) -> Any:
    """Markdown with links, without comments; its title costs a second pass, so that `enc`, which asks for it, is lost."""
    library = importlib.import_module("trafilatura")
    text = library.extract(body, url=url or None, output_format="markdown", include_links=True, include_comments=False)
    return {"text": text or "", "title": ""}


def readability(body: bytes, content_type: str, url: str) -> Any:
    """The main part's HTML, as text: it writes no Markdown."""
    page = importlib.import_module("readability").Document(body)
    main = importlib.import_module("lxml.html").fromstring(page.summary() or "<p></p>")
    return {"text": "\n\n".join(main.itertext()), "title": page.title()}


def markdownify(body: bytes, content_type: str, url: str) -> Any:
    """The whole page as Markdown: it chooses no main part."""
    return {"text": importlib.import_module("markdownify").markdownify(decoded(body)), "title": ""}


def extractors() -> Tuple[Dict[str, Extractor], List[common.Row]]:
    """Those that can be imported here, ours first; a row for each that cannot."""
    sys.path.insert(0, str(common.ROOT))
    warnings.simplefilter("ignore")  # some libraries doubt that a page is HTML
    found: Dict[str, Extractor] = {"websearch-mcp": importlib.import_module("websearch").extract}
    missing: List[common.Row] = []
    for package, extract in zip(LIBRARIES, (trafilatura, readability, markdownify)):
        try:
            importlib.import_module(extract.__name__)
            metadata = importlib.import_module("importlib.metadata")
            found[f"{package} {metadata.version(package)}"] = extract
        except ImportError as error:
            missing.append({"what": package, "not run": f"{error}; --peers DIR installs it"})
    return found, missing


def measure(corpus: Path, names: List[str], step: int) -> Dict[str, List[common.Row]]:
    """The tables of quality, by corpus, and of CPU."""
    sys.path.insert(0, str(corpus))
    score = importlib.import_module("score")
    found, missing = extractors()
    quality: Dict[str, common.Row] = {name: {"figure": name} for name in found}
    spent: Dict[str, List[float]] = {name: [] for name in found}
    lost, pages, size = dict.fromkeys(found, 0), 0, 0
    for corpus_name in names or score.corpora(str(corpus)):
        meta, rows = score.load(str(corpus), corpus_name)
        scored: Dict[str, List[Any]] = {name: [] for name in found}
        for truth, body in rows[::step]:
            pages, size = pages + 1, size + len(body)
            for name, extract in found.items():
                started = time.process_time()
                try:
                    title, text = score.result_of(extract(body, truth.get("content_type") or "text/html", truth.get("url") or ""))
                except Exception:  # whatever a library raises: the page is lost, and counted
                    title, text, lost[name] = "", "", lost[name] + 1
                spent[name].append(time.process_time() - started)
                scored[name].append(score.score_page(meta["metric"], truth, title, text))
        for name in found:
            quality[name][corpus_name] = round(score.aggregate(meta["metric"], scored[name])["figure"], 3)
    for row in quality.values():
        row["mean"] = round(sum(value for value in row.values() if isinstance(value, float)) / (len(row) - 1), 3)
    ours = sum(spent["websearch-mcp"])
    speed = [{"what": name, "CPU s": sum(took), "ratio": sum(took) / ours, "MB a second": size / sum(took) / 1e6,
              "page median ms": common.median(took) * 1000, "page max ms": max(took) * 1000, "pages lost": lost[name]}
             for name, took in spent.items()]
    return {f"Quality on {pages} pages": [*quality.values(), *missing], "CPU": speed + missing}


def main() -> int:
    parser = common.arguments(__doc__)
    parser.add_argument("--corpus", type=Path, default=CORPUS)
    parser.add_argument("--peers", type=Path, metavar="DIR", help="install the libraries there, and run in that environment")
    parser.add_argument("--only", default="", help="comma-separated corpora")
    parser.add_argument("--step", type=int, default=1)
    options = parser.parse_args()
    if not (options.corpus / "score.py").exists():
        print(f"not run: no corpora at {options.corpus}")
        return 3
    if options.peers and Path(sys.prefix).resolve() != (options.peers / "venv").resolve():
        for package in LIBRARIES:
            try:
                peers.version(peers.Peer(package, "pip"), options.peers)
            except common.NotRun as reason:
                print(f"{package}: {reason}", file=sys.stderr)
        python = str(peers.venv_python(options.peers))
        os.execv(python, [python, __file__, *sys.argv[1:]])
    common.report(measure(options.corpus, [name for name in options.only.split(",") if name], options.step), options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main())
