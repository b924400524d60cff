"""Windows, outline and focus: pure functions on the text of a page."""
from __future__ import annotations

import random
import re
import time
import unittest
from typing import List

import websearch
from websearch import cut_page, focus_passages, outline

CODE = "\n".join(f"line {number}" for number in range(100))


def original(text: str, window: websearch.Window, offset: int) -> str:
    """What of the page a plain window holds: its characters after a repeated fence, up to where it ends."""
    shown = window.text
    first, _, rest = shown.partition("\n")
    if first.endswith("[continued]"):
        shown = rest
    end = len(text) if window.next_offset is None else window.next_offset
    return shown[:end - offset]


def random_page(chance: random.Random) -> str:
    """Headings, paragraphs, very long lines and code blocks, some indented or never closed."""
    lines: List[str] = []
    for _ in range(chance.randint(1, 50)):
        kind = chance.randrange(6)
        if kind == 0:
            lines.append("#" * chance.randint(1, 4) + " Heading")
        elif kind == 1:
            indent, fence = chance.choice(["", "  ", "> "]), chance.choice(["```", "````", "~~~"])
            lines += [indent + fence + chance.choice(["", "python"])]
            lines += [f"{indent}code {number}" for number in range(chance.randint(0, 60))]
            lines += [indent + fence] * chance.choice([1, 1, 1, 0])
        elif kind == 2:
            lines.append("𝔘x" * chance.randint(100, 1500))
        else:
            lines += ["words " * chance.randint(1, 60), ""]
    return "\n".join(lines)


class WindowTest(unittest.TestCase):
    def test_page_that_fits_comes_whole(self) -> None:
        self.assertEqual(cut_page("a\nb", 3, 0), websearch.Window("a\nb", False, 3, None))

    def test_first_window_of_a_long_page_is_head_marker_and_tail(self) -> None:
        text = "".join(f"line {number:04d}\n" for number in range(1000))
        window = cut_page(text, 1000, 0)
        head, marker, tail = re.fullmatch(r"([\s\S]*?)\n\[(TRUNCATED[^\n]*)\]\n\n([\s\S]*)", window.text).groups()  # type: ignore[union-attr]
        self.assertEqual((head, tail), (text[:680], text[-220:]))
        self.assertEqual(marker, "TRUNCATED: 9,100 of 10,000 characters left out here; continue with offset=680")
        self.assertEqual(window[1:], (True, 10000, 680))

    def test_later_windows_are_plain_and_end_at_line_ends(self) -> None:
        text = "".join(f"line {number:04d}\n" for number in range(1000))
        self.assertEqual(cut_page(text, 1005, 750), websearch.Window(text[750:1750], True, 10000, 1750))
        self.assertEqual(cut_page(text, 500, 9900), websearch.Window(text[9900:], False, 10000, None))

    def test_offset_past_the_end_is_an_empty_window(self) -> None:
        for offset in (3, 4, 10**12):
            self.assertEqual(cut_page("abc", 500, offset), websearch.Window("", False, 3, None))

    def test_line_longer_than_the_window_is_cut_hard(self) -> None:
        window = cut_page("first\n" + "字" * 3000, 1000, 6)
        self.assertEqual(window, websearch.Window("字" * 1000, True, 3006, 1006))

    def test_surrogate_pair_is_never_parted(self) -> None:
        text = "x" + "\ud83d\ude80" * 1000
        self.assertEqual(cut_page(text, 501, 1).next_offset, 503)

    def test_code_block_is_closed_and_opened_again(self) -> None:
        text = f"before\n\n```python\n{CODE}\n```\nafter\n" + "end\n" * 100
        first = cut_page(text, 400, 0)
        self.assertRegex(first.text, r"line \d+\n```\n\n\[TRUNCATED")
        second = cut_page(text, 400, first.next_offset or 0)
        self.assertTrue(second.text.startswith("```python [continued]\nline "))
        self.assertTrue(second.text.endswith("\n```"))
        self.assertLessEqual(len(second.text), 400)

    def test_code_block_in_a_list_keeps_its_indent(self) -> None:
        text = "- item\n\n  ```sh\n" + "".join(f"  {line}\n" for line in CODE.split("\n")) + "  ```\n"
        self.assertTrue(cut_page(text, 300, 300).text.startswith("  ```sh [continued]\n"))

    def test_inline_code_and_shorter_fences_do_not_count_as_fences(self) -> None:
        text = "``` not `a` fence ```\n````md\n```\ninside\n````\nout\n"
        fences = websearch.fences_of(text)
        self.assertEqual([text[fence.start:fence.end] for fence in fences], ["````md\n```\ninside\n````"])

    def test_windows_concatenate_to_the_page_within_the_limit(self) -> None:
        chance = random.Random(7)
        for _ in range(300):
            text, limit = random_page(chance), chance.randint(150, 3000)
            window = cut_page(text, limit, 0)
            end = len(text) if window.next_offset is None else window.next_offset
            collected = window.text[:end]
            self.assertLessEqual(len(window.text), limit)
            while window.next_offset is not None:
                offset = window.next_offset
                window = cut_page(text, limit, offset)
                self.assertLessEqual(len(window.text), limit)
                collected += original(text, window, offset)
            self.assertEqual(collected, text)

    def test_paging_takes_linear_time(self) -> None:
        for text in ("`" * 250_000, "```\n" * 50_000, "\n" * 250_000, "# a\n" * 50_000, "> " * 125_000, "](" * 125_000):
            with self.subTest(text[:4]):
                started = time.process_time()
                cut_page(text, 15_000, 0)
                cut_page(text, 15_000, 200_000)
                outline(text)
                focus_passages(text, "anything at all", 15_000)
                self.assertLess(time.process_time() - started, 4.0)


