#!/usr/bin/env python3
"""The dashboard in a headless Chromium, on a recorded node; with --url on a real one.

    python3 tests/ui/dashboard_test.py [--url http://127.0.0.1:8000/ [--key KEY]] [--pictures DIR]

Exits with 77 where there is no Chromium."""
import argparse
import pathlib
import re
import sys
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import checks  # noqa: E402
import node_tests  # noqa: E402
from browser import Browser, find_chromium  # noqa: E402
from checks import (TEXT, check, check_chat_form, check_panels, check_picture, check_quiet,  # noqa: E402
                    check_width, wait_ready)
from mock_server import HOSTILE_ID, PAGE, Mock  # noqa: E402

SOURCE = PAGE.parent.parent.parent


def the_page_is_small_and_brings_everything_along():
    text = PAGE.read_text(encoding="utf-8")
    check(len(text.encode()) < 100_000, f"{len(text.encode())} bytes")
    links = set(re.findall(r"https?://[^\s'\"<>)]+", text)) - {"http://www.w3.org/2000/svg"}
    check(not links, f"it names other servers: {links}")
    for banned in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        check(banned not in text, banned + " would let data become markup")


def it_shows_a_node_in_light_and_dark_and_on_a_phone(browser):
    mock = Mock().start()
    for name, width, height, scheme in [("light", 1280, 1400, "light"), ("dark", 1280, 1400, "dark"),
                                        ("phone", 360, 2200, "light"), ("phone-dark", 360, 2200, "dark")]:
        page = browser.page()
        page.open(mock.url(), width, height, scheme)
        wait_ready(page)
        page.wait("!document.getElementById('tiles').textContent.includes('output–')", "rates are there")
        check_panels(page)
        check_width(page, name, width)
        check_chat_form(page, name)
        check("No expert group" in page.value(TEXT % "eplb"), "no expert group is said")
        check("No group" in page.value(TEXT % "votes"), "no group is said")
        check_picture(page, name, scheme == "dark")
        check_quiet(page)


def a_fresh_server_shows_what_is_known(browser):
    mock = Mock(fresh=True, interval=60).start()  # one look
    page = browser.page()
    page.open(mock.url())
    page.wait(TEXT % "state" + " === 'ready'", "the page says ready")
    shown = page.value("[...document.querySelectorAll('.tile')].map(it => it.innerText.split('\\n').join(': '))")
    unknown = [it for it in shown if "–" in it]
    check(not unknown, f"nothing is said of {unknown}")
    check("output: 0 tok/s" in shown and "prefix hits: none yet" in shown, f"tiles: {shown}")
    check_panels(page)
    check_quiet(page)


