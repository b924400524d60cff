"""Sites with a better door: which URLs they take, what they make of the APIs' replies, how they fail."""

from __future__ import annotations

import json
import time
import unittest
from typing import Any, Dict, List, Mapping, Optional, Sequence

import websearch
from tests.support import Loopback, Reply
from websearch import Page, Request, Response, WebError, parse_url


class Api:
    """Answers by "host/path" without query: JSON values, text, Response fields in a tuple, or a WebError."""

    def __init__(self, answers: Mapping[str, Any]) -> None:
        self.answers, self.requests = answers, []  # type: Mapping[str, Any], List[Request]

    def get(self, request: Request) -> Response:
        self.requests.append(request)
        answer = self.answers.get(request.url.partition("://")[2].partition("?")[0], (404, {}, "none"))
        if isinstance(answer, WebError):
            raise answer
        status, headers, body = answer if isinstance(answer, tuple) else (200, {}, answer)
        kind = "application/json" if isinstance(body, (dict, list)) else "text/html" if body[:1] in ("<", b"<") else "text/plain"
        body = json.dumps(body) if isinstance(body, (dict, list)) else body
        return Response(request.url, status, {"content-type": kind, **headers}, body if isinstance(body, bytes) else body.encode())

    def read(self, url: str) -> Page:
        parsed = parse_url(url)
        specialist = websearch.specialist_for(parsed)
        assert specialist is not None, url
        return specialist.read(parsed, self.get)

    def failure(self, url: str) -> WebError:
        try:
            page = self.read(url)
        except WebError as error:
            return error
        raise AssertionError(f"{url} gave {page!r}")


def kind_of(url: str) -> str:
    specialist = websearch.specialist_for(parse_url(url))
    return specialist.source_type if specialist else ""


class MatchTest(unittest.TestCase):
    def check(self, kinds: Dict[str, str]) -> None:
        self.assertEqual({url: kind_of(url) for url in kinds}, kinds)

    def test_pages_of_github_are_told_apart_strictly(self) -> None:
        root = "https://github.com/"
        self.check({
            root + "python/cpython": "github_readme", root + "python/cpython/": "github_readme",
            root + "python/cpython?tab=readme-ov-file": "github_readme", root + "python/cpython?tab=license": "",
            root + "python/cpython/issues/1": "github_issue", root + "python/cpython/issues/1#issuecomment-2": "github_issue",
            root + "python/cpython/issues": "", root + "python/cpython/issues/new": "", root + "python/cpython/issues/1/2": "",
            root + "python/cpython/pull/12": "github_pull", root + "python/cpython/pull/12/files": "",
            root + "python/cpython/releases/tag/v3.12.0": "github_release", root + "python/cpython/releases/latest": "github_release",
            root + "python/cpython/releases": "", root + "python/cpython/releases/tag": "",
            root + "python/cpython/blob/main/Lib/os.py#L10-L20": "github_raw", root + "python/cpython/blob/main": "",
            root + "python/cpython/tree/main/Lib": "", root + "python": "", root: "", root + "topics/python": "",
            root + "orgs/python/repositories": "", root + "python/..": "", root + "-x/y": "",
            "https://gist.github.com/a/b": "", "https://github.com.evil.test/a/b": "", "https://evilgithub.com/a/b": "",
            "http://www.github.com/a/b": "github_readme",
        })

    def test_questions_of_all_stack_exchange_sites_are_known(self) -> None:
        self.check({
            "https://stackoverflow.com/questions/11227809/why-is-it-faster": "stackexchange",
            "https://stackoverflow.com/q/11227809/1": "stackexchange", "https://stackoverflow.com/a/11227902/2": "stackexchange",
            "https://pt.stackoverflow.com/questions/1": "stackexchange", "https://unix.stackexchange.com/questions/1/x": "stackexchange",
            "https://meta.superuser.com/q/1": "stackexchange", "https://askubuntu.com/questions/1/x?page=2": "stackexchange",
            "https://unix.meta.stackexchange.com/q/1": "stackexchange",
            "https://stackoverflow.com/questions/tagged/python": "", "https://stackoverflow.com/questions": "",
            "https://stackoverflow.com/users/1": "", "https://chat.stackexchange.com/questions/1": "", "https://stackexchange.com/questions/1": "",
            "https://notstackoverflow.com/q/1": "", "https://stackoverflow.com.evil.test/q/1": "",
        })

    def test_papers_of_arxiv_are_known_by_both_kinds_of_numbers(self) -> None:
        self.check({
            "https://arxiv.org/abs/1706.03762": "arxiv", "https://www.arxiv.org/pdf/1706.03762v5.pdf": "arxiv",
            "https://arxiv.org/abs/hep-th/9901001": "arxiv", "https://arxiv.org/abs/math.GT/0309136v1": "arxiv",
            "https://arxiv.org/html/1706.03762": "", "https://arxiv.org/list/cs.CL/recent": "", "https://arxiv.org/abs/17.1": "",
            "https://arxiv.org/abs/1706.03762?context=cs": "", "https://arxiv.org.evil.test/abs/1706.03762": "",
        })

    def test_articles_of_wikipedia_are_known_in_every_language(self) -> None:
        self.check({
            "https://en.wikipedia.org/wiki/Python_(programming_language)": "wikipedia", "https://de.m.wikipedia.org/wiki/Z%C3%BCrich": "wikipedia",
            "https://zh-min-nan.wikipedia.org/wiki/X": "wikipedia", "https://en.wikipedia.org/wiki/Star_Wars:_Andor": "wikipedia",
            "https://en.wikipedia.org/wiki/AC/DC#History": "wikipedia", "https://de.wikipedia.org/wiki/Datei:X.png": "",
            "https://en.wikipedia.org/wiki/Talk:Python": "", "https://en.wikipedia.org/wiki/": "", "https://en.wikipedia.org/w/index.php?title=A": "",
            "https://en.wikipedia.org/wiki/A?oldid=3": "", "https://www.wikipedia.org/wiki/A": "", "https://wikipedia.org/wiki/A": "",
            "https://en.wikipedia.org.evil.test/wiki/A": "",
        })


