"""The panel of nodes and replicas, on a recorded node or gateway. Run by dashboard_test.py."""
from checks import NODES_SHOWN, TEXT, TILE, check, check_panels, check_picture, check_quiet, check_width, wait_ready
from mock_server import HOSTILE_ID, Mock


def it_shows_a_gateway_with_all_its_nodes(browser):
    mock = Mock(gateway=True).start()
    for name, width, height, scheme in [("gateway", 1280, 1700, "light"), ("gateway-phone-dark", 360, 2600, "dark")]:
        mock.down = set()
        page = browser.page()
        page.open(mock.url(), width, height, scheme)
        wait_ready(page)
        page.wait("!document.getElementById('tiles').textContent.includes('output–')", "rates are there")
        check_panels(page, has_nodes=True)
        check_width(page, name, width)
        lines = page.value(NODES_SHOWN)
        check([line[0] for line in lines] == ["All nodes", "n0", "replica 0", "replica 1", "n1"], f"nodes: {lines}")
        sums = page.value("now.running === now.nodes[0].snapshot.running + now.nodes[1].snapshot.running")
        check(sums, "the mock does not add up")
        check(page.value(TILE % "running" + " === String(now.running)"), "the tiles are sums")
        menu = page.value("[...document.getElementById('rank').options].map(it => it.textContent)")
        check(menu == ["n0", "n1"], f"steps of: {menu}")
        mock.down = {"n1"}
        wait_ready(page, "ready, 1 of 2 nodes")
        page.wait(NODES_SHOWN + ".some(it => it[0] === 'n1' && it[1] === 'down' && it[2].includes('nobody answers'))",
                  "the one that is down is named, with the reason")
        check_panels(page, has_nodes=True)
        check_width(page, name, width)
        check_picture(page, name, scheme == "dark")
        check_quiet(page)
    mock.names = ["rather-long-host-name.of.example.internal:4242", HOSTILE_ID]
    mock.down = set()
    page.wait(NODES_SHOWN + ".some(it => it[0] === %r)" % HOSTILE_ID, "a name is text")
    check_width(page, "long names", 360)


def a_node_is_chosen_by_key_and_shown_alone(browser):
    mock = Mock(gateway=True).start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    pick = "[...document.querySelectorAll('#nodes button')].find(it => it.textContent === %r)"
    page.value((pick % "n1") + ".focus()")
    page.press("Enter", "\r")
    check(page.value((pick % "n1") + ".getAttribute('aria-pressed')") == "true", "it is pressed")
    check(page.value(TILE % "running" + " === String(now.nodes[1].snapshot.running)"), "its tiles")
    ids = page.value("[...document.querySelectorAll('#requests td.id')].map(it => it.textContent)")
    check(ids and all(it.startswith("n1-") for it in ids), f"its requests: {ids}")
    check(page.value("shownSteps().length > 8 && shownSteps().every(it => now.nodes[1].snapshot.newest_step - it.step < 128)"),
          "its steps")
    check(page.value("document.getElementById('trace').disabled"), "the trace would be another node's")
    direct = "document.querySelector('#requests button[data-id=n1-direct]')"
    page.wait(f"{direct}.classList.contains('hidden')", "a request that came to the node itself can't be cancelled here")
    others = page.value("[...document.querySelectorAll('#requests button:not(.hidden)')].length")
    check(others == len(ids) - 1, f"{others} of {len(ids)} can be cancelled")
    mock.down = {"n1"}
    page.wait(TEXT % "requests" + ".includes('No numbers from n1: no connection')", "it says that it has none")
    check(page.value("[...document.querySelectorAll('#tiles dd')].every(it => it.textContent === '–')"), "old numbers")
    check(page.value("document.querySelectorAll('#chart rect.bar').length") == 0, "old steps")
    check(page.value("document.activeElement.textContent") == "n1", "the focus has gone")
    check_panels(page, has_nodes=True)
    mock.down = set()
    page.wait("document.querySelectorAll('#chart rect.forward').length > 8", "its steps are back")
    mock.down = {"n0", "n1"}
    page.value((pick % "All nodes") + ".click()")
    page.wait(TEXT % "state" + " === 'no node ready'", "the page says that none is left")
    page.wait(TEXT % "notice" + " === 'no replica can take requests'", "it says why")
    check("no node answers" in page.value(TEXT % "requests"), "old requests")
    check_panels(page, has_nodes=True)
    check_quiet(page)


