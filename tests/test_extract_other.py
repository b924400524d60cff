"""The extractor for all that is not HTML: encodings, types, JSON, feeds, sitemaps, XML, PDF, binary."""
from __future__ import annotations

import base64
import json
import random
import time
import unittest
import zlib
from typing import ClassVar, Dict

import websearch
from websearch import decode_text, extract, sniff_content_type

RUSSIAN = "Все люди рождаются свободными и равными в своем достоинстве и правах."
CHINESE = "人人生而自由，在尊严和权利上一律平等。他们赋有理性和良心，并应以兄弟关系的精神相对待。"
TAIWANESE = "人人生而自由，在尊嚴和權利上一律平等。他們賦有理性和良心，並應以兄弟關係的精神互相對待。"
JAPANESE = "すべての人間は、生まれながらにして自由であり、かつ、尊厳と権利とについて平等である。"
KOREAN = "모든 인간은 태어날 때부터 자유로우며 그 존엄과 권리에 있어 동등하다."
FRENCH = "Tous les êtres humains naissent libres et égaux en dignité et en droits."
POLISH = "Wszyscy ludzie rodzą się wolni i równi pod względem swej godności i swych praw."


def html(body: bytes, content_type: str = "text/html") -> str:
    return decode_text(body, content_type, is_html=True)


class EncodingTest(unittest.TestCase):
    def test_byte_order_mark_beats_the_header(self) -> None:
        self.assertEqual(html(b"\xef\xbb\xbfna\xc3\xafve", "text/html; charset=iso-8859-1"), "naïve")
        self.assertEqual(html(b"\xff\xfe" + "naïve".encode("utf-16-le")), "naïve")

    def test_header_beats_meta(self) -> None:
        body = b'<meta charset="utf-8"><p>' + "文字化け".encode("cp932")
        self.assertIn("文字化け", html(body, 'text/html; charset="Shift_JIS"'))

    def test_meta_counts_but_not_in_comments_scripts_or_titles(self) -> None:
        decoys = b'<!-- <meta charset="koi8-r"> --><script>"<meta charset=koi8-r>"</script><title><meta charset=koi8-r></title>'
        body = decoys + b'<META http-equiv=Content-Type content="text/html; charset=windows-1251">' + RUSSIAN.encode("cp1251")
        self.assertIn(RUSSIAN, html(body))

    def test_meta_means_nothing_outside_of_html(self) -> None:
        body = b'<meta charset="koi8-r">' + "é".encode()
        self.assertEqual(decode_text(body, "text/plain", is_html=False), '<meta charset="koi8-r">é')

    def test_xml_declaration_counts(self) -> None:
        body = b'<?xml version="1.0" encoding="gbk"?><p>' + CHINESE.encode("gbk")
        self.assertIn(CHINESE, decode_text(body, "application/xml", is_html=False))

    def test_labels_mean_what_browsers_take_them_for(self) -> None:
        for label, codec, text in (("gb2312", "gb18030", "𠀀€"), ("latin1", "cp1252", "“€”"), ("euc-kr", "cp949", "똠"),
                                   ("iso-8859-9", "cp1254", "ğ“"), ("tis-620", "cp874", "ก“"), ("sjis", "cp932", "①㈱髙"),
                                   ("big5", "big5hkscs", "嘅"), ("x-sjis", "cp932", "髙"), ("ISO88592", "iso8859_2", "ł"),
                                   ("csiso88598e", "iso8859_8", "א"), ("windows-874", "cp874", "ก"), ("x-mac-cyrillic", "mac_cyrillic", "Ж")):
            with self.subTest(label):
                self.assertEqual(html(text.encode(codec), f"text/html; charset={label}"), text)

    def test_labels_that_no_page_may_choose_are_ignored(self) -> None:
        for label in ("utf-7", "punycode", "unicode_escape", "hex", "rot13", "x-nonsense", "zlib", "idna"):
            with self.subTest(label):
                self.assertEqual(html("naïve +ADw-".encode(), f"text/html; charset={label}"), "naïve +ADw-")

    def test_meta_utf16_means_utf8(self) -> None:
        self.assertIn("równi", html('<meta charset="utf-16">równi'.encode()))

    def test_one_bad_byte_or_a_cut_end_does_not_throw_utf8_back(self) -> None:
        self.assertEqual(html(POLISH.encode() + b" \xff ok"), POLISH + " \ufffd ok")
        self.assertEqual(html(JAPANESE.encode()[:-1]), JAPANESE[:-1] + "\ufffd")

    def test_undeclared_legacy_encodings_are_guessed(self) -> None:
        for text, codec in ((RUSSIAN, "cp1251"), (RUSSIAN, "koi8_r"), (RUSSIAN, "cp866"), (RUSSIAN, "iso8859_5"),
                            (CHINESE, "gbk"), (TAIWANESE, "big5"), (JAPANESE, "cp932"), (JAPANESE, "euc_jp"),
                            (KOREAN, "euc_kr"), (FRENCH, "cp1252"), (POLISH, "iso8859_2"), (POLISH, "cp1250")):
            with self.subTest(codec):
                self.assertIn(text, html(f"<title>{text}</title><p>ASCII words {text}</p>".encode(codec)))

    def test_utf8_under_a_latin1_label_is_read_as_utf8(self) -> None:
        self.assertEqual(html(FRENCH.encode(), "text/html; charset=iso-8859-1"), FRENCH)

    def test_gaps_of_windows_1252_are_controls_not_replacement_characters(self) -> None:
        self.assertEqual(html(b"a\x81\x9db \x80", "text/html; charset=windows-1252"), "a\x81\x9db €")