class MarkdownTest(unittest.TestCase):
    def test_comments_are_dropped_and_code_is_kept(self) -> None:
        text = ("before<!-- one --> after\r\n<!-- two\n\nstill two -->\nrest <!-- a --> of <!-- b --> it\n```html\n<!-- code -->\n```\n"
                "inline `<!-- code -->` stays\n[//]: # (hidden)\n[link]: https://a.test/\n`tick <!-- hidden --> end\u200b")

        self.assertEqual(websearch.visible_markdown(text), (
            "before after\nrest  of  it\n```html\n<!-- code -->\n```\ninline `<!-- code -->` stays\n[link]: https://a.test/\n`tick  end"))

    def test_an_unclosed_comment_takes_the_rest(self) -> None:
        self.assertEqual(websearch.visible_markdown("shown <!-- hidden\n```\nhidden\n<!-- more"), "shown")

    def test_a_comment_that_closes_may_open_another(self) -> None:
        self.assertEqual(websearch.visible_markdown("<!-- a\nb --> c <!-- d\ne --> f"), "c \n f")

    def test_a_fence_ends_only_with_its_own_kind(self) -> None:
        text = "````\n```\n<!-- code -->\n````\n<!-- gone -->\n~~~ x\n```\n<!-- code -->\n~~~"

        self.assertEqual(websearch.visible_markdown(text), "````\n```\n<!-- code -->\n````\n~~~ x\n```\n<!-- code -->\n~~~")

    def test_hostile_markdown_is_read_in_linear_time(self) -> None:
        for unit in ("<!--", "<!-- -->", "`<!--", "-->", "```\n", "<!--\n", "`"):
            started = time.monotonic()
            websearch.visible_markdown(unit * (400_000 // len(unit)))
            self.assertLess(time.monotonic() - started, 2, unit)


ISSUE = {
    "title": "It breaks", "state": "closed", "state_reason": "not_planned", "closed_at": "2026-03-04T00:00:00Z", "comments": 2,
    "body": "<!-- fill in -->Steps:\r\n\r\n```py\nx = 1\n```", "user": {"login": "ann"}, "created_at": "2026-01-02T03:04:05Z",
    "labels": [{"name": "bug"}, {"name": "docs"}, "odd"],
}
COMMENTS = [
    {"user": {"login": "bob"}, "created_at": "2026-01-03T00:00:00Z", "body": "Same here."},
    {"user": None, "created_at": None, "body": None},
]


class GitHubTest(unittest.TestCase):
    def test_an_issue_is_read_with_its_comments(self) -> None:
        api = Api({"api.github.com/repos/o/r/issues/7": ISSUE, "api.github.com/repos/o/r/issues/7/comments": COMMENTS})

        page = api.read("https://github.com/o/r/issues/7#issuecomment-1")

        self.assertEqual(page.text, (
            "# It breaks\n\nIssue o/r#7 · closed 2026-03-04 not planned · by ann · 2026-01-02 · labels: bug, docs · 2 comments\n\n"
            "Steps:\n\n```py\nx = 1\n```\n\n## Comment · by bob · 2026-01-03\n\nSame here.\n\n## Comment\n\n"))
        self.assertEqual((page.title, page.published_date, page.source_type, page.url, page.content_type, page.notes), (
            "It breaks", "2026-01-02", "github_issue", "https://github.com/o/r/issues/7", "text/markdown", ()))
        self.assertEqual([request.url for request in api.requests], [
            "https://api.github.com/repos/o/r/issues/7", "https://api.github.com/repos/o/r/issues/7/comments?per_page=100&page=1"])
        self.assertEqual(api.requests[0].headers, {"Accept": "application/vnd.github+json"})

    def test_an_issue_without_comments_costs_one_request(self) -> None:
        api = Api({"api.github.com/repos/o/r/issues/7": {**ISSUE, "comments": 0}})

        api.read("https://github.com/o/r/issues/7")

        self.assertEqual(len(api.requests), 1)

    def test_a_pull_request_is_read_with_comments_on_its_lines(self) -> None:
        pull = {**ISSUE, "comments": 0, "pull_request": {"merged_at": "2026-02-03T00:00:00Z"}}
        review = {"path": "a.py", "line": 5, "user": {"login": "cy"}, "created_at": "2026-01-05T00:00:00Z", "body": "Why?"}
        api = Api({"api.github.com/repos/o/r/issues/7": pull, "api.github.com/repos/o/r/pulls/7/comments": [review]})

        page = api.read("https://github.com/o/r/pull/7")

        self.assertIn("Pull request o/r#7 · merged 2026-02-03 · by ann", page.text)
        self.assertTrue(page.text.endswith("## Review comment on a.py line 5 · by cy · 2026-01-05\n\nWhy?"))
        self.assertEqual(page.source_type, "github_pull")

    def test_an_issue_address_that_is_a_pull_request_says_so(self) -> None:
        api = Api({"api.github.com/repos/o/r/issues/7": {**ISSUE, "comments": 0, "pull_request": {}}})

        page = api.read("https://github.com/o/r/issues/7")

        self.assertEqual((page.source_type, page.notes), ("github_pull", ("review comments could not be read: api.github.com answered 404",)))

    def test_comments_that_cannot_be_read_leave_the_issue(self) -> None:
        limit = WebError(websearch.WEB_FETCH_TIMEOUT, "api.github.com did not answer in time")
        api = Api({"api.github.com/repos/o/r/issues/7": ISSUE, "api.github.com/repos/o/r/issues/7/comments": limit})

        page = api.read("https://github.com/o/r/issues/7")

        self.assertIn("Steps:", page.text)
        self.assertEqual(page.notes, ("comments could not be read: api.github.com did not answer in time",))

    def test_a_cancelled_call_is_not_taken_for_missing_comments(self) -> None:
        aborted = WebError(websearch.WEB_ABORTED, "the call was cancelled")
        api = Api({"api.github.com/repos/o/r/issues/7": ISSUE, "api.github.com/repos/o/r/issues/7/comments": aborted})

        self.assertIs(api.failure("https://github.com/o/r/issues/7"), aborted)

    def test_a_long_discussion_is_bounded(self) -> None:
        comments = [{"user": {"login": "bob"}, "body": "x" * 20_000}] * 100
        api = Api({"api.github.com/repos/o/r/issues/7": {**ISSUE, "comments": 1_234}, "api.github.com/repos/o/r/issues/7/comments": comments})

        page = api.read("https://github.com/o/r/issues/7")

        self.assertEqual((len(api.requests), page.truncated), (4, True))
        self.assertEqual(page.notes, ("the first 300 of 1,234 comments were read", "276 further comments or answers were left out"))
        self.assertLess(len(page.text), websearch.MAX_DISCUSSION_CHARS + 10_000)

    def test_a_used_up_limit_names_the_remedy(self) -> None:
        api = Api({"api.github.com/repos/o/r/issues/7": (403, {"x-ratelimit-remaining": "0"}, {"message": "API rate limit exceeded"})})

        error = api.failure("https://github.com/o/r/issues/7")

        self.assertEqual((error.code, error.status, error.message), (
            websearch.WEB_PROVIDER_RATE_LIMITED, 403, "api.github.com has no requests left for this address now; GITHUB_TOKEN raises it"))

    def test_a_release_is_read_with_its_files(self) -> None:
        release = {"tag_name": "v1", "name": "One", "body": "Notes\n<!-- x -->", "published_at": "2026-05-06T00:00:00Z", "prerelease": True,
                   "author": {"login": "ann"}, "html_url": "https://github.com/o/r/releases/tag/v1",
                   "assets": [{"name": "a.tgz", "browser_download_url": "https://github.com/o/r/a.tgz"}, {"name": "bad"}]}
        api = Api({"api.github.com/repos/o/r/releases/latest": release, "api.github.com/repos/o/r/releases/tags/x%2Fv1": release})

        page = api.read("https://github.com/o/r/releases/latest")

        self.assertEqual(page, api.read("https://github.com/o/r/releases/tag/x/v1"))
        self.assertEqual(page.text, ("# One\n\nRelease v1 of o/r · pre-release · by ann · 2026-05-06\n\nNotes\n\n## Files\n\n"
                                     "- [a.tgz](https://github.com/o/r/a.tgz)"))
        self.assertEqual((page.published_date, page.url, page.source_type), ("2026-05-06", "https://github.com/o/r/releases/tag/v1", "github_release"))

    def test_a_readme_is_read_as_it_is_rendered_with_whole_links(self) -> None:
        html = ('<div id="readme"><article class="markdown-body"><h1>Tool</h1><p>A tool that does one thing, <a href="docs/a.md">well</a>.</p>'
                '<div class="highlight highlight-source-python"><pre>import tool</pre></div></article></div>')
        api = Api({"api.github.com/repos/o/r/readme": html})

        page = api.read("https://github.com/o/r")

        self.assertEqual(page.text, ("# Tool\n\nA tool that does one thing, [well](https://github.com/o/r/blob/HEAD/docs/a.md).\n\n"
                                     "```python\nimport tool\n```"))
        self.assertEqual((page.title, page.url, page.source_type), ("o/r", "https://github.com/o/r", "github_readme"))

    def test_a_readme_may_come_as_the_file(self) -> None:
        api = Api({"api.github.com/repos/o/r/readme": "# Tool\n\n<!-- hidden -->Text with <b>HTML</b>"})
        self.assertEqual(api.read("https://github.com/o/r.git").text, "# Tool\n\nText with <b>HTML</b>")

    def test_a_file_is_read_raw(self) -> None:
        code = "def f():\n    return '<b>'\n"
        api = Api({"raw.githubusercontent.com/o/r/main/lib/f.py": code, "raw.githubusercontent.com/o/r/main/a.png": b"\x89PNG\r\n\x1a\n\0\0"})

        page = api.read("https://github.com/o/r/blob/main/lib/f.py?plain=1#L1")

        self.assertEqual((page.text.strip(), page.title, page.source_type), (code.strip(), "lib/f.py", "github_raw"))
        self.assertEqual(api.failure("https://github.com/o/r/blob/main/a.png").code, websearch.WEB_UNSUPPORTED_CONTENT_TYPE)

    def test_links_of_a_file_lead_into_its_repository(self) -> None:
        html = "<!DOCTYPE html><body><main><p>There is more to be read in <a href='b.html'>the second part</a> of it.</p></main>"
        page = Api({"raw.githubusercontent.com/o/r/main/doc/a.html": html}).read("https://github.com/o/r/blob/main/doc/a.html")
        self.assertIn("(https://github.com/o/r/blob/main/doc/b.html)", page.text)


class StackExchangeTest(unittest.TestCase):
    QUESTION: Mapping[str, Any] = {"question_id": 5, "title": "Why &amp; how?", "body": "<p>I have <code>x = 1</code> and it fails.</p>", "score": 12, "answer_count": 2,
                "creation_date": 1_767_225_600, "tags": ["python", "gc"], "owner": {"display_name": "Ann &lt;3"}}
    ANSWERS: Sequence[Any] = ({"body": "<p>Less.</p>", "score": 1, "owner": {}, "creation_date": 1_767_312_000},
               {"body": "<p>Do <a href='/q/9'>this</a>:</p><pre class='lang-py'><code>y = 2\n</code></pre>", "score": 40, "is_accepted": True})

    def test_a_question_is_read_with_answers_by_score(self) -> None:
        api = Api({"api.stackexchange.com/2.3/questions/5": {"items": [self.QUESTION]},
                   "api.stackexchange.com/2.3/questions/5/answers": {"items": list(self.ANSWERS), "has_more": False}})

        page = api.read("https://unix.stackexchange.com/questions/5/why/77#77")

        self.assertEqual(page.text, (
            "# Why & how?\n\nQuestion · score 12 · by Ann <3 · 2026-01-01 · tags: python, gc\n\nI have `x = 1` and it fails.\n\n"
            "## Accepted answer · score 40\n\nDo [this](https://unix.stackexchange.com/q/9):\n\n```py\ny = 2\n```\n\n"
            "## Answer · score 1 · 2026-01-02\n\nLess."))
        self.assertEqual((page.title, page.published_date, page.url, page.source_type), (
            "Why & how?", "2026-01-01", "https://unix.stackexchange.com/questions/5", "stackexchange"))
        self.assertEqual(api.requests[0].url, "https://api.stackexchange.com/2.3/questions/5?site=unix.stackexchange.com&filter=withbody")

    def test_an_answers_address_leads_to_its_question(self) -> None:
        api = Api({"api.stackexchange.com/2.3/answers/77/questions": {"items": [{**self.QUESTION, "answer_count": 0}]}})

        page = api.read("https://stackoverflow.com/a/77/3")

        self.assertEqual((page.url, len(api.requests)), ("https://stackoverflow.com/questions/5", 1))

    def test_more_answers_than_were_read_are_told(self) -> None:
        api = Api({"api.stackexchange.com/2.3/questions/5": {"items": [{**self.QUESTION, "answer_count": 99}]},
                   "api.stackexchange.com/2.3/questions/5/answers": {"items": list(self.ANSWERS), "has_more": True}})

        self.assertEqual(api.read("https://stackoverflow.com/q/5").notes, ("the best 30 of 99 answers were read",))

    def test_an_unknown_question_and_a_throttle_are_errors(self) -> None:
        throttle = (400, {}, {"error_id": 502, "error_name": "throttle_violation", "error_message": "too many requests"})

        self.assertEqual(Api({"api.stackexchange.com/2.3/questions/5": {"items": []}}).failure("https://stackoverflow.com/q/5").message,
                         "stackoverflow.com has no question 5")
        self.assertEqual(Api({"api.stackexchange.com/2.3/questions/5": throttle}).failure("https://stackoverflow.com/q/5").status, 400)


def atom(entry: str) -> str:
    return f'<?xml version="1.0"?><feed xmlns="http://www.w3.org/2005/Atom"><title>Query</title>{entry}</feed>'


class ArxivTest(unittest.TestCase):
    FEED = atom("<entry><id>http://arxiv.org/abs/2401.00001v1</id><published>2024-01-01T00:00:00Z</published><title>On\n  Things</title>"
                "<summary> We study a &lt; b. </summary><author><name>A. One</name></author><author><name>B. Two</name></author>"
                "<arxiv:comment>9 pages</arxiv:comment></entry>")
    HTML = "<!doctype html><article><h2>1 Introduction</h2><p>" + "Things are studied here at some length. " * 9 + "</p></article>"

    def test_a_paper_is_read_with_its_text_where_it_is_html(self) -> None:
        api = Api({"export.arxiv.org/api/query": self.FEED, "arxiv.org/html/2401.00001": self.HTML})

        page = api.read("https://arxiv.org/pdf/2401.00001")

        self.assertTrue(page.text.startswith(
            "# On Things\n\narXiv:2401.00001 · A. One, B. Two · 2024-01-01 · 9 pages\n\n## Abstract\n\nWe study a < b.\n\n## Full text\n\n"))
        self.assertIn("1 Introduction\n\nThings are studied here", page.text)
        self.assertEqual((page.title, page.published_date, page.source_type, page.notes), ("On Things", "2024-01-01", "arxiv", ()))

    def test_without_html_the_abstract_remains_and_the_pdf_is_left_to_others(self) -> None:
        api = Api({"export.arxiv.org/api/query": self.FEED})

        page, error = api.read("https://arxiv.org/abs/2401.00001"), api.failure("https://arxiv.org/pdf/2401.00001.pdf")

        self.assertTrue(page.text.endswith("## Abstract\n\nWe study a < b."))
        self.assertEqual(page.notes, ("abstract only; the paper itself: https://arxiv.org/pdf/2401.00001",))
        self.assertEqual(error.message, "arxiv.org has no HTML form of 2401.00001")

    def test_an_unknown_paper_is_an_error(self) -> None:
        error = atom("<entry><id>http://arxiv.org/api/errors#incorrect_id</id><title>Error</title><summary>incorrect id</summary></entry>")

        for feed in (atom(""), error, "", "<html>busy"):
            self.assertEqual(Api({"export.arxiv.org/api/query": feed}).failure("https://arxiv.org/abs/2401.00001").message,
                             "arxiv.org has no paper 2401.00001")


class WikipediaTest(unittest.TestCase):
    def test_an_article_is_read_with_its_tables(self) -> None:
        html = ('<div class="mw-content-ltr mw-parser-output" lang="en"><p><b>Zürich</b> is the <a href="/wiki/City">largest city</a> of its country, and '
                'has been so for a very long time.</p><h2>Districts</h2><table class="wikitable"><tbody><tr><th>No</th><th>Name</th></tr>'
                '<tr><td>1</td><td>Altstadt</td></tr></tbody></table></div>')
        reply = {"parse": {"title": "Zürich", "displaytitle": "<i>Zürich</i>", "text": html}}
        api = Api({"en.wikipedia.org/w/api.php": reply})

        page = api.read("https://en.m.wikipedia.org/wiki/Zurich#Districts")

        self.assertEqual(page.text, (
            "# Zürich\n\n**Zürich** is the [largest city](https://en.wikipedia.org/wiki/City) of its country, and has been so for a very long "
            "time.\n\n## Districts\n\n| No | Name |\n| --- | --- |\n| 1 | Altstadt |"))
        self.assertEqual((page.title, page.language, page.url, page.source_type), ("Zürich", "en", "https://en.wikipedia.org/wiki/Z%C3%BCrich", "wikipedia"))
        self.assertIn("action=parse&page=Zurich&prop=text%7Cdisplaytitle&redirects=1", api.requests[0].url)

    def test_a_missing_article_is_an_error_in_the_words_of_the_site(self) -> None:
        reply = {"error": {"code": "missingtitle", "info": "The page you specified doesn't exist."}}

        error = Api({"en.wikipedia.org/w/api.php": reply}).failure("https://en.wikipedia.org/wiki/Nope")

        self.assertEqual(error.message, "en.wikipedia.org has no such article: The page you specified doesn't exist.")


EVERY_KIND = (
    "https://github.com/o/r/issues/1", "https://github.com/o/r/pull/1", "https://github.com/o/r/releases/latest", "https://github.com/o/r",
    "https://github.com/o/r/blob/main/f.py", "https://stackoverflow.com/q/1", "https://arxiv.org/abs/2401.00001", "https://en.wikipedia.org/wiki/A",
)


class EveryKindTest(unittest.TestCase):
    def test_nothing_but_a_page_or_a_web_error_comes_of_odd_replies(self) -> None:
        odd: List[Any] = ["", "null", "[]", "{}", "<html><p>login", '{"items":[null,{"title":5}]}', '{"parse":{"text":7},"title":{},"tag_name":[]}',
                          "[" * 100_000, b"\xff\xfe\x00", '{"title":"x","comments":1e999,"labels":[[]],"user":7,"pull_request":{"merged_at":9}}',
                          '{"items":[{"title":"t","question_id":1,"creation_date":1e300,"score":"9","tags":[3]}]}', '{"content":"*"}']
        for url in EVERY_KIND:
            for body in odd:
                specialist = websearch.specialist_for(parse_url(url))
                assert specialist is not None
                data = body if isinstance(body, bytes) else body.encode()
                with self.subTest(url=url, body=body[:40]):
                    try:
                        page = specialist.read(parse_url(url), lambda request, data=data: Response(request.url, 200, {}, data))
                    except WebError:
                        continue
                    self.assertIsInstance(page, Page)

    def test_every_status_but_200_is_an_error_that_names_host_and_status(self) -> None:
        for url in EVERY_KIND:
            for status in (301, 403, 404, 429, 500):
                specialist = websearch.specialist_for(parse_url(url))
                assert specialist is not None
                with self.subTest(url=url, status=status), self.assertRaises(WebError) as caught:
                    specialist.read(parse_url(url), lambda request, status=status: Response(request.url, status, {}, b"{}"))
                self.assertEqual(caught.exception.status, status)

    def test_a_gateway_serves_every_api_below_its_host_name(self) -> None:
        asked: List[str] = []

        def get(request: Request) -> Response:
            asked.append(request.url.partition("?")[0])
            return Response(request.url, 404)

        for url in EVERY_KIND:
            specialist = websearch.specialist_for(parse_url(url))
            assert specialist is not None
            with self.assertRaises(WebError):
                specialist.read(parse_url(url), get, "https://gate.test/open/")

        self.assertEqual(asked, ["https://gate.test/open/" + path for path in (
            "api.github.com/repos/o/r/issues/1", "api.github.com/repos/o/r/issues/1", "api.github.com/repos/o/r/releases/latest",
            "api.github.com/repos/o/r/readme", "raw.githubusercontent.com/o/r/main/f.py", "api.stackexchange.com/2.3/questions/1",
            "export.arxiv.org/api/query", "en.wikipedia.org/w/api.php")])

    def test_a_readme_comes_over_the_wire(self) -> None:
        settings = websearch.Settings.from_env({"WEBSEARCH_ALLOW_PRIVATE": "127.0.0.1/32"})
        transport = websearch.Transport.from_settings(settings)
        self.addCleanup(transport.close_idle)
        reply = Reply(200, "# Tool\n\nText.", [("Content-Type", "application/vnd.github.raw+json; charset=utf-8")])
        url = parse_url("https://github.com/o/r")
        specialist: Optional[websearch.Specialist] = websearch.specialist_for(url)
        assert specialist is not None

        with Loopback({"/api.github.com/repos/o/r/readme": reply}) as server:
            page = specialist.read(url, lambda request: transport.send(request, websearch.PAGE_POLICY, websearch.Deadline(5)), server.url())

            self.assertEqual(page.text, "# Tool\n\nText.")
            self.assertEqual(server.requests[0].header("accept"), "application/vnd.github.html+json")


class MarkdownTwinTest(unittest.TestCase):
    def test_a_sibling_has_md_behind_its_name(self) -> None:
        pairs = {"https://a.test/docs/start": "https://a.test/docs/start.md", "https://a.test/docs/": "https://a.test/docs.md",
                 "https://a.test/x.html": "https://a.test/x.html.md", "https://a.test/": "", "https://a.test/x?y": "", "https://a.test/x.pdf": "",
                 "https://a.test/x.md": ""}

        self.assertEqual({url: websearch.markdown_sibling(parse_url(url)) for url in pairs}, pairs)

    def test_what_the_page_names_is_tried_first(self) -> None:
        page = Page(alternate_url="https://a.test/start.txt")

        self.assertEqual(websearch.markdown_alternates(page, parse_url("https://a.test/start")),
                         ("https://a.test/start.txt", "https://a.test/start.md"))

    def test_a_shell_is_an_html_page_with_next_to_no_text(self) -> None:
        pages = (Page(text="Loading…"), Page(text="x" * 300), Page(text="x" * 300, needs_javascript=True), Page(text="[]", content_type="application/json"))

        self.assertEqual([websearch.looks_like_shell(page) for page in pages], [True, False, True, False])

    def test_only_text_is_taken_for_markdown(self) -> None:
        replies = (Response("u", 200, {"content-type": "text/markdown; charset=utf-8"}, b"# A"), Response("u", 200, {"content-type": "text/plain"}, b"A"),
                   Response("u", 200, {"content-type": "text/html"}, b"# A"), Response("u", 404, {"content-type": "text/markdown"}, b"# A"),
                   Response("u", 200, {"content-type": "text/plain"}, b"\n<!doctype html>"), Response("u", 200, {"content-type": "text/plain"}, b""))

        self.assertEqual([websearch.is_markdown(reply) for reply in replies], [True, True, False, False, False, False])


if __name__ == "__main__":
    unittest.main()
