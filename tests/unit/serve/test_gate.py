"""What is refused before the application sees it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from neurotest.serve.gate import KNOCKS, LARGEST, Access, Gate, _Bucket

pytestmark = pytest.mark.plain
ACCESS = Access(8731)
HOST = "127.0.0.1:8731"


async def behind(scope: Any, receive: Any, send: Any) -> None:
    message = await receive()
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": message["body"]})


def ask(
    path: str = "/api/about", method: str = "GET", query: str = "", body: bytes = b"", gate: Gate | None = None, chunks: int = 1,
    access: Access = ACCESS, **headers: str | None,
) -> tuple[int, dict[str, str], bytes]:  # fmt: skip
    usual: dict[str, str | None] = {
        "host": HOST,
        "authorization": f"Bearer {access.token}",
        **{k.replace("_", "-"): v for k, v in headers.items()},
    }
    pairs = [(name.encode(), value.encode("latin-1", "replace")) for name, value in usual.items() if value is not None]
    size = max(1, -(-len(body) // chunks))
    parts = [body[i : i + size] for i in range(0, len(body), size)] or [b""]
    waiting = [{"type": "http.request", "body": part, "more_body": i < len(parts) - 1} for i, part in enumerate(parts)]
    sent: list[Any] = []

    async def receive() -> Any:
        return waiting.pop(0)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "query_string": query.encode(), "headers": pairs}
    asyncio.run((gate or Gate(behind, access))(scope, receive, send))
    answered = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
    return sent[0]["status"], answered, b"".join(m.get("body", b"") for m in sent[1:])


def test_with_the_token_a_request_passes_and_answers_carry_the_policy() -> None:
    status, headers, _ = ask()
    assert status == 200
    assert "unsafe" not in headers["content-security-policy"]
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"


def test_the_token_in_the_address_becomes_a_cookie_once() -> None:
    status, headers, _ = ask("/", query=f"token={ACCESS.token}", authorization=None)
    assert (status, headers["location"]) == (303, "/")
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert ACCESS.token not in cookie
    assert ask(authorization=None, cookie=cookie.partition(";")[0])[0] == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": None},
        {"authorization": "Bearer "},
        {"authorization": "Bearer " + "0" * 64},
        {"authorization": f"Basic {ACCESS.token}"},
        {"authorization": None, "cookie": f"neurotest-8731={'0' * 64}"},
        {"authorization": None, "cookie": f"neurotest-8731={ACCESS.token}"},
        {"authorization": None, "cookie": f"neurotest-9999={ACCESS.cookie}"},
        {"authorization": None, "cookie": "\x80=;;="},
    ],
)
def test_without_it_nothing_is_answered(headers: dict[str, str | None]) -> None:
    status, _, body = ask(**headers)
    assert status == 401
    assert b"address that neurotest printed" in body


def test_a_wrong_token_in_the_address_gives_no_cookie() -> None:
    status, headers, _ = ask("/", query="token=" + "0" * 64)
    assert status == 401
    assert "set-cookie" not in headers


@pytest.mark.parametrize(
    "host", [None, "evil.example", "evil.example:8731", "127.0.0.1", "127.0.0.1:80", "localhost:8731.evil.example", ""]
)
def test_another_host_is_refused_even_with_the_token(host: str | None) -> None:
    assert ask(host=host)[0] == 400


@pytest.mark.parametrize("origin", ["http://evil.example", "null", "https://127.0.0.1:8731", "http://127.0.0.1:9999"])
def test_pages_of_other_sites_are_refused(origin: str) -> None:
    assert ask("/api/label", "POST", body=b"{}", content_type="application/json", origin=origin)[0] == 403
    assert ask(origin=origin)[0] == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_browser_that_says_so_is_believed(site: str) -> None:
    assert ask("/api/label", "POST", body=b"{}", content_type="application/json", sec_fetch_site=site)[0] == 403


@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"])
def test_what_a_form_sends_is_refused(kind: str | None) -> None:
    assert ask("/api/label", "POST", body=b"{}", content_type=kind)[0] == 415


def test_large_bodies_are_refused_whether_announced_or_not() -> None:
    assert ask("/x", "POST", body=b"", content_length=str(LARGEST + 1), content_type="application/json")[0] == 413
    assert ask("/x", "POST", body=b"a" * (LARGEST + 1), chunks=7, content_type="application/json")[0] == 413
    assert ask("/x", "POST", body=b"a" * LARGEST, chunks=7, content_type="application/json")[0] == 200
    assert ask("/x", "POST", body=b"", content_length="many")[0] == 400


def test_too_many_requests_wait_and_strangers_sooner() -> None:
    now = [0.0]
    gate = Gate(behind, ACCESS, guests=_Bucket(1, 2, lambda: now[0]), users=_Bucket(1, 3, lambda: now[0]))
    assert [ask(gate=gate, authorization=None)[0] for _ in range(3)] == [401, 401, 429]
    assert [ask(gate=gate)[0] for _ in range(4)] == [200, 200, 200, 429]
    now[0] = 1.0
    assert ask(gate=gate)[0] == 200
    assert KNOCKS < 100


def test_the_cookie_outlives_the_server_and_the_token_does_not(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NEUROTEST_CACHE", str(tmp_path))
    one, two = Access.of("a" * 32, 8731), Access.of("a" * 32, 8731)
    assert one.cookie == two.cookie
    assert one.token != two.token
    assert Access.of("b" * 32, 8731).cookie != one.cookie
    assert Access.of("a" * 32, 8732).cookie != one.cookie
    assert Access.of("../../x", 8731).cookie != Access.of("../../x", 8731).cookie
    assert (tmp_path / "serve" / ("a" * 32)).stat().st_mode & 0o077 == 0


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["host", "origin", "cookie", "authorization", "content_length", "content_type"]), st.text(max_size=40)
    ),
    st.sampled_from(["GET", "POST", "PUT", "OPTIONS"]),
    st.text(max_size=20),
    st.binary(max_size=50),
)
def test_nothing_passes_by_chance(headers: dict[str, str], method: str, query: str, body: bytes) -> None:
    status, _, _ = ask("/", method, query=query.encode("utf-8", "replace").hex(), body=body, **{"authorization": None, **headers})
    assert status in (400, 401, 403, 413, 429)