class TypeTest(unittest.TestCase):
    def test_bytes_decide_where_the_declared_type_cannot_be_true(self) -> None:
        png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"
        for body, declared, expected in (
            (png, "text/plain", "image/png"), (png, "", "image/png"), (b"%PDF-1.4\n1 0 obj", "text/html", "application/pdf"),
            (b"PK\x03\x04\x14\0", "application/octet-stream", "application/zip"), (b"\x1f\x8b\x08\0", "", "application/gzip"),
            (b"a\0b\0c\0" * 50, "text/plain", "application/octet-stream"),
            (b"<p>bold\x08\x08 \x0c\x1b" * 9, "text/html", "text/html"), (b"bold\x08\x08" * 9, "", "application/octet-stream"),
            (b"<!doctype html><p>x", "application/pdf", "text/html"), (b"<!DOCTYPE html><p>x", "", "text/html"),
            (b"  <!-- c --><h1>x</h1>", "application/octet-stream", "text/html"), (b"GIF89a is a format", "text/plain", "text/plain"),
        ):
            with self.subTest(body=body[:20], declared=declared):
                self.assertEqual(sniff_content_type(body, declared, "https://example.org/x"), expected)

    def test_html_that_is_declared_plain_stays_plain(self) -> None:
        page = extract(b"<h1>not a heading</h1>\n", "text/plain", "https://example.org/x")
        self.assertEqual((page.content_type, page.text), ("text/plain", "<h1>not a heading</h1>\n"))

    def test_feeds_and_json_under_text_html_are_recognised(self) -> None:
        rss = b'<?xml version="1.0"?><!-- c --><rss version="2.0"><channel><title>T</title></channel></rss>'
        for body, declared, expected in ((rss, "text/html", "application/rss+xml"), (rss, "text/xml", "application/rss+xml"),
                                         (b'{"a": 1}', "text/html", "application/json"),
                                         (b"[home] <p>x", "text/html", "text/html")):
            with self.subTest(declared=declared, body=body[:10]):
                self.assertEqual(sniff_content_type(body, declared, ""), expected)

    def test_extension_of_the_url_is_the_last_resort(self) -> None:
        self.assertEqual(sniff_content_type(b"# Title", "", "https://example.org/README.md?raw=1#x"), "text/markdown")

    def test_utf16_text_is_not_binary(self) -> None:
        page = extract("words in UTF-16".encode("utf-16-le"), "text/plain; charset=utf-16le", "https://example.org/x")
        self.assertEqual(page.text, "words in UTF-16")


