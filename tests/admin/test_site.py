"""The admin port's HTTP, byte for byte."""

import re
import sys
from typing import Any

import pytest
from twisted.internet.defer import Deferred, succeed

from gateway import figures
from gateway.admin.freshness import Facts, Job, judge
from gateway.admin.site import Request, page_of
from gateway.admin.stream import EventStream
from gateway.sdk.protocol import Answer

OPEN = ["/healthz", "/readyz"]
GUARDED = ["/", "/metrics", "/api/status"]


def test_healthz(port, daemon):
    """Health is the reactor's alone: fine even when the daemon is not ready."""
    daemon.change(not_ready_reason="the disk is full")
    reply = port.ask("/healthz")
    assert (reply.code, reply.body) == (200, b"ok\n")
    assert daemon.asked == 0


def test_not_ready_says_why(port, daemon):
    """Not ready is 503 with the reason, and ready again when the reason is gone."""
    daemon.change(not_ready_reason="recovering the journal, 41 % done")
    reply = port.ask("/readyz")
    assert reply.code == 503
    assert reply.text == "not ready: recovering the journal, 41 % done\n"
    assert reply.headers["Content-Type"] == "text/plain; charset=utf-8"
    daemon.change(not_ready_reason=None)
    reply = port.ask("/readyz")
    assert (reply.code, reply.body) == (200, b"ready\n")


def test_status_has_the_fixed_fields(port):
    """Every field that docs/design.md section 6 fixes is there with its value."""
    reply = port.ask("/api/status")
    status = reply.json()
    assert reply.headers["Content-Type"] == "application/json"
    fixed = {
        "node": "gw-1",
        "version": "1.2.3",
        "ready": True,
        "not_ready_reason": None,
        "uptime_seconds": 61.5,
    }
    assert fixed.items() <= status.items()
    listener = {
        "name": "beats",
        "protocol": "lumberjack",
        "address": "tcp:127.0.0.1:5044",
        "connections": 3,
        "events": 4096,
        "bytes": 1_000_000,
    }
    assert listener.items() <= status["listeners"][0].items()
    assert {"durable_lsn": 4096, "bytes": 500_000}.items() <= status["journal"].items()
    spool = {"published_lsn": 4000, "files": 2, "bytes": 900}
    assert spool.items() <= status["spool"].items()
    assert {"files": 7, "bytes": 7000}.items() <= status["archive"].items()
    assert status["chain"] == {"last_lsn": 40, "link": "5f" * 32}


def test_status_says_how_fresh_the_tables_are(port, daemon):
    """First of all a sentence, then what a program wants to know."""
    assert "sentence" not in port.ask("/api/status").json()
    daemon.change(
        freshness=judge(
            Facts(
                durable_lsn=9,
                unpublished=2.5,
                uncommitted=90.0,
                job=Job(state="running", silent_seconds=70),
                listeners={"beats": 90.0, "games": None},
            )
        )
    )
    status = port.ask("/api/status").json()
    assert status["sentence"].startswith("Spark has been silent for 1 min; 0 B wait;")
    assert status["freshness"] == {
        "level": "bad",
        "stands": "spark",
        "age_seconds": 90.0,
        "unpublished_seconds": 2.5,
        "newest_seconds": None,
        "held_by": "spark",
        "goal": "table",
        "waiting_bytes": 0,
        "room_seconds": None,
        "listeners": {"beats": 90.0, "games": None},
        "reasons": [],
        "certificates": {},
        "crls": {},
        "condition": "GatewaySparkDown",
        "runbook": "docs/spark.md#when-something-is-wrong",
        "runbook_link": None,
    }
    assert b"\ngateway_unpublished_seconds 2.5\n" in port.ask("/metrics").body
    rows = status["cards"][0]["rows"]
    row = {"name": "oldest event not in a file", "value": 2.5, "unit": "seconds"}
    assert row in rows


def test_status_links_to_the_documentation_where_that_has_an_address(
    port, daemon, monkeypatch
):
    """Made of the address that the package names."""
    monkeypatch.setattr(figures, "_documentation", lambda: "https://docs.gateway.test")
    daemon.change(freshness=judge(Facts(durable_lsn=9, uncommitted=90.0, job=Job())))
    link = port.ask("/api/status").json()["freshness"]["runbook_link"]
    section = "spark.html#when-something-is-wrong"
    assert link == f"https://docs.gateway.test/{section}"


def test_status_names_the_reason(port, daemon):
    """A daemon that is not ready says so in its status, which still is 200."""
    daemon.change(not_ready_reason="the spool is full", listeners=[])
    reply = port.ask("/api/status")
    assert reply.code == 200
    assert reply.json()["ready"] is False
    assert reply.json()["not_ready_reason"] == "the spool is full"
    assert reply.json()["listeners"] == []


