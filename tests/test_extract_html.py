"""The HTML extractor: whole pages of common generators, then rules one by one, then hostile input.

`fixtures/pages/<name>/` holds a page in a generator's markup (written for this test), the Markdown expected of it and
what is expected beside the text.
"""
from __future__ import annotations

import gc
import json
import os
import time
import unittest
from typing import Any, Dict, List

import websearch

PAGES = os.path.join(os.path.dirname(__file__), "fixtures", "pages")
URL = "https://docs.example.test/guide/page.html"
PROSE = (
    "<p>The scheduler keeps a queue of pending jobs and hands each of them to the first worker that reports itself idle.</p>"
    "<p>Every worker writes a heartbeat once a second, and the coordinator marks those as lost that have been silent.</p>")


def read(*parts: str) -> str:
    with open(os.path.join(PAGES, *parts), encoding="utf-8") as file:
        return file.read()


def page(body: str, head: str = "<title>Any title</title>", url: str = URL) -> websearch.Page:
    return websearch.extract_html(f"<!doctype html><html><head>{head}</head><body>{body}</body></html>", url)


def text_in_article(body: str) -> str:
    """The Markdown of `body` where it stands in an article of some length."""
    return page(f"<main><article>{PROSE}{body}{PROSE.replace('a ', 'one ')}</article></main>").text


class WholePages(unittest.TestCase):
    maxDiff = None

    def test_pages_of_every_generator_come_out_as_expected(self) -> None:
        for name in sorted(os.listdir(PAGES)):
            with self.subTest(page=name):
                expected: Dict[str, Any] = json.loads(read(name, "expected.json"))
                got = websearch.extract_html(read(name, "source.html"), expected["url"])
                self.assertEqual(got.text + "\n", read(name, "expected.md"))
                self.assertEqual(
                    {"title": got.title, "published_date": got.published_date, "language": got.language,
                     "links": [list(link) for link in got.links]},
                    {key: expected[key] for key in ("title", "published_date", "language", "links")})

    def test_the_same_page_comes_out_twice_the_same(self) -> None:
        source = read("wiki", "source.html")
        self.assertEqual(websearch.extract_html(source, URL), websearch.extract_html(source, URL))


class Titles(unittest.TestCase):
    def test_titles_lose_what_names_the_site_or_nothing(self) -> None:
        for title, body, url, expected in (
                ("Home - Ash Grove Choir", "<h1>who sings?</h1>", "https://ashgrovechoir.test/", "Ash Grove Choir"),
                ("| Bolts Magazine", "<h1>Spring locks</h1>", "https://x.test/locks", "Spring locks"),
                ("Portal - the heart of it", "<h1>Which lamp to buy this year</h1>",
                 "https://portal.test/r/1/which_lamp_to_buy_this_year", "Which lamp to buy this year")):
            with self.subTest(title=title):
                self.assertEqual(page(body + PROSE, f"<title>{title}</title>", url).title, expected)

    def test_a_heading_that_is_the_social_title_wins(self) -> None:
        head = '<title>Cheap shoes | Shop</title><meta property="og:title" content="Shoes for rain">'
        self.assertEqual(page("<h1>Shoes for rain</h1>" + PROSE, head).title, "Shoes for rain")


class Economy(unittest.TestCase):
    """What stands twice on a page is told once."""

    def test_a_link_repeated_nearby_is_left_as_text(self) -> None:
        text = text_in_article('<p>See <a href="/a">the one</a>, <a href="/b">another</a> and <a href="/a">the one again</a>.</p>')
        self.assertIn(
            "See [the one](https://docs.example.test/a), [another](https://docs.example.test/b) and the one again.", text)

    def test_a_link_far_below_is_told_again(self) -> None:
        filler = "<p>" + "word after word in a long chapter " * 300 + "</p>"
        text = text_in_article(f'<p>See <a href="/a">the one</a>.</p>{filler}<p>As said in <a href="/a">that one</a>.</p>')
        self.assertIn("[that one](https://docs.example.test/a)", text)

    def test_markdown_in_code_is_not_touched(self) -> None:
        code = "[a](http://x.test/) [a](http://x.test/) ![some words](http://x.test/i.png)\nsome words"
        text = text_in_article(
            f'<p><a href="http://x.test/">x</a> <a href="http://x.test/">x</a></p><pre>{code}</pre>')
        self.assertIn(f"```\n{code}\n```", text)

    def test_an_image_whose_words_stand_beside_it_is_dropped(self) -> None:
        text = text_in_article('<p><img src="/t.jpg" alt="A red bridge at night"></p><h3>A red bridge at night</h3><p>Shown here.</p>'
                               '<p><img src="/u.jpg" alt="Its blue twin"></p>')
        self.assertNotIn("t.jpg", text)
        self.assertIn("![Its blue twin](https://docs.example.test/u.jpg)", text)

    def test_an_empty_table_column_is_dropped(self) -> None:
        text = text_in_article("<table><tr><th></th><th>Key</th><th>Value</th></tr><tr><td></td><td>a</td><td>1</td></tr></table>")
        self.assertIn("| Key | Value |\n| --- | --- |\n| a | 1 |", text)