class PlainTest(unittest.TestCase):
    def test_text_formats_come_word_for_word(self) -> None:
        text = "# Title\n\n* item with_under_scores\n* [x](y)\n\n\tcode <b> &amp; \\* end  \n"
        for kind in ("text/markdown", "text/csv", "application/yaml", "text/x-python", "application/javascript", "application/x-sh"):
            with self.subTest(kind):
                self.assertEqual(extract(text.encode(), kind, "https://example.org/x").text, text)

    def test_short_json_comes_word_for_word(self) -> None:
        text = '{"key": "<b>not html</b>", "n": [1, 2.50, 12345678901234567890], "n": null}'
        for kind in ("application/json", "application/problem+json", "text/html"):
            with self.subTest(kind):
                self.assertEqual(extract(text.encode(), kind, "https://example.org/x").text, text)

    def test_long_lines_of_json_are_indented_without_changing_a_token(self) -> None:
        value = {"name": "x" * 90, "list": [{"a": [1, 2]}, {"b": "y" * 90}], "empty": {}, "one": 1}
        text = json.dumps(value, separators=(",", ":")).replace('"one":1', '"one":1.10,"one":1e5')
        shown = extract(text.encode(), "application/json", "https://example.org/x").text
        self.assertEqual("".join(shown.split()), text)
        self.assertIn('\n    {"a": [1, 2]},\n', shown)
        self.assertIn('"one": 1.10,\n  "one": 1e5\n}', shown)

    def test_broken_json_and_json_lines_come_as_they_are(self) -> None:
        for text in ('{"a": ' + "x" * 300, ('{"a":"' + "b" * 250 + '"}\n') * 3, "[" * 5000):
            with self.subTest(text[:10]):
                self.assertEqual(extract(text.encode(), "application/json", "https://example.org/x").text, text)

    def test_binary_is_named_in_one_short_line(self) -> None:
        for body, declared, words in ((b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + bytes(9000), "image/png", ("PNG", "image/png", "9,016 bytes")),
                                      (b"PK\x03\x04" + bytes(50), "application/zip", ("zip archive", "54 bytes")),
                                      (bytes(range(256)), "application/x-thing", ("binary", "256 bytes")),
                                      (b"\xff\xfb\x90" + bytes(60), "audio/mpeg", ("MPEG audio", "63 bytes"))):
            with self.subTest(declared):
                page = extract(body, declared, "https://example.org/x")
                self.assertFalse(page.readable)
                self.assertEqual(len(page.text.splitlines()), 1)
                self.assertLess(len(page.text), 200)
                for word in words:
                    self.assertIn(word, page.text)

    def test_invisible_characters_go_and_are_counted(self) -> None:
        page = extract("a\u200bb\U000e0041\u202ec\r\nd\x00\x1b".encode(), "text/plain", "https://example.org/x")
        self.assertEqual(page.text, "abc\nd")
        self.assertEqual(page.notes, ("3 invisible characters (zero-width, bidi or tag characters) were removed.",))


