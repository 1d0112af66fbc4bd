"""What tests of the dashboard look for in its page."""
from browser import picture

PANELS = ["tiles", "nodes", "steps", "requests", "kv", "votes", "eplb", "chat"]
TEXT = "document.getElementById('%s').textContent"
NODES_SHOWN = "[...document.querySelectorAll('#nodes tr')].map(it => it.innerText.split(/[\\n\\t]+/).map(text => text.trim()))"
TILE = "[...document.querySelectorAll('.tile')].find(it => it.innerText.startsWith(%r)).querySelector('dd').textContent"
pictures = None  # a folder to keep screenshots in


def keep_pictures(folder):
    global pictures
    pictures = folder
    if pictures:
        pictures.mkdir(parents=True, exist_ok=True)


def check(condition, what):
    if not condition:
        raise AssertionError(what)


def wait_ready(page, text="ready"):
    page.wait(TEXT % "state" + " === %r" % text, "the page says " + text)
    page.wait("document.querySelectorAll('#chart rect.forward').length > 8", "steps are drawn")


def check_panels(page, has_nodes=False):
    shown = page.value("[...document.querySelectorAll('section[data-panel]:not(.hidden)')].map(it => [it.dataset.panel,"
                       " it.innerText.replace(it.querySelector('h2')?.innerText || '', '').trim().length,"
                       " it.getBoundingClientRect().height])")
    expected = [it for it in PANELS if has_nodes or it != "nodes"]
    check([name for name, _, _ in shown] == expected, f"panels: {shown}")
    for name, letters, height in shown:
        check(letters > 3 and height > 20, f"panel {name} is empty: {letters} letters, {height} px")


def check_width(page, name, width):
    wide = page.value("document.documentElement.scrollWidth")
    check(wide <= width, f"{name}: {wide} px wide on a screen of {width}")
    aside = page.value("[...document.querySelectorAll('.scroll')].map(it => it.scrollWidth - it.clientWidth)")
    check(max(aside) <= 0, f"{name}: lists are {aside} px wider than they show")


def check_chat_form(page, name):
    """What stands beside something begins and ends where that does."""
    words, send, stop = page.value("['words', 'send', 'stop'].map(id => document.getElementById(id)"
                                   ".getBoundingClientRect().toJSON())")
    pairs = [(words["left"], send["left"]), (words["right"], stop["right"]), (send["top"], stop["top"])]
    if send["left"] > words["right"]:
        pairs = [(words["top"], send["top"]), (words["bottom"], stop["bottom"]), (send["left"], stop["left"])]
    for one, other in pairs + [(send["height"], stop["height"]), (send["width"], stop["width"])]:
        check(abs(one - other) < 1, f"{name}: the message's box and its buttons: {words}, {send}, {stop}")


def check_quiet(page, but=()):
    loud = [it for it in page.problems if not any(known in it for known in but)]
    check(not loud, f"the console has errors: {loud}")


def check_picture(page, name, is_dark=None):
    """Neither blank nor of one colour, and dark where it should be."""
    png = page.screenshot()
    if pictures:
        (pictures / (name + ".png")).write_bytes(png)
    width, height, pixel, rows = picture(png)
    colours, light = {}, 0
    for row in rows[::3]:
        for x in range(0, width * pixel, 3 * pixel):
            colour = row[x:x + 3]
            colours[colour] = colours.get(colour, 0) + 1
            light += sum(colour) > 3 * 128
    count = sum(colours.values())
    check(len(colours) > 60, f"{name}: {len(colours)} colours")
    check(max(colours.values()) < 0.95 * count, f"{name}: nearly all of it has one colour")
    if is_dark is not None:
        check((light < 0.3 * count) == is_dark, f"{name}: {light} of {count} dots are light")
