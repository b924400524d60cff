"""Merging sources, the caches, and requests that share one run."""

from __future__ import annotations

import gc
import threading
import time
import unittest
import weakref
from typing import Any, Callable, List, Tuple

import websearch
from tests.support import wait_until
from websearch import Deadline, PageCache, SearchQuery, SingleFlight, Source, SourceCache, WebError


class Clock:
    """Time that passes only when told."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class MergeTest(unittest.TestCase):
    def test_sightings_of_one_page_become_one_source_that_shows_the_first_url(self) -> None:
        groups = [
            [Source("https://Example.com/a/?utm_source=x#top", provider="grok"), Source("https://example.com/b", "B")],
            [Source("https://example.com/a", "A", "about a", "2026-11-02", 0.5, "tavily", "text", True)],
        ]

        merged = websearch.merge_sources(groups)

        self.assertEqual(merged, (
            Source("https://Example.com/a/?utm_source=x#top", "A", "about a", "2026-11-02", None, "grok", "text", True),
            Source("https://example.com/b", "B"),
        ))

    def test_what_the_first_sighting_knows_is_kept(self) -> None:
        first = Source("https://a.test/", "one", "s", "2026-01-01", 0.9, "exa", "c", False)

        merged = websearch.merge_sources([[first], [Source("https://a.test", "two", "t", "2026-02-02", 0.1, "you", "d")]])

        self.assertEqual(merged, (first,))

    def test_a_missing_score_comes_only_from_the_same_provider(self) -> None:
        groups = [[Source("https://a.test/", provider="exa")], [Source("https://a.test/", score=0.3, provider="exa")]]

        self.assertEqual(websearch.merge_sources(groups)[0].score, 0.3)

    def test_http_and_https_are_different_pages(self) -> None:
        sources = [Source("http://a.test/"), Source("https://a.test/")]

        self.assertEqual(websearch.merge_sources([sources]), tuple(sources))

    def test_twenty_thousand_sources_merge_in_linear_time(self) -> None:
        sources = [Source(f"https://a.test/{number % 500}") for number in range(20_000)]
        started = time.monotonic()

        merged = websearch.merge_sources([sources])

        self.assertEqual((len(merged), time.monotonic() - started < 3), (500, True))

    def test_a_page_that_two_lists_rank_goes_before_either_first_place(self) -> None:
        lists = [
            [Source("https://a.test/1", provider="x"), Source("https://a.test/both", provider="x")],
            [Source("https://a.test/2", provider="y"), Source("https://a.test/both/", "Both", provider="y")],
        ]

        merged = websearch.reciprocal_rank_merge(lists)

        self.assertEqual(merged, (
            Source("https://a.test/both", "Both", provider="x"),
            Source("https://a.test/1", provider="x"), Source("https://a.test/2", provider="y"),
        ))

    def test_a_page_that_one_list_names_twice_earns_nothing_by_it(self) -> None:
        lists = [[Source("https://a.test/1"), Source("https://a.test/2"), Source("https://a.test/2/")]]

        self.assertEqual([s.url for s in websearch.reciprocal_rank_merge(lists)], ["https://a.test/1", "https://a.test/2"])

    def test_rankings_of_nothing_merge_to_nothing(self) -> None:
        self.assertEqual(websearch.reciprocal_rank_merge([]), ())
        self.assertEqual(websearch.reciprocal_rank_merge([[], []]), ())

    def test_a_label_replaces_and_a_label_with_underscore_is_added(self) -> None:
        sources = [Source("https://a.test/", provider="wikipedia"), Source("https://b.test/", provider="github")]

        self.assertEqual([s.provider for s in websearch.relabel(sources, "tavily")], ["tavily", "tavily"])
        self.assertEqual([s.provider for s in websearch.relabel(sources, "_fallback")],
                         ["wikipedia_fallback", "github_fallback"])


class FilterTest(unittest.TestCase):
    def test_only_dates_known_to_be_too_old_are_dropped(self) -> None:
        dates = ["2026-11-29", "2026-11-23T08:00:00Z", "2026-11-22", "", "last week"]
        query = SearchQuery("x", recency_days=7, today="2026-11-30")

        kept, dropped = websearch.filter_sources([Source(f"https://a.test/{i}", published_date=date)
                                                  for i, date in enumerate(dates)], query)

        self.assertEqual(([source.published_date for source in kept], dropped),
                         (["2026-11-29", "2026-11-23T08:00:00Z", "", "last week"], 1))

    def test_included_domains_cover_their_subdomains_and_nothing_else(self) -> None:
        urls = ["https://example.com/", "https://docs.example.com/a", "https://notexample.com/", "https://other.test/"]

        kept, dropped = websearch.filter_sources(map(Source, urls), SearchQuery("x", include_domains=("Example.com",)))

        self.assertEqual(([source.url for source in kept], dropped), (urls[:2], 2))

    def test_an_excluded_domain_wins_over_an_included_one(self) -> None:
        query = SearchQuery("x", include_domains=("example.com",), exclude_domains=("old.example.com",))

        kept, dropped = websearch.filter_sources([Source("https://old.example.com/"), Source("https://example.com/")], query)

        self.assertEqual((kept, dropped), ((Source("https://example.com/"),), 1))

    def test_a_query_without_filters_keeps_everything(self) -> None:
        sources = (Source("https://a.test/", published_date="1999-01-01"), Source("no url"))

        self.assertEqual(websearch.filter_sources(sources, SearchQuery("x", today="2026-11-30")), (sources, 0))


class SessionCacheTest(unittest.TestCase):
    def test_a_session_gives_back_its_query_and_sources(self) -> None:
        cache, sources = SourceCache(), [Source("https://a.test/")]

        session_id = cache.put("the query", sources)

        self.assertRegex(session_id, r"^[0-9a-f]{12}$")
        self.assertEqual(cache.get(session_id), websearch.Session(session_id, "the query", tuple(sources)))
        self.assertIsNone(cache.get("000000000000"))

    def test_session_ids_do_not_repeat(self) -> None:
        self.assertEqual(len({websearch.new_session_id() for _ in range(500)}), 500)

    def test_a_session_expires_after_its_time_however_often_it_was_asked_for(self) -> None:
        clock = Clock()
        cache = SourceCache(ttl_seconds=60, clock=clock)
        session_id = cache.put("q", [])

        clock.now += 59.5
        in_time = cache.get(session_id)
        clock.now += 0.5

        self.assertIsNotNone(in_time)
        self.assertIsNone(cache.get(session_id))
        self.assertEqual(len(cache), 0)

    def test_the_least_recently_used_session_makes_room(self) -> None:
        cache = SourceCache(max_count=2)
        first, second = cache.put("1", []), cache.put("2", [])

        cache.get(first)
        third = cache.put("3", [])

        self.assertEqual([cache.get(key) is not None for key in (first, second, third)], [True, False, True])

    def test_heavy_sessions_are_bounded_by_bytes(self) -> None:
        cache = SourceCache(max_bytes=100_000)

        ids = [cache.put("q", [Source("https://a.test/", content="x" * 30_000)]) for _ in range(10)]

        self.assertEqual([cache.get(key) is not None for key in ids], [False] * 7 + [True] * 3)

    def test_the_newest_session_stays_even_when_it_is_too_heavy_alone(self) -> None:
        cache = SourceCache(max_bytes=1_000)

        session_id = cache.put("q", [Source("https://a.test/", content="x" * 5_000)])

        self.assertIsNotNone(cache.get(session_id))

    def test_expired_sessions_do_not_stay_in_memory(self) -> None:
        clock = Clock()
        cache = SourceCache(ttl_seconds=60, clock=clock)
        for _ in range(10):
            cache.put("q", [])

        clock.now += 61
        cache.put("q", [])

        self.assertEqual(len(cache), 1)

    def test_many_threads_may_use_one_cache(self) -> None:
        cache, failures = SourceCache(max_count=10), []  # type: SourceCache, List[Any]

        def work() -> None:
            for number in range(300):
                session = cache.get(cache.put(str(number), []))
                if session is not None and session.query != str(number):
                    failures.append(session)

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

        self.assertEqual((failures, len(cache)), ([], 10))


class PageCacheTest(unittest.TestCase):
    def test_a_page_is_kept_for_its_time(self) -> None:
        clock = Clock()
        cache = PageCache(ttl_seconds=900, clock=clock)
        page = websearch.Page(text="hello")

        cache.keep(("https://a.test/", "local"), page)
        clock.now += 899

        self.assertIs(cache.get(("https://a.test/", "local")), page)
        self.assertIsNone(cache.get(("https://a.test/", "tavily")))
        clock.now += 1
        self.assertIsNone(cache.get(("https://a.test/", "local")))

    def test_pages_are_bounded_by_the_bytes_of_their_texts(self) -> None:
        cache = PageCache(max_bytes=1_000_000)

        for number in range(10):
            cache.keep(number, websearch.Page(text="ж" * 150_000))  # two bytes each

        self.assertEqual([number for number in range(10) if cache.get(number)], [7, 8, 9])

    def test_what_a_page_takes_in_memory_counts_whatever_its_characters_and_links(self) -> None:
        cache = PageCache(max_bytes=1_000_000)
        emoji = websearch.Page(text="x" * 60_000 + "\U0001f600")  # one such character makes all of them four bytes wide
        linked = websearch.Page(links=tuple(websearch.Link(str(n), "https://a.test/" + "p" * 400) for n in range(500)))

        for number in range(10):
            cache.keep(number, emoji if number % 2 else linked)

        self.assertEqual([number for number in range(10) if cache.get(number)], [7, 8, 9])

    def test_a_newer_version_replaces_the_older(self) -> None:
        cache = PageCache(max_bytes=10_000)

        for number in range(1_000):
            cache.keep("key", websearch.Page(text=str(number) * 500))

        self.assertEqual((cache.get("key").text, len(cache)), ("999" * 500, 1))


class Call(threading.Thread):
    """A caller of SingleFlight in a thread of its own; `outcome` is (value or error, seconds) when it has returned."""

    def __init__(self, flights: SingleFlight, work: Callable[[Deadline], Any], seconds: float = 10, key: str = "key") -> None:
        super().__init__(daemon=True)
        self.deadline = Deadline(seconds)
        self.outcome: Tuple[Any, float] = (None, 0.0)
        self._run = lambda: flights.run(key, self.deadline, work)
        self.start()

    def run(self) -> None:
        started = time.monotonic()
        try:
            value = self._run()
        except (WebError, websearch.DeadlineExpired, ValueError) as error:
            value = error.code if isinstance(error, WebError) else type(error).__name__
        self.outcome = (value, time.monotonic() - started)

    def value(self) -> Any:
        self.join(5)
        if self.is_alive():
            raise AssertionError("the call did not return")
        return self.outcome[0]


class Work:
    """Work that goes on until it is released or cancelled, as a request does."""

    def __init__(self) -> None:
        self.runs: List[Deadline] = []
        self.release = threading.Event()

    def __call__(self, deadline: Deadline) -> str:
        self.runs.append(deadline)
        number = len(self.runs)
        deadline.wait(self.release)
        deadline.remaining()
        return f"result {number}"


class SingleFlightTest(unittest.TestCase):
    def setUp(self) -> None:
        self.flights, self.work = SingleFlight(), Work()

    def call(self, seconds: float = 10, key: str = "key") -> Call:
        return Call(self.flights, self.work, seconds, key)

    def calls(self, count: int) -> List[Call]:
        """A leader and its followers, all of them waiting."""
        calls = [self.call()]
        wait_until(lambda: self.work.runs)
        calls += [self.call() for _ in range(count - 1)]
        wait_until(lambda: len(self.flights._flights["key"].waiters) == count)
        return calls

    def test_twenty_equal_calls_share_one_run(self) -> None:
        calls = self.calls(20)

        self.work.release.set()

        self.assertEqual([call.value() for call in calls], ["result 1"] * 20)
        self.assertEqual((len(self.work.runs), len(self.flights)), (1, 0))

    def test_different_keys_run_side_by_side(self) -> None:
        calls = [self.call(key=key) for key in ("a", "b")]
        wait_until(lambda: len(self.work.runs) == 2)

        self.work.release.set()

        self.assertEqual(sorted(call.value() for call in calls), ["result 1", "result 2"])

    def test_a_call_after_the_run_starts_a_new_one(self) -> None:
        self.work.release.set()

        self.assertEqual([self.call().value(), self.call().value()], ["result 1", "result 2"])

    def test_a_failure_is_shared_and_not_kept(self) -> None:
        ready = threading.Event()

        def fail(deadline: Deadline) -> str:
            deadline.wait(ready)
            raise WebError(websearch.WEB_FETCH_FAILED, "no")

        calls = [Call(self.flights, fail) for _ in range(5)]
        wait_until(lambda: len(self.flights) and len(self.flights._flights["key"].waiters) == 5)
        ready.set()

        self.assertEqual([call.value() for call in calls], [websearch.WEB_FETCH_FAILED] * 5)
        self.work.release.set()
        self.assertEqual(self.call().value(), "result 1")

    def test_an_unexpected_exception_is_shared_too(self) -> None:
        def fail(deadline: Deadline) -> str:
            time.sleep(0.05)
            raise ValueError

        calls = [Call(self.flights, fail) for _ in range(3)]

        self.assertEqual([call.value() for call in calls], ["ValueError"] * 3)

    def test_a_cancelled_follower_leaves_at_once_and_alone(self) -> None:
        leader, follower = self.calls(2)

        started = time.monotonic()
        follower.deadline.cancel()
        left = follower.value()
        seconds = time.monotonic() - started
        self.work.release.set()

        self.assertEqual((left, leader.value()), (websearch.WEB_ABORTED, "result 1"))
        self.assertLess(seconds, 0.09)

    def test_a_cancelled_leader_goes_on_for_the_others(self) -> None:
        leader, follower = self.calls(2)

        leader.deadline.cancel()
        still_running = not self.work.runs[0].is_cancelled
        self.work.release.set()

        self.assertEqual((follower.value(), leader.value(), still_running), ("result 1", websearch.WEB_ABORTED, True))

    def test_the_run_is_cancelled_in_the_thread_of_whoever_leaves_last(self) -> None:
        leader, follower = self.calls(2)

        leader.deadline.cancel()
        before = self.work.runs[0].is_cancelled
        follower.deadline.cancel()
        after = self.work.runs[0].is_cancelled  # no waiting: the cancelling thread has done it

        self.assertEqual((before, after), (False, True))
        self.assertEqual([leader.value(), follower.value()], [websearch.WEB_ABORTED] * 2)
        self.assertEqual(len(self.flights), 0)

    def test_the_last_one_may_be_the_leader(self) -> None:
        leader, follower = self.calls(2)

        follower.deadline.cancel()
        before = self.work.runs[0].is_cancelled
        leader.deadline.cancel()

        self.assertEqual((before, self.work.runs[0].is_cancelled), (False, True))
        self.assertEqual(leader.value(), websearch.WEB_ABORTED)

    def test_nobody_joins_a_run_that_was_cancelled(self) -> None:
        stuck = threading.Event()

        def stubborn(deadline: Deadline) -> str:
            stuck.wait(5)
            return "too late"

        leader = Call(self.flights, stubborn)
        wait_until(lambda: len(self.flights))
        leader.deadline.cancel()
        self.work.release.set()
        newcomer = self.call()

        self.assertEqual(newcomer.value(), "result 1")
        stuck.set()
        self.assertEqual(leader.value(), websearch.WEB_ABORTED)

    def test_a_call_that_was_cancelled_before_does_not_run(self) -> None:
        deadline = Deadline(5)
        deadline.cancel()

        with self.assertRaises(WebError) as caught:
            self.flights.run("key", deadline, self.work)

        self.assertEqual((caught.exception.code, self.work.runs, len(self.flights)), (websearch.WEB_ABORTED, [], 0))

    def test_a_follower_whose_time_is_up_leaves_alone(self) -> None:
        leader = self.call()
        wait_until(lambda: self.work.runs)

        follower = self.call(seconds=0.05)
        left = follower.value()
        self.work.release.set()

        self.assertEqual((left, leader.value()), ("DeadlineExpired", "result 1"))

    def test_the_run_ends_with_the_time_of_the_leader(self) -> None:
        self.assertEqual(self.call(seconds=0.05).value(), "DeadlineExpired")

    def test_the_run_may_cancel_its_own_deadline_without_harm_to_the_caller(self) -> None:
        def work(deadline: Deadline) -> str:
            deadline.cancel()
            return "done"

        call = Call(self.flights, work)

        self.assertEqual((call.value(), call.deadline.is_cancelled), ("done", False))

    def test_nothing_of_a_failed_run_stays_in_memory(self) -> None:
        class Big:
            pass

        kept: List[weakref.ref[Big]] = []

        def fail(deadline: Deadline) -> str:
            big = Big()
            kept.append(weakref.ref(big))
            time.sleep(0.02)
            raise ValueError(big)

        gc.disable()
        try:
            for call in [Call(self.flights, fail) for _ in range(4)]:
                call.value()
            wait_until(lambda: kept[0]() is None)
        finally:
            gc.enable()

    def test_a_storm_of_calls_and_cancellations_leaves_nothing_behind(self) -> None:
        def work(deadline: Deadline) -> str:
            deadline.wait(threading.Event(), 0.002)
            deadline.check_cancelled()
            return "done"

        outcomes = set()
        for _ in range(15):
            calls = [Call(self.flights, work) for _ in range(8)]
            for call in calls[::3]:
                call.deadline.cancel()
            outcomes |= {(call.value(), call.deadline.is_cancelled) for call in calls}

        self.assertLessEqual(outcomes, {("done", False), ("done", True), (websearch.WEB_ABORTED, True)})
        self.assertIn(("done", False), outcomes)
        self.assertEqual(len(self.flights), 0)


if __name__ == "__main__":
    unittest.main()
