"""Both pages in a real browser, with the server as a process of its own: keys, kills, two tabs, accessibility, the console."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.servers import Server
from tests.unit.serve.subjects import adaptive_run, campaign
from tests.unit.serve.test_quantities import write_quantity_project
from tests.waiting import LIMIT, until

from neurotest.runs.store import Run

pytest.importorskip("fastapi", reason="the pages need fastapi: pip install 'neurotest[serve]'")
pytestmark = pytest.mark.slow
ENDED = "ERR_CONNECTION_REFUSED"  # tabs ask on until they are closed, which is after the end of their server
PATIENCE = 1000 * LIMIT  # milliseconds


@pytest.fixture
def tab(browser: Any) -> Iterator[Callable[..., Any]]:
    """Opens tabs of one browser; errors on the console and requests to anywhere else fail the test."""
    context = browser.new_context(viewport={"width": 1240, "height": 860})
    context.set_default_timeout(PATIENCE)
    problems: list[str] = []

    def open_tab(url: str, *, away: bool = False) -> Any:
        page = context.new_page()
        host = "/".join(url.split("/")[:3])
        page.on("request", lambda r: problems.append(r.url) if not r.url.startswith((host, "data:", "blob:")) else None)
        page.on("pageerror", lambda error: problems.append(str(error)))
        page.on("console", lambda m: problems.append(m.text) if m.type == "error" and not away and ENDED not in m.text else None)
        page.goto(url)
        return page

    yield open_tab
    context.close()
    assert not problems


def shown(page: Any, before: str = "") -> str:
    """The position of the input that the page shows, once it is another one. (The page allows no eval, so no function waits.)"""
    figure = page.wait_for_selector(f'#picture[data-position]:not([data-position=""]):not([data-position="{before}"])')
    return str(figure.get_attribute("data-position"))


def labels(path: Path) -> dict[int, int | None]:
    with Run.open(path) as run:
        return {row.position: row.label for row in run.labels()}


def test_fifty_inputs_by_keyboard_while_the_server_is_killed_and_started_again(tmp_path: Path, tab: Any) -> None:
    path = adaptive_run(tmp_path)
    server = Server("label", "run", "--round", 10, cwd=tmp_path)
    page = tab(server.url, away=True)
    given: dict[int, int] = {}
    position = shown(page)
    for number in range(50):
        assert int(position) not in given, "an input came twice"
        label = int(position) % 4
        if number % 17 == 8:  # killed before the answer: the page waits for the server and sends it then
            server.kill()
            page.keyboard.press(str(label))
            page.wait_for_selector("#notice:not([hidden])")
            server = Server("label", "run", "--round", 10, cwd=tmp_path, port=server.port)
        elif number % 17 == 12:  # killed between two answers
            server.kill()
            server = Server("label", "run", "--round", 10, cwd=tmp_path, port=server.port)
            page.reload()
            assert shown(page) == position, "a reload shows the same input"
            page.keyboard.press(str(label))
        else:
            page.keyboard.press(str(label))
        given[int(position)] = label
        position = shown(page, position)
    server.kill()
    assert labels(path) == given
    assert len(given) == 50


def test_the_file_that_the_browser_is_given_leads_to_the_page(tmp_path: Path, browser: Any) -> None:
    """From a file to the address with the token to the page: the cookie has to come along, though a strict one stays behind where
    another site redirects."""
    from neurotest.serve.frame import LEADING

    adaptive_run(tmp_path)
    with Server("label", "run", cwd=tmp_path) as server:
        file = tmp_path / "open.html"
        file.write_text(LEADING.format(url=server.url))
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE)
        page.goto(file.as_uri())
        shown(page)
        assert page.url == server.url.partition("?")[0]
        page.context.close()


def test_two_tabs_never_label_the_same_input(tmp_path: Path, tab: Any) -> None:
    path = adaptive_run(tmp_path)
    with Server("label", "run", "--round", 6, cwd=tmp_path) as server:
        pages = [tab(server.url), tab(server.url)]
        seen: list[str] = []
        at = [shown(page) for page in pages]
        for number in range(24):
            which = number % 2
            assert at[0] != at[1], "both tabs show the same input"
            assert at[which] not in seen
            seen.append(at[which])
            pages[which].keyboard.press("1")
            at[which] = shown(pages[which], at[which])
        with Run.open(path) as run:
            rows = run.label_history()
        assert len(rows) == len({row.position for row in rows}) == 24
        assert len({row.session for row in rows}) == 2


def test_numbers_are_typed_dragged_or_marked(tmp_path: Path, tab: Any) -> None:
    """On a network that predicts a quantity: the page asks for a number, and stores it before the next input comes."""
    write_quantity_project(tmp_path)
    words = ("--outputs", "regression", "--span", -1, 1, "--tolerance", 0.2, "--size", "1x8x8", "--train", "npz:train.npz#x,y")
    with Server("label", "py:model.py:build", "npz:pool.npz#x", *words, "--out", "run", cwd=tmp_path) as server:
        page = tab(server.url)
        first = shown(page)
        assert page.is_hidden("#many")
        assert page.is_disabled("#off")  # the network's answer is not on show
        page.keyboard.type("-0.25")
        page.keyboard.press("Enter")
        second = shown(page, first)
        assert "-0.25" in page.inner_text("#said")
        page.focus("#slider")
        page.keyboard.press("End")
        assert page.input_value("#value") == "1"
        page.click("#store")
        third = shown(page, second)
        page.keyboard.press("Escape")
        page.keyboard.press("Space")
        page.wait_for_selector("#guessed:has-text('The network says')")
        page.keyboard.press("o")
        fourth = shown(page, third)
        page.keyboard.press("?")
        fifth = shown(page, fourth)
        page.keyboard.press("Backspace")
        assert shown(page, fifth) == fourth
        page.fill("#value", "abc")
        assert page.is_disabled("#store")
        page.screenshot(path=str(tmp_path / "page.png"))
        with Run.open(tmp_path / "run") as run:
            rows = {str(row.position): row for row in run.labels()}
    assert (rows[first].value, rows[second].value, rows[third].value) == (-0.25, 1.0, None)
    assert set(rows) == {first, second, third}
    assert (tmp_path / "page.png").stat().st_size > 10_000


def test_every_key_does_what_it_says(tmp_path: Path, tab: Any) -> None:
    path = adaptive_run(tmp_path)
    with Server("label", "run", "--round", 6, cwd=tmp_path) as server:
        page = tab(server.url)
        first = shown(page)
        assert page.inner_text("#guessed") == ""
        page.keyboard.press("Space")
        page.wait_for_selector("#guessed:has-text('The network says')")
        page.keyboard.press("ArrowRight")
        second = shown(page, first)
        page.keyboard.press("Delete")
        third = shown(page, second)
        page.keyboard.type("?")
        fourth = shown(page, third)
        page.fill("#by", "ann")
        page.focus("#search")
        assert page.inner_text("#keys").startswith("Keys act at once: 0 to 3")
        page.keyboard.type("2")
        shown(page, fourth)
        assert page.inner_text("#said").startswith("Last: “2”")
        assert page.locator("main #undo").bounding_box()["y"] + page.locator("#undo").bounding_box()["height"] <= 860
        page.keyboard.press("Backspace")
        page.wait_for_selector(f'#picture[data-position="{fourth}"]')
        page.keyboard.press("3")
        shown(page, fourth)
        assert labels(path) == {int(second): None, int(third): None, int(fourth): 3}
        with Run.open(path) as run:
            counting = {row.position: row for row in run.labels()}
            assert (counting[int(second)].valid, counting[int(third)].valid) == (0, 1)
            assert counting[int(fourth)].by == "ann"
            assert len(run.label_history()) == 5  # the label that was taken back and its undo stay


def test_while_a_class_is_searched_keys_type_and_a_key_held_down_acts_once(tmp_path: Path, tab: Any) -> None:
    path = adaptive_run(tmp_path)
    with Server("label", "run", "--round", 6, cwd=tmp_path) as server:
        page = tab(server.url)
        first = shown(page)
        page.keyboard.press("1")
        second = shown(page, first)
        assert page.evaluate("document.activeElement.id") != "search", "digits answer: no field has the focus"
        page.keyboard.type("x2")
        assert page.input_value("#search") == "x2"
        assert page.inner_text("#keys").startswith("Searching")
        for _ in range(4):  # two more than there are letters: nothing is taken back
            page.keyboard.press("Backspace")
        assert labels(path) == {int(first): 1}
        page.keyboard.press("Escape")
        assert page.inner_text("#keys").startswith("Keys act at once")
        page.keyboard.down("2")
        page.keyboard.down("2")  # as a keyboard repeats it
        page.keyboard.up("2")
        third = shown(page, second)
        page.keyboard.down("3")
        for _ in range(5):
            page.keyboard.down("3")
        page.keyboard.up("3")
        shown(page, third)
        assert labels(path) == {int(first): 1, int(second): 2, int(third): 3}


def test_a_thousand_classes_are_searched_by_typing(tmp_path: Path, tab: Any) -> None:
    path = adaptive_run(tmp_path, classes=1000)
    with Server("label", "run", cwd=tmp_path) as server:
        page = tab(server.url)
        first = shown(page)
        assert page.is_hidden("#classes")
        page.keyboard.type("73")
        assert page.inner_text("#matches li:first-child").strip() == "73"
        page.keyboard.press("ArrowDown")
        chosen = page.inner_text("#matches [aria-selected=true]").strip()
        page.keyboard.press("Enter")
        second = shown(page, first)
        page.keyboard.type("999")
        page.keyboard.press("Enter")
        shown(page, second)
        assert labels(path) == {int(first): int(chosen), int(second): 999}


def test_the_grid_by_keyboard(tmp_path: Path, tab: Any) -> None:
    path = adaptive_run(tmp_path)
    with Server("label", "run", cwd=tmp_path) as server:
        page = tab(server.url)
        shown(page)
        page.click("#many")
        page.wait_for_selector("#cells button")
        count = page.locator("#cells button").count()
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        assert page.locator("#cells [aria-pressed=true]").count() == 1
        page.keyboard.down("Enter")
        page.keyboard.down("Enter")  # held down, it does not confirm
        page.keyboard.up("Enter")
        name = page.inner_text("#grid-question").split("“")[1].split("”")[0]
        assert f"Store {count - 1} as “{name}”, name the other one by one: enter again" in page.inner_text("#grid-done")
        assert labels(path) == {}
        page.keyboard.press("Escape")
        assert page.is_hidden("#grid-back")
        page.keyboard.press("Enter")
        page.keyboard.press("Space")  # another mark: asked again
        page.keyboard.press("Space")
        page.keyboard.press("Enter")
        assert labels(path) == {}
        page.keyboard.press("Enter")
        page.wait_for_selector("#single:not([hidden])")
        wrong = shown(page)
        assert len(labels(path)) == count - 1
        assert int(wrong) not in labels(path)
        page.keyboard.press("3")
        shown(page, wrong)
        assert labels(path)[int(wrong)] == 3


def test_the_live_page_from_a_family_to_an_explanation(tmp_path: Path, tab: Any) -> None:
    campaign(tmp_path)
    with Server("serve", "campaign", "--train", "npz:pool.npz#x", cwd=tmp_path) as server:
        page = tab(server.url)
        page.wait_for_selector("#families button")
        assert "Whether a person would still" in page.inner_text("#caution")
        before = page.locator("#families button").count()
        if page.is_visible(".counted .more"):
            page.click(".counted .more")
            until(lambda: page.locator("#families button").count() > before, "more families")
            before = page.locator("#families button").count()
        page.select_option("#true", index=1)
        until(lambda: 0 < page.locator("#families button").count() < before, "fewer families")
        page.click("#families button:first-child")
        page.wait_for_selector("#views img")
        assert page.locator("#views figure").count() >= 3
        facts = page.inner_text("#facts")
        assert "metamorphic: the prediction is not that of the seed" in facts
        assert "of the range from black to white" in facts
        page.click("#shrink")
        page.click("#explain")
        for kind in ("shrink", "explain"):
            ended = f"[data-job={kind}][data-state=done], [data-job={kind}][data-state=failed]"
            job = page.wait_for_selector(ended)
            assert job.get_attribute("data-state") == "done", job.inner_text()
        assert page.get_attribute("[data-job=explain] a", "href").startswith("/api/jobs/")
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.dataset.fault") is not None


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(tmp_path: Path, browser: Any, scheme: str) -> None:
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python").Axe()
    adaptive_run(tmp_path)
    campaign(tmp_path)
    for command, run, ready in (("label", "run", "#picture img"), ("serve", "campaign", "#families button")):
        with Server(command, run, cwd=tmp_path) as server:
            context = browser.new_context(color_scheme=scheme, bypass_csp=True)  # axe is put in from outside
            page = context.new_page()
            page.set_default_timeout(PATIENCE)
            page.goto(server.url)
            page.wait_for_selector(ready)
            steps = [None, "#many"] if command == "label" else [None, "#families button:first-child"]
            for step in steps:
                if step is not None:
                    page.click(step)
                    page.wait_for_selector("#cells button" if command == "label" else "#views img")
                page.wait_for_function("[...document.images].every((image) => image.complete)")
                found = axe.run(page).response["violations"]
                serious = [
                    (one["id"], one["nodes"][0]["html"][:200]) for one in found if one["impact"] in ("serious", "critical")
                ]
                assert not serious, (command, step, serious)
            context.close()