class OutlineTest(unittest.TestCase):
    def test_headings_with_offsets_but_not_those_in_code(self) -> None:
        text = "# Title\n\n```sh\n# comment\n```\n\n## Install ##\n\n#hashtag\n"
        self.assertEqual(outline(text), [{"heading": "# Title", "offset": 0}, {"heading": "## Install ##", "offset": text.index("## Install")}])

    def test_deepest_levels_go_first_when_there_are_too_many(self) -> None:
        text = "# Top\n" + "".join(f"## Part {number}\n### Detail {number}\n" for number in range(30))
        found = [entry["heading"] for entry in outline(text, 41)]
        self.assertEqual(len(found), 41)
        self.assertEqual(sum(heading.startswith("## ") for heading in found), 30)
        self.assertEqual(found[:3], ["# Top", "## Part 0", "### Detail 0"])


class FocusTest(unittest.TestCase):
    def page(self) -> str:
        filler = "\n\n".join(f"Ordinary sentence number {number} about nothing in particular." for number in range(40))
        return (f"# Manual\n\n{filler}\n\n## Retries\n\nA failed job is put back with a growing delay.\n\n```python\nretry(max_attempts=5)\n```"
                f"\n\n## Limits\n\n{filler}\n\n| Name | Value |\n|---|---|\n| worker_timeout | 30 s |\n\n{filler}\n")

    def test_page_that_fits_comes_whole(self) -> None:
        self.assertEqual(focus_passages("short page", "anything", 500), websearch.Window("short page", False, 10, None))

    def test_passage_comes_with_its_heading_and_gap_lines(self) -> None:
        text = self.page()
        window = focus_passages(text, "How long are failing jobs delayed?", 600)
        self.assertIn("\n\n## Retries\n\nA failed job is put back with a growing delay.", window.text)
        self.assertLessEqual(len(window.text), 600)
        gaps = re.findall(r"^\[… ([\d,]+) characters left out, offset=(\d+) …\]$", window.text, re.M)
        self.assertEqual((gaps[0][1], *window[1:]), ("0", True, len(text), None))
        shown = sum(len(text) for text in re.split(r"\n*\[…[^\n]*\n*", window.text))
        left_out = sum(int(count.replace(",", "")) for count, _ in gaps)
        self.assertAlmostEqual(shown + left_out, len(text), delta=30)

    def test_code_and_tables_are_found_and_kept_whole(self) -> None:
        text = self.page()
        self.assertIn("```python\nretry(max_attempts=5)\n```", focus_passages(text, "max attempts", 600).text)
        self.assertIn("| Name | Value |\n|---|---|\n| worker_timeout | 30 s |", focus_passages(text, "timeout of a worker", 600).text)

    def test_rows_of_a_long_table_come_with_its_head(self) -> None:
        rows = "".join(f"| option_{number} | default {number} |\n" for number in range(300))
        text = f"# Options\n\n| Name | Default |\n|---|---|\n{rows}"
        shown = focus_passages(text, "option_250", 600).text
        self.assertIn("| Name | Default |\n|---|---|\n", shown)
        self.assertIn("| option_250 | default 250 |", shown)

    def test_text_without_blanks_between_words_is_searched_by_bigrams(self) -> None:
        filler = "\n\n".join(f"これは第{number}番の普通の段落である。" for number in range(80))
        text = f"{filler}\n\n再試行の間隔は毎回二倍になる。\n\n{filler}"
        self.assertIn("再試行の間隔は毎回二倍になる。", focus_passages(text, "再試行の間隔", 300).text)

    def test_passages_stand_in_page_order(self) -> None:
        shown = focus_passages(self.page(), "worker_timeout retry delay", 900).text
        self.assertLess(shown.index("growing delay"), shown.index("worker_timeout"))

    def test_no_match_says_so_and_gives_the_ordinary_cut(self) -> None:
        text = self.page()
        window = focus_passages(text, "zebra crossing", 600)
        self.assertRegex(window.text, r"^\[No passage of this page matches the focus “zebra crossing”[^\n]*\]\n\n# Manual\n")
        self.assertIn("[TRUNCATED", window.text)
        self.assertTrue(window.truncated)

    def test_part_of_a_long_code_block_has_its_fences(self) -> None:
        text = "intro\n\n```python\n" + "\n".join(f"value_{number} = {number}" for number in range(500)) + "\n```\n"
        shown = focus_passages(text, "value_321", 600).text
        self.assertIn("value_321 = 321", shown)
        self.assertIn("```python [continued]\n", shown)
        self.assertEqual(len(re.findall(r"^```", shown, re.M)) % 2, 0)

    def test_limits_hold_for_any_page_and_need(self) -> None:
        chance = random.Random(3)
        for _ in range(150):
            text, limit = random_page(chance), chance.randint(300, 2500)
            window = focus_passages(text, chance.choice(["code 7", "words heading", "𝔘x", "?", ""]), limit)
            self.assertLessEqual(len(window.text), limit + 150)
            self.assertEqual(window.total_chars, len(text))


if __name__ == "__main__":
    unittest.main()