def test_metrics_in_the_asked_format(port):
    """Prometheus gets its text format, or OpenMetrics when it asks for that."""
    plain = port.ask("/metrics")
    assert plain.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    assert b"\ngateway_ready 1.0\n" in plain.body
    accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.1"
    modern = port.ask("/metrics", Accept=accept)
    assert modern.headers["Content-Type"].startswith("application/openmetrics-text")
    assert modern.body.endswith(b"# EOF\n")


@pytest.fixture
def page(port) -> dict[str, str]:
    """The files of the live page, by path."""
    html = port.ask("/").text
    scripts = (
        *("main", "way", "plots", "peers", "gateways", "tables", "tap", "words"),
    )
    paths = ["/live/style.css", *(f"/live/{name}.js" for name in scripts)]
    return {"/": html, **{path: port.ask(path).text for path in paths}}


def test_the_page_is_self_contained(port, page):
    """The live page loads nothing from elsewhere and runs only its own scripts."""
    reply = port.ask("/")
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    for text in page.values():
        assert not re.search(
            r"""(?:src|href|from|import) *=? *["']?(?:https?:)?//""", text
        )
    assert not re.search(r"<[^>]+ (?:style|on\w+)=", page["/"]), "the policy drops it"
    for script in (text for path, text in page.items() if path.endswith(".js")):
        for name in re.findall(r'from "\./([\w.]+)"', script):
            assert f"/live/{name}" in page
    kinds = {path: port.ask(path).headers["Content-Type"] for path in page}
    assert kinds["/live/main.js"] == "text/javascript; charset=utf-8"
    assert kinds["/live/style.css"] == "text/css; charset=utf-8"


def test_the_page_finds_its_elements(page):
    """Every element that the scripts look for by id is in the page."""
    wanted = set(re.findall(r"""\bat\("([\w-]+)"\)""", "".join(page.values())))
    assert len(wanted) > 20
    assert wanted <= set(re.findall(r'id="([\w-]+)"', page["/"]))


def test_what_senders_wrote_stays_text(page):
    """Payloads can not become markup, and are asked for only after a click."""
    scripts = "".join(text for path, text in page.items() if path.endswith(".js"))
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write", scripts)
    assert sorted(re.findall(r"new EventSource\((.*?)\)", scripts)) == [
        '"/api/feed"',
        '"/api/tap?" + query',
    ]
    begun = re.findall(r"^.*\bthis\.start\(.*$", page["/live/tap.js"], re.MULTILINE)
    assert [line.strip() for line in begun] == [
        "else this.start();",
        'form.addEventListener("change", () => { if (this.source) this.start(); });',
    ]


@pytest.mark.parametrize("path", OPEN + GUARDED)
def test_head(port, path):
    """HEAD has the code and length of GET and no body."""
    got, head = port.ask(path), port.ask(path, method="HEAD")
    assert head.code == got.code == 200
    assert head.body == b""
    assert int(head.headers["Content-Length"]) > 0
    assert len(got.body) == int(got.headers["Content-Length"])


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "BREW"])
@pytest.mark.parametrize("path", [*OPEN, *GUARDED, "/nowhere", "*"])
def test_reading_only(port, path, method):
    """Every other method is 405 and says what is allowed."""
    reply = port.ask(path, method=method)
    assert reply.code == 405
    assert reply.headers["Allow"] == "GET, HEAD"


def test_no_such_page(port):
    """An unknown path names the known ones."""
    reply = port.ask("/favicon.ico?x=/metrics")
    assert reply.code == 404
    assert "/healthz" in reply.text
    assert "/api/status" in reply.text


def test_no_such_endpoint(port):
    """Under /api/ even an error is JSON."""
    reply = port.ask("/api/nothing")
    assert reply.code == 404
    assert reply.headers["Content-Type"] == "application/json"
    assert "no such page" in reply.json()["error"]


@pytest.mark.parametrize(
    "path", ["//metrics", "/metrics/", "/../metrics", "/%6detrics"]
)
def test_paths_are_exact(port, path):
    """No other spelling of a path reaches it."""
    assert port.ask(path).code == 404


def test_queries_are_ignored(port):
    assert port.ask("/healthz?verbose=1").code == 200


@pytest.mark.parametrize("method", ["GET", "PUT"])
@pytest.mark.parametrize("path", [*GUARDED, "/nowhere", "/api/nothing", "/api/x"])
def test_the_token_is_required(open_port, path, method):
    """With a token set, nobody without it learns anything, not even which paths are."""
    port = open_port(token="s3cret", posts={"/api/x": Answer})
    for headers in ({}, {"Authorization": "Bearer wrong"}):
        reply = port.ask(path, method, **headers)
        assert reply.code == 401
        assert reply.headers["WWW-Authenticate"].startswith("Basic ")
        assert "admin.token" in reply.text
        assert "s3cret" not in reply.text