class XmlTest(unittest.TestCase):
    def test_rss_shows_title_link_date_and_text_of_each_entry(self) -> None:
        page = extract(b'<?xml version="1.0"?><rss xmlns:media="m" version="2.0"><channel><title>Queue &amp; news</title><image>'
                       b"<title>Logo</title></image><link>https://example.org/</link><item><media:title>no</media:title>"
                       b"<title>Release <![CDATA[2.0]]></title><link>/r2?a=1&amp;b=2</link><pubDate>Mon, 05 Feb 2024 10:00:00 GMT"
                       b"</pubDate><description>&lt;p&gt;Now with &lt;b&gt;retries&lt;/b&gt;.&lt;/p&gt;</description></item>"
                       b"<item><title>Second</title><guid>https://example.org/s</guid></item></channel></rss>",
                       "application/rss+xml", "https://example.org/feed.xml")
        self.assertEqual(page.title, "Queue & news")
        self.assertEqual(page.published_date, "2024-02-05")
        self.assertEqual(page.text, "# Queue & news\n\n## [Release 2.0](https://example.org/r2?a=1&b=2)\n\n"
                         "Mon, 05 Feb 2024 10:00:00 GMT\n\nNow with **retries**.\n\n## [Second](https://example.org/s)")

    def test_atom_with_nested_xhtml_is_read(self) -> None:
        page = extract(b'<feed xmlns="http://www.w3.org/2005/Atom"><title>News</title><link rel="self" href="/feed"/><entry>'
                       b'<title type="html">A &amp;lt;b&amp;gt; tag</title><link rel="alternate" href="/e1"/><author><name>N</name>'
                       b'</author><updated>2024-02-05</updated><content type="xhtml"><div><p>First <content>inner</content></p>'
                       b"</div></content></entry></feed>", "text/html", "https://example.org/a.xml")
        self.assertIn("## [A <b> tag](https://example.org/e1)\n\n2024-02-05\n\nFirst inner", page.text)

    def test_links_of_feeds_are_decoded_once_and_not_made_up(self) -> None:
        page = extract(b"<feed><entry><title>T</title><link href='/a?b=1&amp;copy=2'/></entry><entry><title>U</title></entry></feed>",
                       "application/atom+xml", "https://example.org/f")
        self.assertEqual(page.text, "## [T](https://example.org/a?b=1&copy=2)\n\n## U")

    def test_links_of_feeds_are_http_only(self) -> None:
        page = extract(b"<rss><channel><item><title>T</title><link>javascript:alert(1)</link></item></channel></rss>", "text/xml", "")
        self.assertEqual(page.text, "## T")

    def test_sitemap_is_a_list_of_addresses(self) -> None:
        markup = ("<urlset xmlns:image='i'><!-- <url><loc>https://no.test/</loc></url> --><url><loc> https://example.org/1?a&amp;b </loc>"
                  "<lastmod>2024-01-01</lastmod><image:image><image:loc>https://example.org/i.png</image:loc></image:image></url>"
                  "<url><loc><![CDATA[https://example.org/2]]></loc></url></urlset>")
        page = extract(markup.encode(), "application/xml", "https://example.org/sitemap.xml")
        self.assertEqual(page.text, "- https://example.org/1?a&b\n- https://example.org/2")

    def test_other_xml_is_an_outline_of_text_and_attributes(self) -> None:
        page = extract(b'<?xml version="1.0"?><p:project id="7"><dep scope=\'test\'><groupId>a &lt; b</groupId></dep><x/></p:project>',
                       "application/xml", "")
        self.assertEqual(page.text, "project (id=7)\n  dep (scope=test)\n    groupId: a < b\n  x")

    def test_svg_gives_its_words(self) -> None:
        page = extract(b"<svg><title>Diagram</title><style>a{}</style><g><text>Worker <tspan>pool</tspan></text></g></svg>",
                       "image/svg+xml", "")
        self.assertEqual((page.title, page.text), ("Diagram", "Diagram\nWorker\npool"))

    def test_entities_of_the_document_are_not_expanded(self) -> None:
        bomb = b'<!DOCTYPE a [<!ENTITY x "ha"><!ENTITY y "&x;&x;"> ]><a>&y;&amp;</a>'
        self.assertEqual(extract(bomb, "text/xml", "").text, "a: &y;&")


def pdf(content: bytes, font: bytes = b"/Subtype/Type1/BaseFont/Helvetica/Encoding/WinAnsiEncoding", *, filters: bytes = b"",
        more: bytes = b"") -> bytes:
    """A file of one page with this content stream, font F1 and further objects from number 6 on."""
    return (b"%%PDF-1.4\n1 0 obj<</Type/Catalog/Pages 2 0 R>>endobj\n2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1/Resources<</Font<<"
            b"/F1 5 0 R>>>>>>endobj\n3 0 obj<</Type/Page/Parent 2 0 R/Contents 4 0 R>>endobj\n4 0 obj<<%s/Length %d>>stream\n%s\n"
            b"endstream endobj\n5 0 obj<</Type/Font%s>>endobj\n%s\ntrailer<</Root 1 0 R>>\n%%%%EOF"
            % (filters, len(content), content, font, more))