class Shown(unittest.TestCase):
    SEGMENT = '<div hidden id="S:1">' + PROSE + "</div>"

    def test_a_part_that_react_sends_hidden_is_shown_where_a_template_keeps_its_place(self) -> None:
        self.assertIn("hands each of them", page('<main><template id="B:1"></template></main>' + self.SEGMENT).text)

    def test_such_a_part_without_a_place_stays_hidden(self) -> None:
        self.assertEqual(page("<main><p>Short.</p></main>" + self.SEGMENT).text, "Short.")


class Code(unittest.TestCase):
    def test_numbers_on_lines_of_their_own_are_no_code(self) -> None:
        rows = "".join(f"<div><span>{n}</span><div>line {n}</div></div>" for n in range(1, 5))
        self.assertIn("```\nline 1\nline 2\nline 3\nline 4\n```", text_in_article(f"<pre>{rows}</pre>"))

    def test_formulas_are_read_from_data_attributes_and_drawing_services(self) -> None:
        text = text_in_article(
            '<p>So <span data-math="x^2"><span class="katex"><span class="katex-html">x2</span></span></span> and '
            '<img src="https://latex.codecogs.com/svg.image?%5Cfrac%7Ba%7D%7Bb%7D">.</p>')
        self.assertIn("So $x^2$ and $\\frac{a}{b}$.", text)

    def test_whitespace_of_code_is_kept(self) -> None:
        text = text_in_article(
            '<pre><code class="language-python">def f(x):\n    if x &lt; 1:\n\treturn "tab"\n\n    return x  # two  spaces\n</code></pre>')
        self.assertIn('```python\ndef f(x):\n    if x < 1:\n\treturn "tab"\n\n    return x  # two  spaces\n```', text)

    def test_fence_is_longer_than_the_ticks_inside(self) -> None:
        self.assertIn("````\n```\ninner\n```\n````", text_in_article("<pre>```\ninner\n```</pre>"))

    def test_inline_code_with_a_tick_gets_two(self) -> None:
        self.assertIn("Call `run()` and ``a`b`` now.", text_in_article("<p>Call <code>run()</code> and <code>a`b</code> now.</p>"))

    def test_line_numbers_beside_code_are_left_out(self) -> None:
        text = text_in_article(
            '<table><tr><td class="gutter"><pre>1<br>2</pre></td><td class="code"><pre>BOOL Add(<br>);</pre></td></tr></table>')
        self.assertIn("```\nBOOL Add(\n);\n```", text)
        self.assertNotIn("1", text)

    def test_code_in_a_list_item_stays_in_the_item(self) -> None:
        text = text_in_article("<ol><li>Run it:<pre>make\n  all</pre></li><li>Wait.</li></ol>")
        self.assertIn("1. Run it:\n\n   ```\n   make\n     all\n   ```\n2. Wait.", text)


class Tables(unittest.TestCase):
    def test_pipes_are_escaped_and_rows_padded(self) -> None:
        text = text_in_article(
            "<table><tr><th>Name<th>Value</tr><tr><td>a|b<td><code>x|y</code></tr><tr><td colspan=2>wide</tr><tr><td>k</tr></table>")
        self.assertIn("| Name | Value |\n| --- | --- |\n| a\\|b | `x\\|y` |\n| wide |  |\n| k |  |", text)

    def test_blocks_in_a_cell_share_a_line(self) -> None:
        text = text_in_article("<table><tr><th>A<th>B</tr><tr><td><p>one</p><p>two</p><td><ul><li>x<li>y</ul></tr></table>")
        self.assertIn("| one two | x y |", text)

    def test_table_without_a_head_gets_an_empty_one(self) -> None:
        self.assertIn("|  |  |\n| --- | --- |\n| no | head |", text_in_article("<table><tr><td>no<td>head</table>"))

    def test_layout_table_becomes_prose(self) -> None:
        text = text_in_article('<table role="presentation"><tr><td><p>Left side.</p></td><td><p>Right side.</p></td></tr></table>')
        self.assertIn("Left side.\n\nRight side.", text)