@pytest.mark.parametrize("path", GUARDED)
def test_the_token_opens(open_port, path):
    """With the token, every page is there."""
    port = open_port(token="s3cret", listen="tcp:0.0.0.0:0")
    assert port.ask(path, Authorization="Bearer s3cret").code == 200


@pytest.mark.parametrize("path", OPEN)
def test_health_is_for_everyone(open_port, path):
    """Health and readiness need no token: kubelets and load balancers have none."""
    assert open_port(token="s3cret").ask(path).code == 200


@pytest.mark.parametrize("path", OPEN + GUARDED)
@pytest.mark.parametrize("token", [None, "s3cret"])
def test_dns_rebinding(open_port, path, token):
    """On loopback a browser lured to us under another name is refused."""
    port = open_port(token=token)
    headers = {"Authorization": "Bearer s3cret"} if token else {}
    assert port.ask(path, Host="evil.example:8080", **headers).code == 403
    assert port.ask(path, Host="localhost:8080", **headers).code == 200


def test_a_probe_without_host(client):
    """An HTTP/1.0 probe that sends no Host field is answered, and let go."""
    raw = client.send(b"GET /healthz HTTP/1.0\r\n\r\n")
    assert raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert raw.endswith(b"\r\n\r\nok\n")
    assert client.gone


@pytest.mark.parametrize("path", ["/readyz", "/metrics", "/api/status"])
def test_failures_stay_inside(port, daemon, path, logged):
    """A failure is 500 without a word of it to the client, and whole in the log."""
    daemon.broken = RuntimeError("secret path /var/lib/x")
    reply = port.ask(path)
    assert reply.code == 500
    assert b"secret" not in reply.body
    assert b"Traceback" not in reply.body
    [event] = [event for event in logged if "log_failure" in event]
    assert event["log_failure"].value is daemon.broken


def test_quiet(port, logged):
    """Answering writes nothing to the log."""
    for path in [*OPEN, *GUARDED, "/nowhere"]:
        port.ask(path)
    assert logged == []


@pytest.mark.parametrize("path", ["/", "/healthz", "/nowhere", "*"])
def test_who_we_are_stays_here(port, path):
    """No response tells what serves it, and none is cached or sniffed."""
    reply = port.ask(path)
    assert "Server" not in reply.headers
    assert "TwistedWeb" not in reply.text
    assert reply.headers["Cache-Control"] == "no-store"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"


def test_hostile_bytes(port):
    """Header values and paths of any bytes get an answer, not an exception."""
    assert port.ask("/healthz", Host="\xff\xfe").code == 403
    assert port.ask("/\xff\xfe").code == 400
    assert port.ask("/" + 4000 * "%ff").code == 404
    assert b"200 OK" not in port.send(b"GET /" + bytes(20_000) + b" HTTP/1.1\r\n\r\n")
    assert port.ask("/metrics", Accept="\xff" * 100).code == 200
    assert port.ask("/metrics", Accept="application/openmetrics-text;version=x").code