class PdfTest(unittest.TestCase):
    def text(self, body: bytes) -> str:
        return extract(body, "application/pdf", "https://example.org/a.pdf").text

    def test_positions_part_words_lines_and_paragraphs(self) -> None:
        shown = self.text(pdf(b"BT /F1 10 Tf 50 700 Td (Hello) Tj 60 0 Td (there,) Tj -60 -12 Td [(wor) 20 (ld) -300 (of \\(PDF\\))] TJ "
                              b"0 -40 Td (next \\351t\\351) Tj ET"))
        self.assertEqual(shown, "## Page 1\n\nHello there,\nworld of (PDF)\n\nnext été")

    def test_filters_are_undone(self) -> None:
        content = b"BT /F1 10 Tf (packed words) Tj ET"
        ascii85 = b"<~" + base64.a85encode(zlib.compress(content)) + b"~>"
        for filters, data in ((b"/Filter/FlateDecode", zlib.compress(content)), (b"/Filter[/ASCIIHexDecode]", content.hex().encode() + b">"),
                              (b"/Filter[/ASCII85Decode/FlateDecode]", ascii85),
                              (b"/Filter/LZWDecode", bytes.fromhex("800b6050220c0c8501") + b"")):
            with self.subTest(filters):
                if b"LZW" in filters:  # the example of ISO 32000-1, 7.4.4.2, decodes to -----A---B
                    self.assertEqual(websearch._from_lzw(data), b"-----A---B")
                else:
                    self.assertEqual(self.text(pdf(data, filters=filters)), "## Page 1\n\npacked words")

    def test_to_unicode_and_differences_name_the_letters(self) -> None:
        cmap = (b"1 begincodespacerange <0000> <ffff> endcodespacerange 1 beginbfchar <0001> <4f60> endbfchar "
                b"1 beginbfrange <0002> <0003> [<597d> <D83DDE80>] endbfrange")
        font = b"/Subtype/Type0/Encoding/Identity-H/ToUnicode 6 0 R"
        self.assertEqual(self.text(pdf(b"BT /F1 10 Tf <000100020003> Tj ET", font, more=b"6 0 obj<<>>stream\n" + cmap + b"\nendstream endobj")),
                         "## Page 1\n\n你好🚀")
        font = b"/Subtype/Type1/Encoding<</Differences[1/fi/eacute 7/uni4F60/quotedblleft]>>"
        self.assertEqual(self.text(pdf(b"BT /F1 10 Tf (\\001n\\002 \\007\\010A) Tj ET", font)), "## Page 1\n\nfiné 你“A")

    def test_object_streams_with_predictors_are_read(self) -> None:
        objects = b"1 0 2 34 <</Type/Catalog/Pages 2 0 R>>     <</Kids[3 0 R]>>"
        first = objects.index(b"<<")
        objects = objects.replace(b"2 34", b"2 %02d" % (objects.index(b"<</Kids") - first))
        rows = b"".join(b"\x02" + bytes(now - (objects[index - 8] if index >= 8 else 0) & 255 for index, now in enumerate(objects, 0))[start:start + 8]
                        for start in range(0, len(objects), 8))
        packed = zlib.compress(rows)
        body = (b"%%PDF-1.5\n9 0 obj<</Type/ObjStm/N 2/First %d/Filter/FlateDecode/DecodeParms<</Predictor 12/Columns 8>>/Length %d>>stream\n%s\n"
                b"endstream endobj 3 0 obj<</Type/Page/Contents 4 0 R/Resources<</Font<</F1<</Subtype/Type1>>>>>>>>endobj "
                b"4 0 obj<<>>stream\nBT /F1 9 Tf (from a packed tree) Tj ET\nendstream endobj 8 0 obj<</Type/XRef/Root 1 0 R>>endobj"
                % (first, len(packed), packed))
        self.assertEqual(self.text(body), "## Page 1\n\nfrom a packed tree")

    def test_what_has_no_text_is_named_not_shown(self) -> None:
        for body, reason in ((pdf(b"q 100 0 0 100 0 0 cm /Im1 Do Q"), "perhaps scanned"),
                             (pdf(b"BT (x) Tj ET", more=b"6 0 obj<</Encrypt 7 0 R>>endobj"), "encrypted"),
                             (pdf(b"BT /F1 9 Tf <00010002> Tj ET", b"/Subtype/Type0/Encoding/Identity-H"), "do not say which letters"),
                             (b"%PDF-1.7\nx\x9c\x01\xff", "no text"), (b"no pdf at all", "does not begin")):
            with self.subTest(reason):
                page = extract(body, "application/pdf", "")
                self.assertFalse(page.readable)
                self.assertRegex(page.text, rf"^\[PDF document, application/pdf, [\d,]+ bytes: [^\n]*{reason}[^\n]*\]$")

    def test_inline_images_and_drawings_in_drawings_are_passed(self) -> None:
        form = b"6 0 obj<</Subtype/Form/Resources<</XObject<</X 6 0 R>>/Font<</F1 5 0 R>>>>/Length 40>>stream\nBT /F1 9 Tf (in) Tj ET /X Do /X Do /X Do\nendstream"
        body = pdf(b"BI /W 1 ID (((BT \nEI BT /F1 9 Tf (out) Tj ET /X Do", more=form).replace(b"/Resources<<", b"/Resources<</XObject<</X 6 0 R>>", 1)
        self.assertRegex(self.text(body), r"^## Page 1\n\nout ?in")