class ListsAndInline(unittest.TestCase):
    def test_unclosed_items_and_nesting(self) -> None:
        self.assertIn("- alpha\n- beta\n  1. one\n  2. two\n- gamma",
                      text_in_article("<ul><li>alpha<li>beta<ol><li>one<li>two</ol><li>gamma</ul>"))

    def test_task_boxes(self) -> None:
        self.assertIn("- [x] done\n- [ ] open",
                      text_in_article("<ul><li><input type=checkbox checked> done<li><input type=checkbox> open</ul>"))

    def test_blanks_move_out_of_emphasis(self) -> None:
        self.assertIn("a **bold** word and *more*text", text_in_article("<p>a<b> bold </b>word and <i>more</i>text</p>"))

    def test_link_in_bold_and_code_in_link(self) -> None:
        self.assertIn(
            "**This is [a link](https://docs.example.test/) here** and [`g`](https://docs.example.test/g)",
            text_in_article('<p><b>This is <a href="/">a link</a> here</b> and <a href="/g"><code>g</code></a></p>'))

    def test_powers_do_not_melt_into_their_base(self) -> None:
        self.assertIn("10<sup>6</sup> and H<sub>2</sub>O", text_in_article("<p>10<sup>6</sup> and H<sub>2</sub>O</p>"))

    def test_permalinks_leave_headings(self) -> None:
        text = text_in_article(
            '<h2>Install<a class="headerlink" href="#i">¶</a></h2><p>Do it now, please, and tell.</p><h2><a href="#u">#</a> Usage</h2>'
            '<p>Use it as you like it.</p><h2 id="c">C#<a href="#c"></a></h2><p>It is sharp, they say.</p>')
        self.assertEqual([line for line in text.split("\n") if line.startswith("#")], ["## Install", "## Usage", "## C#"])

    def test_formula_comes_once_as_tex(self) -> None:
        text = text_in_article(
            '<p>So <span class="katex"><span class="katex-mathml"><math><semantics><mi>n</mi><annotation encoding="application/x-tex">'
            'n^2</annotation></semantics></math></span><span class="katex-html" aria-hidden="true">n2</span></span> it is.</p>')
        self.assertIn("So $n^2$ it is.", text)

    def test_signs_of_markdown_in_prose_are_escaped(self) -> None:
        self.assertIn(r"2 * 3, snake_case, \*\*kwargs and \_x", text_in_article("<p>2 * 3, snake_case, **kwargs and _x</p>"))


class LinksAndImages(unittest.TestCase):
    def test_links_are_resolved_against_the_first_base(self) -> None:
        got = page(
            f'<main>{PROSE}<p>Go <a href="de/a.html">A</a> <a href="../up.html">Up</a> <a href="//cdn.test/x">C</a> <a href="?q=1">Q</a> '
            '<a href=" /space page.html ">S</a> <a href="mailto:a@b.test">M</a> <a href="javascript:void(0)">J</a> <a href="#part">P</a> on.</p>'
            f"{PROSE}</main>", '<title>T</title><base href="/"><base href="/second/">').text
        self.assertIn(
            "Go [A](https://docs.example.test/de/a.html) [Up](https://docs.example.test/up.html) [C](https://cdn.test/x) "
            "[Q](https://docs.example.test/?q=1) [S](https://docs.example.test/space%20page.html) [M](mailto:a@b.test) J P on.", got)

    def test_brackets_in_addresses(self) -> None:
        text = text_in_article('<p>See <a href="/Foo_(bar)">wiki</a> and <a href="/;-)/p.html">smile</a>, both of them.</p>')
        self.assertIn("(https://docs.example.test/Foo_(bar))", text)
        self.assertIn("(https://docs.example.test/;-%29/p.html)", text)

    def test_lazy_image_comes_once_and_data_never(self) -> None:
        text = text_in_article(
            '<p>Before it all.</p><img alt="Logo" src="data:image/png;base64,iVBOR"><img alt="Chart" src="data:image/gif;base64,R0" '
            'data-src="/i/chart.png"><noscript><img alt="Chart" src="/i/chart.png"></noscript><img src="/p.gif" width=1 height=1 alt="">')
        self.assertEqual(text.count("![Chart](https://docs.example.test/i/chart.png)"), 1)
        self.assertNotIn("base64", text)
        self.assertNotIn("p.gif", text)

    def test_further_links_are_those_the_text_does_not_show(self) -> None:
        got = page(f'<nav><a href="/a">Alpha</a><a href="/a">Alpha again</a><a href="#x">X</a></nav><main>{PROSE}<p>See <a href="/b">beta</a> '
                   f"for what else there is.</p>{PROSE}</main>")
        self.assertEqual(got.links, (websearch.Link("Alpha", "https://docs.example.test/a"),))