def a_click_may_take_longer_than_a_snapshot(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    place = page.value("document.querySelector('#requests button').getBoundingClientRect().toJSON()")
    x, y = place["left"] + place["width"] / 2, place["top"] + place["height"] / 2
    page.mouse("mousePressed", x, y)
    page.value("window.seen = now.now_us")
    page.wait("now.now_us !== window.seen", "a snapshot comes")
    page.mouse("mouseReleased", x, y)
    page.wait("document.querySelector('#requests button').disabled", "the button has heard it")
    check([call[0] for call in mock.calls] == ["DELETE"], f"calls: {mock.calls}")
    check_quiet(page)


def what_was_refused_is_said_until_it_is_dismissed(browser):
    mock = Mock().start()
    mock.keeps_requests = True
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    page.value("document.querySelector('#requests button').click()")
    page.wait(TEXT % "told" + ".includes('Not cancelled: no such request')", "it says why")
    page.value("window.seen = now.now_us")
    page.wait("now.now_us !== window.seen", "a snapshot comes")
    check(page.value("document.getElementById('told').classList.contains('hidden')") is False, "it has gone")
    page.value("document.getElementById('told-off').click()")
    check(page.value("document.getElementById('told').classList.contains('hidden')"), "it stays")
    check_quiet(page, but=["404 (Not Found)"])


def what_data_holds_is_never_markup(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    page.wait("[...document.querySelectorAll('#requests td.id')].some(it => it.textContent === %r)" % HOSTILE_ID,
              "the id is shown as it is")
    check(page.value("document.querySelectorAll('img').length") == 0, "data has become an element")
    check(page.value("document.title") == "DeepInfer", "data has run")
    check_quiet(page)


def steps_can_be_chosen_by_key_and_the_picture_pauses(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    page.value("document.getElementById('chart').focus()")
    page.press(" ", " ")
    check(page.value("document.getElementById('pause').getAttribute('aria-pressed')") == "true", "space pauses")
    page.press("ArrowLeft")
    newest = page.value(TEXT % "step")
    check(re.match(r"Step \d+, \w+: \d+ rows .*plan .*forward .*settle ", newest), newest)
    page.press("ArrowLeft")
    before = page.value(TEXT % "step")
    number = lambda text: int(re.match(r"Step (\d+)", text).group(1))
    check(number(before) == number(newest) - 1, f"{before} is not the step before {newest}")
    check(page.value("document.querySelectorAll('#chart rect.on').length") >= 3, "its slices stand out")
    steps = "[...document.querySelectorAll('#chart g')].map(it => it.dataset.step).join()"
    held = page.value(steps)
    page.wait("history.length > 0 && now.newest_step !== (window.seen ??= now.newest_step)", "snapshots go on")
    check(page.value(steps) == held, "the picture has moved")
    page.value("document.getElementById('pause').click()")
    page.wait(steps + " !== %r" % held, "the picture goes on")
    page.value("document.getElementById('span').value = '8'; document.getElementById('span').onchange()")
    check(page.value("document.querySelectorAll('#chart g').length") == 8, "8 steps are shown")
    page.value("window.toUrl = URL.createObjectURL; URL.createObjectURL = blob => (window.saved = blob.text(),"
               " toUrl.call(URL, blob))")
    page.value("document.getElementById('trace').click()")
    check(page.wait("window.saved", "the trace is saved") == '{"traceEvents":[]}', "it is the server's trace")
    check(mock.calls == [("GET", "/debug/trace?steps=4096", "")], f"calls: {mock.calls}")
    check_quiet(page)


def requests_are_cancelled_and_the_node_is_drained(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    page.value("document.querySelector('#requests button').click()")
    check(page.value("document.querySelector('#requests button').disabled"), "it may be cancelled twice")
    page.answers_dialogs = False
    page.value("document.getElementById('drain').click()")
    page.answers_dialogs = True
    page.value("document.getElementById('drain').click()")
    page.wait(TEXT % "state" + " === 'draining'", "it says that it drains")
    page.value("document.getElementById('drain').click()")
    page.wait(TEXT % "state" + " === 'ready'", "it is ready again")
    check([call[:2] for call in mock.calls] ==
          [("DELETE", "/v1/internal/requests/" + HOSTILE_ID), ("POST", "/v1/internal/drain"),
           ("POST", "/v1/internal/resume")], f"calls: {mock.calls}")
    check_quiet(page)


def it_chats_folds_reasoning_and_stops(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)

    def ask(words):
        page.value("document.getElementById('words').value = %r; document.getElementById('words').focus()" % words)
        page.press("Enter")
    last = "[...document.querySelectorAll('.said.assistant')].pop()"
    page.value("document.getElementById('thinking').click()")
    ask("What is 7 + 5?")
    page.wait(last + "?.querySelector('.usage').textContent.includes('tok/s')", "usage is shown")
    check(page.value(last + ".children[1].textContent") == "The sum is <b>12</b>.", "the answer is text")
    check(page.value(last + ".querySelector('details').open") is False, "reasoning is folded")
    check("asks for a sum" in page.value(last + ".querySelector('details').textContent"), "reasoning is there")
    check("8 cached" in page.value(last + ".querySelector('.usage').textContent"), "cached tokens are shown")
    page.value("document.getElementById('thinking').click()")
    ask("go on")
    page.wait(last + ".children[1].textContent.includes('and and')", "it streams")
    page.value("document.getElementById('stop').click()")
    page.wait(last + ".querySelector('.usage').textContent.startsWith('stopped')", "it stops")
    check(page.value("document.getElementById('send').disabled") is False, "the next message may come")
    ask("fail")
    page.wait(last + ".querySelector('.failed')?.textContent.includes('temperature')", "a refusal is shown")
    check(page.value("document.getElementById('words').value") == "fail", "the words are back, to be mended")
    ask("What is 7 + 5?")
    page.wait(last + ".querySelector('.usage').textContent.includes('tok/s')", "what was refused is not sent again")
    check_quiet(page, but=["400 (Bad Request)"])


def it_asks_for_the_key_and_keeps_it_in_the_tab(browser):
    mock = Mock(key="s3cret").start()
    page = browser.page()
    page.open(mock.url())
    page.wait("document.getElementById('ask').open", "it asks for the key")
    check(page.value(TEXT % "state") == "needs a key", "it says why it shows nothing")
    page.value("document.getElementById('ask-key').value = 'wrong'; document.querySelector('#ask-form button').click()")
    page.wait("document.getElementById('ask').open", "it asks again")
    check("has refused the key" in page.value(TEXT % "ask-text"), "it says that the key is wrong")
    page.value("document.getElementById('ask-key').value = 's3cret'; document.querySelector('#ask-form button').click()")
    wait_ready(page)
    page.open(mock.url())
    wait_ready(page)
    check(page.value("document.getElementById('ask').open") is False, "a reload needs no key")
    check(page.value("localStorage.length") == 0, "the key is kept beyond the tab")
    check_quiet(page, but=["401 (Unauthorized)"])


def it_says_disconnected_instead_of_old_numbers(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    mock.is_gone = True
    page.wait(TEXT % "state" + " === 'disconnected'", "it says that it is disconnected")
    check(page.value("[...document.querySelectorAll('#tiles dd')].every(it => it.textContent === '–')"), "old numbers")
    check(page.value("document.querySelectorAll('#chart rect.bar').length") == 0, "old steps")
    check("Disconnected" in page.value(TEXT % "requests"), "old requests")
    check_panels(page)
    mock.is_gone = False
    wait_ready(page)


def an_idle_node_shows_its_last_steps(browser):
    """However often it is asked again: it has no newer ones to send."""
    mock = Mock(idle=True).start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    drawn = "document.querySelectorAll('#chart rect.forward').length"
    before = page.value(drawn)
    idle = page.wait(TEXT % "step" + ".match(/^Idle for ([0-9.]+) s: these are the last steps/)?.[1]", "it says since when")
    check(float(idle) >= 5, f"idle for {idle} s")
    page.wait(TEXT % "step" + ".match(/^Idle for ([0-9.]+) s/)[1] > %s" % idle, "time goes on")
    mock.holds = True
    page.wait(TEXT % "requests" + ".includes('paused (64 unread)')", "a request is held up")
    check(page.value(TEXT % "step").startswith("Idle for "), "it says that nothing runs")
    mock.holds = False
    check(page.value(drawn) == before, "the steps stay")
    check_picture(page, "idle")
    check_quiet(page)
    for no_stream in (True, False):
        mock.no_stream = no_stream  # from now on
        mock.is_gone = True
        page.value("feed.again()")
        page.wait(TEXT % "state" + " === 'disconnected'", "it says that it is disconnected")
        check(page.value(drawn) == 0, "old steps")
        mock.is_gone = False
        wait_ready(page)
        check(page.value(drawn) == before, "the last steps are back")


def it_polls_where_streams_fail(browser):
    mock = Mock(no_stream=True).start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    check_quiet(page, but=["404 (Not Found)"])


def it_says_how_far_loading_is(browser):
    mock = Mock(loading=True).start()
    page = browser.page()
    page.open(mock.url())
    page.wait(TEXT % "state" + " === 'loading'", "it says loading")
    page.wait(TEXT % "notice" + " === 'reading weights 42 %'", "it says how far")
    mock.loading = False
    wait_ready(page)
    check(page.value("document.getElementById('notice').classList.contains('hidden')"), "the notice stays")
    check_quiet(page, but=["503 (Service Unavailable)"])


def a_group_shows_its_votes_and_the_load_of_its_experts(browser):
    mock = Mock(groups=True).start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    check(page.value("document.querySelectorAll('#heat rect').length") == 4 * 32, "a cell per rank and expert")
    check("placement 3" in page.value(TEXT % "eplb-ratio"), "the placement is named")
    page.wait("document.querySelector('#ratio path').getAttribute('d').split('L').length > 3", "the ratio has a line")
    check("vetoed" in page.value(TEXT % "votes"), "votes are counted")
    check_picture(page, "groups", False)
    check_quiet(page)


def what_has_a_control_has_a_name(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    nameless = page.value(
        "[...document.querySelectorAll('button, input, select, textarea, svg[tabindex], [role=img], section')].filter("
        "it => !(it.getAttribute('aria-label') || it.getAttribute('aria-labelledby') || it.textContent.trim() ||"
        " (it.labels && it.labels.length))).map(it => it.outerHTML.slice(0, 80))")
    check(not nameless, f"without a name: {nameless}")
    check(page.value("document.documentElement.lang") == "en", "the page has a language")


def grafana_asks_for_metrics_that_exist():
    known = set(re.findall(r"DI_METRIC\((\w+), (\w+)", (SOURCE / "runtime/base/metrics.def").read_text()))
    names = {name for name, kind in known if kind != "histogram"}
    for name, kind in known:
        if kind == "histogram":
            names |= {name + "_bucket", name + "_sum", name + "_count"}
    text = (SOURCE / "config/packaging/grafana.json").read_text()
    asked = set(re.findall(r"deepinfer:(\w+)", text))
    check(len(asked) > 20, f"{len(asked)} metrics are asked for")
    check(asked <= names, f"no such metrics: {sorted(asked - names)}")


def a_real_server_is_shown(browser, url, key):
    page = browser.page()
    page.open(url)
    if key:
        page.wait("document.getElementById('ask').open", "it asks for the key")
        page.value("document.getElementById('ask-key').value = %r; document.querySelector('#ask-form button').click()" % key)
    page.wait(TEXT % "state" + " === 'ready'", "the page says ready", 120)
    page.value("document.getElementById('max-tokens').value = 40")
    page.value("document.getElementById('words').value = 'Count from 3 to 12.'; document.getElementById('chat').requestSubmit()")
    last = "[...document.querySelectorAll('.said.assistant')].pop()"
    page.wait(last + "?.querySelector('.usage').textContent.includes('tok/s')", "an answer comes", 120)
    check(page.value(last + ".children[1].textContent.length") > 0, "the answer has text")
    page.wait("document.querySelectorAll('#chart rect.forward').length > 3", "its steps are drawn")
    check_panels(page)
    check_picture(page, "server")
    check_quiet(page, but=["401 (Unauthorized)"] if key else [])


TESTS = [*node_tests.TESTS,
         it_shows_a_node_in_light_and_dark_and_on_a_phone,
         a_fresh_server_shows_what_is_known,
         a_click_may_take_longer_than_a_snapshot,
         what_was_refused_is_said_until_it_is_dismissed,
         what_data_holds_is_never_markup,
         steps_can_be_chosen_by_key_and_the_picture_pauses,
         requests_are_cancelled_and_the_node_is_drained,
         it_chats_folds_reasoning_and_stops,
         it_asks_for_the_key_and_keeps_it_in_the_tab,
         it_says_disconnected_instead_of_old_numbers,
         an_idle_node_shows_its_last_steps,
         it_polls_where_streams_fail,
         it_says_how_far_loading_is,
         a_group_shows_its_votes_and_the_load_of_its_experts,
         what_has_a_control_has_a_name]


def main():
    flags = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    flags.add_argument("--url", help="of a real server; else a recorded node is shown")
    flags.add_argument("--key", default="", help="of the real server")
    flags.add_argument("--pictures", type=pathlib.Path, help="a folder to keep screenshots in")
    flags.add_argument("--only", default="", help="tests whose name has this in it")
    given = flags.parse_args()
    checks.keep_pictures(given.pictures)
    failed, browser = 0, None

    def run(name, test, *args):
        nonlocal failed
        if given.only not in name:
            return
        try:
            test(*args)
            print("passed: " + name, flush=True)
        except Exception:  # every failure is shown, and the next test runs
            failed += 1
            print("FAILED: " + name + "\n" + traceback.format_exc(), flush=True)
        if browser:
            browser.close_tabs()

    for test in (the_page_is_small_and_brings_everything_along, grafana_asks_for_metrics_that_exist):
        run(test.__name__, test)
    if find_chromium() is None:
        print("SKIPPED: the page itself, as there is no Chromium here (Debian: apt-get install chromium)")
        return 1 if failed else 77
    browser = Browser()
    try:
        if given.url:
            run(a_real_server_is_shown.__name__, a_real_server_is_shown, browser, given.url, given.key)
        else:
            for test in TESTS:
                run(test.__name__, test, browser)
    finally:
        browser.close()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