class RobustnessTest(unittest.TestCase):
    SEEDS: ClassVar[Dict[str, bytes]] = {
        "application/pdf": pdf(b"BT /F1 10 Tf 50 700 Td [(a) -300 (b)] TJ ET"),
        "application/rss+xml": b'<rss><channel><title>a</title><item><link>/x</link><description><![CDATA[<p>b]]></description></item></channel></rss>',
        "application/json": b'{"version":"https://jsonfeed.org/version/1","items":[{"title":"a","content_html":"<p>b"}]}',
        "image/svg+xml": b"<svg><text>a&#x110000;</text></svg>",
        "text/plain": CHINESE.encode("gbk") + RUSSIAN.encode(),
    }

    def test_no_bytes_raise(self) -> None:
        chance = random.Random(20261130)
        pieces = [b"<<", b">>", b"[", b"(", b"\\", b"<!--", b"<![CDATA[", b"&#99999999999;", b"\0", b"\xff", b"endstream", b" 9999999999 ", b'"']
        for _ in range(600):
            kind, seed = chance.choice(list(self.SEEDS.items()))
            body = bytearray(seed)
            for _ in range(chance.randint(1, 12)):
                place = chance.randrange(len(body) + 1)
                body[place:place + chance.randint(0, 30)] = chance.choice(pieces)
            declared = chance.choice([kind, "", "text/html", "a/b", ";"])
            page = extract(bytes(body), declared, "https://[broken")
            page.text.encode("utf-8")

    def test_floods_take_linear_time(self) -> None:
        for kind, piece in (("text/xml", b'<a b="'), ("text/xml", b"<!-- "), ("text/xml", b"<a>"), ("text/xml", b"<![CDATA["), ("text/xml", b"<"),
                            ("application/rss+xml", b"<item><title>"), ("application/json", b"["), ("application/json", b'{"a":'),
                            ("", b"<!-- -->"), ("", b"\n"), ("text/plain", b"\xe9<meta "), ("text/xml", b"<urlset><loc>")):
            with self.subTest(kind=kind, piece=piece):
                started = time.process_time()
                extract(piece * (120_000 // len(piece)), kind, "")
                self.assertLess(time.process_time() - started, 3.0)

    def test_floods_in_pdf_end(self) -> None:
        for piece in (b"(", b"[", b"<<", b"1 ", b"/X Do ", b"7 0 obj<<", b"BI ID "):
            with self.subTest(piece):
                started = time.process_time()
                extract(pdf(piece * (40_000 // len(piece))), "application/pdf", "")
                self.assertLess(time.process_time() - started, 5.0)

    def test_rows_of_predictors_are_paid_for(self) -> None:
        for columns, rows in ((1, b"\2a" * 500_000), (1_000, (b"\4" + bytes(1_000)) * 1_000), (900_000_000, b"\2a")):
            with self.subTest(columns):
                packed, started = zlib.compress(rows), time.process_time()
                streams = b"".join(b"%d 0 obj<</Type/ObjStm/First 9/Filter/FlateDecode/DecodeParms<</Predictor 15/Columns %d>>/Length %d>>"
                                   b"stream\n%s\nendstream endobj " % (number, columns, len(packed), packed) for number in range(9, 25))
                self.assertFalse(extract(b"%PDF-1.5 " + streams, "application/pdf", "").readable)
                self.assertLess(time.process_time() - started, 5.0)


if __name__ == "__main__":
    unittest.main()