class HiddenText(unittest.TestCase):
    FORMS = (
        "<div hidden>SECRET</div>", '<p style="display:none">SECRET</p>', '<span style="color:#fff; DISPLAY : NONE !important">SECRET</span>',
        '<p style="visibility:hidden">SECRET</p>', '<p style="opacity:0">SECRET</p>', '<p style="font-size:0">SECRET</p>',
        '<p style="position:absolute;left:-9999px">SECRET</p>', '<p style="text-indent:-9999px">SECRET</p>',
        '<div style="position:absolute;clip:rect(0 0 0 0);width:1px;height:1px;overflow:hidden">SECRET</div>',
        '<span style="color:#fff;background:#fff">SECRET</span>', "<template><p>SECRET</p></template>", "<noframes>SECRET</noframes>",
        "<!-- SECRET -->", '<input type="hidden" value="SECRET">', '<p title="SECRET">.</p>', '<span class="sr-only">SECRET</span>',
        "<svg><text>SECRET</text></svg>", "<script>SECRET</script>", "<style>SECRET</style>", "<textarea>SECRET</textarea>")

    def test_no_form_of_hidden_text_is_shown(self) -> None:
        for form in self.FORMS:
            with self.subTest(form=form):
                self.assertNotIn("SECRET", text_in_article(f"<p>A line before the form.</p>{form}"))

    def test_hidden_text_does_not_come_back_on_an_empty_page(self) -> None:
        for form in self.FORMS[:3]:
            with self.subTest(form=form):
                self.assertEqual(page(form).text, "")

    def test_what_is_only_faint_or_folded_is_shown(self) -> None:
        text = text_in_article(
            '<p style="opacity:.9">Faint words stay.</p><p style="font-size:.9em">Small words stay.</p><details><summary>More</summary>'
            "<p>Folded but real words.</p></details>")
        for words in ("Faint words stay.", "Small words stay.", "Folded but real words."):
            self.assertIn(words, text)

    def test_page_veiled_as_a_whole_is_shown_but_not_what_it_hides(self) -> None:
        text = page(f'<div style="visibility:hidden;opacity:0">{PROSE}<p style="display:none">SECRET</p></div>').text
        self.assertIn("heartbeat once a second", text)
        self.assertNotIn("SECRET", text)

    def test_invisible_characters_are_removed(self) -> None:
        text = text_in_article("<p>a\u202eb\u200bc\U000e0041d\x1b[31m and more words of it.</p>")
        self.assertIn("abcd[31m and more", text)