def a_node_that_loads_and_one_that_may_not_be_used_are_told_apart(browser):
    mock = Mock(gateway=True).start()
    page = browser.page()
    page.open(mock.url(), 360, 2400)
    wait_ready(page)
    page.value("feed.close(); Object.assign(now.nodes[0], {takes_requests: false, reason: 'it serves other'});"
               "Object.assign(now.nodes[1], {state: 'loading', progress: 0.42, takes_requests: false,"
               " reason: 'the node is loading', snapshot: null}); show(now)")
    lines = {line[0]: line[1:] for line in page.value(NODES_SHOWN)}
    check(lines["n0"][:2] == ["unused", "it serves other"] and len(lines["n0"]) > 4, f"unused: {lines}")
    check(lines["n1"] == ["loading 42 %", "the node is loading"], f"loading: {lines}")
    check(page.value(TEXT % "state") == "no node ready", "no node takes requests")
    check_width(page, "unused", 360)
    check_panels(page, has_nodes=True)
    check_quiet(page)


def a_node_shows_its_replicas(browser):
    mock = Mock(replicas=2).start()
    page = browser.page()
    page.open(mock.url(), 360, 2400)
    wait_ready(page)
    lines = page.value(NODES_SHOWN)
    check([line[:2] for line in lines] == [["replica 0", "up"], ["replica 1", "up"]], f"replicas: {lines}")
    check(page.value(TEXT % "h-nodes") == "Replicas", "the panel has their name")
    check_panels(page, has_nodes=True)
    check_width(page, "replicas", 360)
    check_quiet(page)


def a_node_names_the_nodes_around_it(browser):
    mock = Mock(around=True, replicas=2).start()
    for name, width in (("around", 1280), ("around-phone", 360)):
        page = browser.page()
        page.open(mock.url(), width, 2400)
        wait_ready(page)
        lines = page.value(NODES_SHOWN)
        check([line[:2] for line in lines] == [["n1 (this node)", "ready"], ["replica 0", "up"], ["replica 1", "up"],
                                               ["n2", "ready"], ["n3", "down"], ["n3", "up"]], f"nodes: {lines}")
        check(lines[4][2] == "nobody answers", f"why: {lines[4]}")
        check(page.value(TILE % "running" + " === String(now.running)"), "the tiles are its own")
        check_panels(page, has_nodes=True)
        check_width(page, name, width)
        check_picture(page, name)
        check_quiet(page)


def a_node_that_does_not_answer_shows_no_old_numbers(browser):
    mock = Mock().start()
    page = browser.page()
    page.open(mock.url())
    wait_ready(page)
    mock.fails = True
    page.wait(TEXT % "state" + " === 'no numbers'", "it says that it has no numbers")
    check("no answer within the deadline" in page.value(TEXT % "notice"), "it says why")
    check(page.value("[...document.querySelectorAll('#tiles dd')].every(it => it.textContent === '–')"), "old numbers")
    mock.fails = False
    wait_ready(page)
    check_quiet(page)


TESTS = [it_shows_a_gateway_with_all_its_nodes,
         a_node_is_chosen_by_key_and_shown_alone,
         a_node_that_loads_and_one_that_may_not_be_used_are_told_apart,
         a_node_shows_its_replicas,
         a_node_names_the_nodes_around_it,
         a_node_that_does_not_answer_shows_no_old_numbers]