def test_one_connection_many_requests(client):
    """A scraper may keep its connection."""
    for _ in range(3):
        got = client.send(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200 OK\r\n")
    assert not client.gone


@pytest.mark.parametrize(
    "framing",
    [b"Content-Length: 10000000000\r\n\r\n", b"Transfer-Encoding: chunked\r\n\r\n"],
)
@pytest.mark.parametrize("method", [b"POST", b"GET"])
def test_bodies_go_nowhere(client, method, framing):
    """One that nobody wants is not waited for, and what comes of it is dropped."""
    got = client.send(method + b" / HTTP/1.1\r\nHost: localhost\r\n" + framing)
    assert got.startswith(b"HTTP/1.1 405 " if method == b"POST" else b"HTTP/1.1 200 ")
    assert b"\r\nConnection: close\r\n" in got
    assert client.gone
    for _ in range(100):
        assert client.send(b"2000\r\n" + bytes(0x2000) + b"\r\n") == b""


def test_silence_is_not_for_ever(client, port):
    """A connection that says nothing is closed."""
    for _ in range(40):
        port.clock.advance(2)
    assert client.gone


def test_more_pages(open_port):
    """The daemon adds pages of its own, behind the same token; they may stream."""

    def stream(_: Any) -> EventStream:
        return EventStream(lambda: None, b"data: 1\n\n")

    hello = Answer(b"hello", headers={"X-Extra": "1"})
    port = open_port(
        token="t", more={"/api/tap": stream, "/api/hello": lambda _: hello}
    )
    assert port.ask("/api/hello").code == 401
    reply = port.ask("/api/hello", Authorization="Bearer t")
    assert (reply.body, reply.headers["X-Extra"]) == (b"hello", "1")
    assert b"data: 1" in port.ask("/api/tap", Authorization="Bearer t").body


# Posts


@pytest.fixture
def mirror(open_port) -> Any:
    """A port that answers a post with what was posted."""
    return open_port(posts={"/api/x": Answer}, token="s3cret")


BEARER = {"Authorization": "Bearer s3cret"}


def test_a_post_is_answered(mirror):
    """With the token, and JSON; its body arrives whole."""
    assert mirror.post("/api/x", b"[1]", **BEARER).body == b"[1]"
    kind = {"Content_Type": "application/json; charset=utf-8"}
    assert mirror.post("/api/x", b"[1]", **kind, **BEARER).code == 200


def test_a_post_that_takes_time(open_port):
    """It is answered when it is done; a failure is a 500; who has gone is forgotten."""
    done: list[Deferred[Answer]] = []

    def post(body: bytes) -> Deferred[Answer]:
        done.append(Deferred())
        return done[-1]

    port = open_port(posts={"/api/x": post}, token="s3cret")
    ask = (
        b"POST /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n"
        b"Content-Type: application/json\r\nAuthorization: Bearer s3cret\r\n\r\n{}"
    )
    clients = [port.come() for _ in range(3)]
    assert not any(client.send(ask) for client in clients)
    done[0].callback(Answer(b"now"))
    assert clients[0].got.endswith(b"now")
    done[1].errback(ZeroDivisionError())
    assert clients[1].got.startswith(b"HTTP/1.1 500 ")
    clients[2].lose()
    done[2].callback(Answer(b"late"))
    assert not clients[2].got


def test_pages_that_answer_nothing(open_port):
    """A plug-in's page without an answer, or one that exits, is a failure as others."""
    port = open_port(
        token="s3cret",
        more={
            "/api/none": page_of(lambda query: None),  # type: ignore[arg-type, return-value]
            "/api/exit": page_of(lambda query: sys.exit(3)),
        },
        posts={"/api/x": lambda body: None, "/api/y": lambda body: succeed(None)},
    )
    assert [port.ask(path, **BEARER).code for path in ("/api/none", "/api/exit")] == [
        500,
        500,
    ]
    assert [port.post(path, b"{}", **BEARER).code for path in ("/api/x", "/api/y")] == [
        500,
        500,
    ]


@pytest.mark.parametrize(
    ("headers", "code"),
    [
        ({}, 401),
        ({"Authorization": "Bearer wrong"}, 401),
        ({**BEARER, "Content_Type": "text/plain"}, 415),
        ({**BEARER, "Host": "rebound.example"}, 403),
    ],
)
def test_who_may_not_post(mirror, headers, code):
    """A page elsewhere can make a browser post anything but JSON."""
    assert mirror.post("/api/x", b"[1]", **headers).code == code


def test_what_is_too_much_to_post(mirror):
    """1 MiB is taken, more is refused, and much more is not even listened to."""
    assert mirror.post("/api/x", bytes(1 << 20), **BEARER).code == 200
    refused = mirror.post("/api/x", bytes((1 << 20) + 1), **BEARER)
    assert refused.code == 413
    assert "1048576" in refused.json()["error"]
    client = mirror.come()
    got = client.send(
        b"POST /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 99999999\r\n"
        b"Content-Type: application/json\r\nAuthorization: Bearer s3cret\r\n\r\n"
    )
    assert got.startswith(b"HTTP/1.1 413 ")
    assert client.gone


def test_other_methods_on_a_post(mirror):
    """405 says which one it is; pages are not posted to."""
    refused = mirror.ask("/api/x", **BEARER)
    assert (refused.code, refused.headers["Allow"]) == (405, "POST")
    assert mirror.post("/api/status", b"1", **BEARER).code == 405


def test_without_a_token_nothing_is_posted(open_port):
    """On loopback, too, unless the configuration trusts whoever is there."""
    refused = open_port(posts={"/api/x": Answer}).post("/api/x", b"[1]")
    assert refused.code == 403
    assert "admin.trust_loopback" in refused.json()["error"]
    trusting = open_port(posts={"/api/x": Answer}, trust_loopback=True)
    assert trusting.post("/api/x", b"[1]").body == b"[1]"
    by_file = open_port(posts={"/api/x": Answer}, listen="unix:/run/x")
    assert by_file.post("/api/x", b"[1]").code == 200


def test_a_page_gets_the_fields_of_the_query():
    """As text, the last of each name; bytes that are no UTF-8 do no harm."""
    page = page_of(lambda query: Answer(repr(sorted(query.items())).encode()))
    answer = page(Request("GET", "/x?uid=a&uid=b&%ff=%fe", []))
    assert isinstance(answer, Answer)
    assert answer.body.decode() == "[('uid', 'b'), ('\ufffd', '\ufffd')]"