class DocumentShapes(unittest.TestCase):
    def test_signs_inside_quoted_attributes_do_not_end_the_tag(self) -> None:
        self.assertIn("After it.", text_in_article('<p data-x="a > b" title=\'q " <p> q\'>After it.</p>'))

    def test_odd_comments_end_where_browsers_end_them(self) -> None:
        text = text_in_article("<!-- a -- b > c --><p>One is here.</p><!--><p>Two is here.</p><!-- <script> --><p>Three is here.</p>")
        for words in ("One is here.", "Two is here.", "Three is here."):
            self.assertIn(words, text)

    def test_title_is_text_whatever_it_holds(self) -> None:
        self.assertEqual(page(PROSE, "<title>Use <b> tags &amp; more</title>").title, "Use <b> tags & more")

    def test_site_name_leaves_the_title(self) -> None:
        self.assertEqual(page(f"<h1>Queues</h1>{PROSE}", "<title>Queues — Example Docs</title>").title, "Queues")

    def test_frames_are_listed_as_links(self) -> None:
        got = websearch.extract_html("<html><head><title>Manual</title></head><frameset><frame src=body.html></frameset></html>", URL)
        self.assertIn("(https://docs.example.test/guide/body.html)", got.text)

    def test_meta_refresh_is_told_with_its_target(self) -> None:
        notes = page("<p>Moved.</p>", '<meta http-equiv="refresh" content="0; url=/new">').notes
        self.assertIn("https://docs.example.test/new", " ".join(notes))

    def test_empty_shell_says_that_it_needs_javascript(self) -> None:
        got = page('<div id="root"></div><noscript>You need to enable JavaScript to run this app.</noscript><script src="/b.js"></script>')
        self.assertTrue(got.needs_javascript)
        self.assertFalse(got.readable)
        self.assertIn("JavaScript", " ".join(got.notes))

    def test_short_page_is_no_shell(self) -> None:
        got = page("<p>OK</p>")
        self.assertEqual((got.text, got.needs_javascript, got.readable, got.notes), ("OK", False, True, ()))

    def test_text_of_a_shell_is_taken_from_its_data(self) -> None:
        body = "The whole body of the post is only inside this JSON blob, as single page apps do it."
        got = page('<div id="__next"></div><script id="__NEXT_DATA__" type="application/json">'
                   + json.dumps({"props": {"post": {"title": "Hello", "content": body}}}) + "</script>")
        self.assertEqual((got.text, got.needs_javascript), (body, False))

    def test_markdown_twin_and_canonical_address_are_told(self) -> None:
        got = page(PROSE, '<link rel=canonical href="/c"><link rel=alternate type="text/markdown" href="page.md">')
        self.assertEqual((got.canonical_url, got.alternate_url),
                         ("https://docs.example.test/c", "https://docs.example.test/guide/page.md"))


class TreeHelpers(unittest.TestCase):
    def test_elements_are_found_by_tag_and_class(self) -> None:
        root = websearch.parse_html('<div class="a b"><a class=b href="x&amp;y">One <b>two</b></a></div><p class="b">Three</p>')
        self.assertEqual([element.tag for element in websearch.elements(root, class_name="b")], ["div", "a", "p"])
        link = next(websearch.elements(root, "a"))
        self.assertEqual((websearch.attribute(link, "href"), websearch.text_of_element(link)), ("x&y", "One two"))


class HostileInput(unittest.TestCase):
    SIZE = 120_000

    def floods(self) -> List[str]:
        units = (
            "<div>", "<b>", "<a ", "<", "<!-- a -", "<![CDATA[", "<script>", '<a href="', "<a b='c\" ", "<p title=\"x>y' >z", "<table><tr><td>",
            "<ul><li>x", "<blockquote>x", "<tr><td>a", "<td colspan=1000>a", "[", "](", "*_", "&amp;&#x41;&bogus;", "<dt>a<dd>b", "<p>x<br>",
            "<a><div></a>", "<code>`</code>", "<h1>", "<math>", "<details><summary>x</summary>", "<nav>", "<p>some words</p>",
            "<style>.a{display:none}", "<title>", "`", " \n", "<select><option>", "<noscript>", "<img src=/i.png alt=a>")
        return [unit * (self.SIZE // len(unit)) for unit in units] + [
            "<p " + "a=b " * (self.SIZE // 4) + ">x", "<p>&#" + "1" * self.SIZE + ";", "<p>" + "x" * self.SIZE, "<!--" + "x" * self.SIZE,
            "<table><tr>" + "<td>a" * 20_000 + "<tr><td>b" * 20_000, "<script type='application/ld+json'>" + "[" * self.SIZE]

    def test_floods_are_read_in_time_that_grows_with_their_size(self) -> None:
        for flood in self.floods():
            with self.subTest(flood=flood[:30]):
                start = time.process_time()
                got = websearch.extract_html(flood, URL)
                self.assertLess(time.process_time() - start, 4.0)  # a quadratic path takes minutes
                self.assertLess(len(got.text), 20 * self.SIZE)

    def test_a_page_with_too_many_elements_is_cut_and_says_so(self) -> None:
        got = websearch.extract_html("<b>" * 100_000, URL)
        self.assertTrue(got.truncated)
        self.assertIn("only the beginning was read", " ".join(got.notes))

    def test_collector_is_left_as_it_was(self) -> None:
        for enabled in (False, True):
            (gc.enable if enabled else gc.disable)()
            try:
                websearch.extract_html(PROSE, URL)
                self.assertEqual(gc.isenabled(), enabled)
            finally:
                gc.enable()


if __name__ == "__main__":
    unittest.main()
