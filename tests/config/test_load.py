"""A configuration is right, or everything that is wrong with it is said."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError

from gateway import config
from gateway.config import Tcp, Unix
from gateway.plugins import installed
from gateway.protocols.lumberjack.options import Options as Lumberjack
from gateway.protocols.pomelo.options import Options as Pomelo

Load = Callable[..., config.Config]
Problems = Callable[..., list[str]]

INSTALLED = ", ".join(installed().protocols)

LISTENER = """
listeners:
  - name: beats
    protocol: lumberjack
    listen: tcp:5044
"""


def test_a_listener_is_enough(load: Load) -> None:
    """All the rest has the defaults of the design."""
    loaded = load("")
    [listener] = loaded.listeners
    assert listener.listen == Tcp("", 5044)
    assert listener.websocket is listener.proxy_protocol is listener.tls is None
    assert listener.limits.message_bytes == 16 << 20
    assert listener.limits.idle == 900.0
    assert listener.options == Lumberjack()
    assert listener.options.keepalive_interval == 3.0
    assert loaded.data_dir == Path("/var/lib/gateway")
    assert loaded.journal.directory == Path("journal")
    assert loaded.journal.commit_interval == 0.002
    assert loaded.spool.max_bytes == 20 << 30
    assert loaded.admin.listen == Tcp("127.0.0.1", 8080)
    assert loaded.admin.token is None
    assert loaded.spark.conf == {}


def test_units(load: Load) -> None:
    """Sizes become bytes and times become seconds, from the environment too."""
    loaded = load(
        """
        journal: {segment_bytes: 1MiB, commit_interval: 0s}
        spool: {roll_bytes: "${env:ROLL}", roll_events: "${env:EVENTS}"}
        spark: {ui: "${env:UI}", trigger: 1.5s}
        """,
        {"ROLL": "2MiB", "EVENTS": "10", "UI": "true"},
    )
    assert loaded.journal.segment_bytes == 1 << 20
    assert loaded.journal.commit_interval == 0.0
    assert loaded.spool.roll_bytes == 2 << 20
    assert loaded.spool.roll_events == 10
    assert loaded.spark.ui is True
    assert loaded.spark.trigger == 1.5


def test_it_can_not_be_changed(load: Load) -> None:
    """A configuration is read once; nobody changes it underway."""
    loaded = load("")
    with pytest.raises(ValidationError):
        loaded.ack = "spool"  # type: ignore[misc]


def test_relative_paths_are_below_the_file(load: Load, tmp_path: Path) -> None:
    """Wherever the daemon is started, it finds the same files."""
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    loaded = load(
        """
        data_dir: data
        listeners:
          - name: b
            protocol: lumberjack
            listen: unix:gw.sock
            tls: {certificate: cert.pem, private_key: key.pem}
        """,
        listeners=False,
    )
    [listener] = loaded.listeners
    assert loaded.data_dir == tmp_path / "data"
    assert listener.listen == Unix(tmp_path / "gw.sock")
    assert listener.tls is not None
    assert listener.tls.certificate == tmp_path / "cert.pem"


def test_everything_at_once(problems: Problems, tmp_path: Path) -> None:
    """A file with many mistakes is answered with all of them, in the file's order."""
    assert problems(
        f"""
        node: Gw_1
        ack: jornal
        joural: {{}}
        journal: {{segment_bytes: 64 MiBs, idle: 3s}}
        listeners:
          - name: beats
            protocol: lumberjack
            lissten: tcp:5044
            tls:
              certificate: {tmp_path}/none.pem
              private_key: {tmp_path}
            options: {{keepalive_interval: 20s}}
        admin: {{token: "${{env:NONE}}"}}
        """,
        listeners=False,
    ) == [
        (
            "node: must be at most 100 lower case letters, digits, dots and dashes "
            "(it is part of file names), not 'Gw_1' (line 2)"
        ),
        "ack: must be journal or spool, not 'jornal'; did you mean journal? (line 3)",
        "joural: unknown key; did you mean 'journal'? (line 4)",
        (
            "journal.segment_bytes: must be a size such as 64MiB, 100MB or 65536 (bytes), "
            "not '64 MiBs' (line 5)"
        ),
        "journal.idle: unknown key; it belongs in listeners[].limits (line 5)",
        (
            "listeners[0].listen: is required: tcp:PORT (IPv4), tcp:[::]:PORT (all), tcp:HOST:PORT, "
            "unix:PATH or systemd:NAME (line 7)"
        ),
        "listeners[0].lissten: unknown key; did you mean 'listen'? (line 9)",
        f"listeners[0].tls.certificate: no such file: {tmp_path}/none.pem (line 11)",
        f"listeners[0].tls.private_key: not a file: {tmp_path} (line 12)",
        (
            "listeners[0].options.keepalive_interval: must be between 1s and 10s, "
            "not 20s (line 13)"
        ),
        "admin.token: the environment variable NONE is not set: ${env:NONE} (line 14)",
    ]


def test_sections_are_compared_beside_other_mistakes(problems: Problems) -> None:
    """A mistake in one key does not hide that two sections do not fit together."""
    assert problems(
        """
        lodging: {}
        logging: {level: loud}
        spool: {max_bytes: 1MiB, roll_bytes: 1MiB}
        journal: {segment_bytes: 2MiB}
        """
    ) == [
        "lodging: unknown key; did you mean 'logging'? (line 2)",
        (
            "logging.level: must be debug, info, warn, error or critical, not 'loud' "
            "(line 3)"
        ),
        "journal.segment_bytes: 2MiB is more than spool.max_bytes: 1MiB (line 5)",
    ]


def test_only_a_port_that_others_know_is_shared(problems: Problems) -> None:
    """And only where a client may meet any of those that share it."""
    assert problems(
        """
        listeners:
        - {name: a, protocol: lumberjack, listen: tcp:0, reuse_port: true}
        - {name: b, protocol: lumberjack, listen: 'systemd:b', reuse_port: true}
        """,
        listeners=False,
    ) == [
        (
            "listeners[0].reuse_port: is for a port that others know, not for any free "
            "one (tcp:0) (line 3)"
        ),
        "listeners[1].reuse_port: is for a port of tcp:, not for systemd:b (line 4)",
    ]
    assert problems(
        """
        listeners:
        - {name: a, protocol: pravega, listen: tcp:1, reuse_port: true}
        - {name: b, protocol: lumberjack, listen: tcp:2, reuse_port: true}
        """,
        listeners=False,
    ) == [
        (
            "listeners[0].reuse_port: is not for pravega: its streams lie in one data_dir, "
            "and its clients would meet several (line 3)"
        ),
    ]


def test_not_every_protocol_ends_connections_that_are_old(
    load: Load, problems: Problems
) -> None:
    """Players would be thrown out, and Pravega's clients find their streams nowhere else."""
    text = """
        listeners:
        - {name: a, protocol: NAME, listen: tcp:1, limits: {connection_age: 1h}}
        """
    aging = [name for name, one in installed().protocols.items() if one.ages]
    for name in ("pomelo", "pravega"):
        assert problems(text.replace("NAME", name), listeners=False) == [
            (
                f"listeners[0].limits.connection_age: is not for {name} "
                f"({', '.join(aging)} have it) (line 3)"
            )
        ]
    for name in ("lumberjack", "rsio"):
        found = load(text.replace("NAME", name), listeners=False)
        assert found.listeners[0].limits.connection_age == 3600


def test_pravega_listeners_agree_on_what_they_share(problems: Problems) -> None:
    """Their segments, who may use them, and the one controller."""
    assert problems(
        """
        listeners:
        - {name: a, protocol: pravega, listen: tcp:1, options: {controller: tcp:3}}
        - name: b
          protocol: pravega
          listen: tcp:2
          options: {controller: tcp:4, segments: 5, reads: 5, users: {alice: s}}
        """,
        listeners=False,
    ) == [
        (
            "listeners[1].options.controller: listeners[0] has one already: there is "
            "one for all (line 7)"
        ),
        (
            "listeners[1].options.segments: must be as in listeners[0]: one container "
            "(line 7)"
        ),
        (
            "listeners[1].options.users: must be as in listeners[0]: one container "
            "(line 7)"
        ),
    ]


def test_rules_of_access_are_checked(problems: Problems) -> None:
    """A pattern that could match nothing, a rule without a right, rules that differ."""
    at = "listeners[0].options.access"
    shape = (
        "must be SCOPE/STREAM, each of letters, digits, dots, dashes, _ and * for any"
    )
    keys = "principals, read, write, manage, groups"
    assert problems(
        """
        listeners:
        - name: a
          protocol: pravega
          listen: tcp:1
          options:
            access:
            - {principals: [ann], read: [shop]}
            - {principals: [ann], write: ["shop/orders/0"], manage: ["sh op/*"]}
            - {principals: [], groups: ["shop/*"]}
            - {principals: [bob]}
            - {principals: [bob], read: ["shop/*"], delete: ["shop/*"]}
        """,
        listeners=False,
    ) == [
        f"{at}[0].read[0]: {shape}, not 'shop' (line 8)",
        f"{at}[1].write[0]: {shape}, not 'shop/orders/0' (line 9)",
        f"{at}[1].manage[0]: {shape}, not 'sh op/*' (line 9)",
        f"{at}[2].principals: must have at least one entry (line 10)",
        f"{at}[3]: allows nothing: it needs read, write, manage or groups (line 11)",
        f"{at}[4].delete: unknown key; allowed: {keys} (line 12)",
    ]
    assert problems(
        """
        listeners:
        - {name: a, protocol: pravega, listen: tcp:1, options: {access: []}}
        - {name: b, protocol: pravega, listen: tcp:2}
        """,
        listeners=False,
    ) == [
        "listeners[1].options.access: must be as in listeners[0]: one container (line 4)"
    ]


@pytest.mark.parametrize(
    ("listen", "options", "problem"),
    [
        ("tcp:1", "advertise: 'a:1'", "has no effect without controller"),
        ("tcp:1", "controller: tcp:2, advertise: a", "must be HOST:PORT, not a"),
        ("tcp:1", "controller: tcp:2, advertise: 'a:0'", "must be HOST:PORT, not a:0"),
        ("unix:/s", "controller: tcp:2", (
            "is needed, because the controller has no port to tell for unix:/s"
        )),
    ],
)  # fmt: skip
def test_where_pravega_clients_are_sent(
    problems: Problems, listen: str, options: str, problem: str
) -> None:
    """A mistake shows at the start, not when the first client asks."""
    listener = f"name: a, protocol: pravega, listen: '{listen}', options: {{{options}}}"
    assert problems(f"listeners: [{{{listener}}}]", listeners=False) == [
        f"listeners[0].options.advertise: {problem} (line 1)"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            """
            listeners:
            - {name: a, protocol: pravega, listen: tcp:1, options: {controller: tcp:1}}
            """,
            (
                "listeners[0].options.controller: tcp:1 is taken by listeners[0].listen: "
                "tcp:1 (line 3)"
            ),
        ),
        ("workers: 4", ("workers: unknown key; allowed: node, data_dir, ack, listeners, "
         "journal, spool, forward, admin, logging, spark (line 1)")),
        ("journal: []", ("journal: must be a mapping of directory, commit_interval, "
         "segment_bytes, memory_bytes, stall_after, not a list (line 1)")),
        ("spark: {ui: yes}", "spark.ui: must be true or false, not 'yes' (line 1)"),
        ("spark: {sink: orc}",
         "spark.sink: must be parquet, delta, iceberg or module:function, not 'orc' (line 1)"),
        ("spark: {sink: 'a b:c'}",
         "spark.sink: must be parquet, delta, iceberg or module:function, not 'a b:c' (line 1)"),
        ("spark: {columns: {a: {path: 'b.\"c'}}}",
         ("spark.columns.a.path: must be keys joined by dots, in quotes where a key has dots"
         " in it (labels.\"app.kubernetes.io/name\"), not 'b.\"c' (line 1)")),
        ("spark: {columns: {a: {path: a.b.c.d.e.f.g.h.i.j.k}}}",
         ("spark.columns.a.path: has 11 keys, and at most 10 are looked for in each way that"
         " dots may join them; put keys that have dots into quotes: 'a.b.c.d.e.f.g.h.i.j.k'"
         " (line 1)")),
        ("spark: {sink: 'm:f', deduplicate: true}",
         "spark.deduplicate: needs spark.sink: parquet, not m:f (line 1)"),
        ("spark: {columns: {a: {path: a, type: text}}}",
         ("spark.columns.a.type: must be string, int, long, double, boolean, timestamp, date, "
         "json, decimal(10,2) or list<string> (int, long, double, boolean), not 'text' (line 1)")),
        ("spark: {columns: {a: {path: a, type: 'decimal(39,2)'}}}",
         ("spark.columns.a.type: must have 1 to 38 digits, and no more of them behind the "
         "point: decimal(10,2), not decimal(39,2) (line 1)")),
        ("spark: {columns: {a: {path: 'items[0].sku'}}}",
         ("spark.columns.a.path: does not lead into a list: items[0] in 'items[0].sku'. Take "
         "the list itself, as type: json or list<…>; a key that is called like that stands in "
         "quotes (line 1)")),
        ("spark: {columns: {a: {path: a, type: date, default: March}}}",
         ("spark.columns.a.default: must be a day like 2026-03-01 (type: date), not "
         "'March' (line 1)")),
        ("spark: {sink: iceberg, partition_by: [date, days(evnt_time)]}",
         ("spark.partition_by[1]: no column 'evnt_time'; did you mean 'event_time'? There are "
         "agent_id, attributes, body, channel, content_type, date, event_dataset, event_offset, "
         "event_time, event_time_source, flaw, host, incarnation, kind, listener, log_file_path, "
         "log_offset, lsn, message, misfits, node, payload, payload_bytes, peer, principal, "
         "protocol, publisher, received_at, route, scope, segment, seq, session, stream, uid "
         "(line 1)")),
        ("spark: {columns: {a: {path: a, type: list<long>, default: 1}}}",
         "spark.columns.a.default: must be left out (type: list<long>), not 1 (line 1)"),
        ("spark: {columns: {path: [{path: a, typ: int}]}}",
         "spark.columns.path[0].typ: unknown key; did you mean 'type'? (line 1)"),
        ("spark: {columns: {a: b}}", ("spark.columns.a: must be a mapping of path, type, "
         "default, protocol, listener, not 'b' (line 1)")),
        ("spark: {columns: {a: {path: [b, 1]}}}",
         "spark.columns.a.path[1]: must be text, not 1 (line 1)"),
        ("spark: {columns: {a: []}}",
         "spark.columns.a: must name at least one source, or be null (line 1)"),
        ("spark: {columns: {A: {path: a}}}", ("spark.columns.A: must be at most 100 lower "
         "case letters, digits and _ and begin with no digit, not 'A' (line 1)")),
        ("spark: {columns: {a: {path: a, type: int, default: many}}}",
         ("spark.columns.a.default: must be a whole number from -2147483648 to 2147483647 "
         "(type: int), not 'many' (line 1)")),
        ("spark: {columns: {a: [{path: a, type: long, default: 9223372036854775808}]}}",
         ("spark.columns.a[0].default: must be a whole number from -9223372036854775808 to "
         "9223372036854775807 (type: long), not 9.223372036854776e+18 (line 1)")),
        ("spark: {columns: {a: {path: a, type: boolean, default: 1}}}",
         "spark.columns.a.default: must be true or false (type: boolean), not 1 (line 1)"),
        ("spark: {columns: {a: {path: a, type: double, default: true}}}",
         "spark.columns.a.default: must be a number (type: double), not True (line 1)"),
        ("spark: {columns: {a: {path: a, type: timestamp, default: '2026-02-30T00:00Z'}}}",
         ("spark.columns.a.default: must be an instant like 2026-03-01T12:00:00Z "
         "(type: timestamp), not '2026-02-30T00:00Z' (line 1)")),
        ("spark: {columns: {a: {path: a, type: timestamp, default: '2026-W01-1T00:00Z'}}}",
         ("spark.columns.a.default: must be an instant like 2026-03-01T12:00:00Z "
          "(type: timestamp), not '2026-W01-1T00:00Z' (line 1)")),
        ("spark: {columns: {a: {path: a, default: [1]}}}",
         "spark.columns.a.default: must be text, a number or a boolean, not [1] (line 1)"),
        ("spark: {columns: {a: [{path: a, protocol: pomelo}, {path: b, type: int}]}}",
         ("spark.columns.a[1].type: must be string as in the first source: a column has one "
         "type (line 1)")),
        ("spark: {columns: {log_offset: {path: at, protocol: pomelo}}}",
         ("spark.columns.log_offset.type: must be long as it is for all other events: a "
          "column has one type (line 1)")),
        ("spark: {columns: {host: [{path: a, type: int, listener: x}]}}",
         ("spark.columns.host[0].type: must be string as it is for all other events: a "
          "column has one type (line 1)")),
        ("spark: {columns: {a: [{path: a}, {path: b, protocol: pomelo}]}}",
         ("spark.columns.a[1]: is never looked at: one before it is for all events; put that "
         "last (line 1)")),
        ("spark: {conf: {a: [1]}}", ("spark.conf.a: must be text, a number or a boolean, "
         "not [1] (line 1)")),
        ("admin: {peers: ['https://gw-2:80800']}",
         ("admin.peers[0]: must be like https://gw-2.example.org:8080, or "
         "unix:/run/gateway/admin.sock, not 'https://gw-2:80800' (line 1)")),
        ("spool: {s3: {endpoint: 'http://s3:port'}}",
         ("spool.s3.endpoint: must be like https://s3.example.org:9000, not "
         "'http://s3:port' (line 1)")),
        ("spark: {driver_memory: 1}", "spark.driver_memory: must be text, not 1 (line 1)"),
        ("spark: {driver_memory: 1GB}", ("spark.driver_memory: must be like 512MiB, 512m or 2g, "
         "not '1GB' (line 1)")),
        ("node: ..", ("node: must be at most 100 lower case letters, digits, dots and "
         "dashes (it is part of file names), not '..' (line 1)")),
        ("node: 7", "node: must be text, not 7 (line 1)"),
        ("data_dir: ''", ("data_dir: must be text of at least one character, not '' "
         "(line 1)")),
        ("data_dir: s3://bucket/x", ("data_dir: must be a path of this machine, not a URL: "
         "'s3://bucket/x' (line 1)")),
        ("spool: {directory: 's3a://bucket/spool'}", ("spool.directory: must be a path of "
         "this machine, not a URL: 's3a://bucket/spool' (line 1)")),
        ("spool: {directory: 's3://b/x'}", ("spool.directory: must be like "
         "s3://bucket/prefix, the bucket of 3 to 63 lower case letters, digits, dots and "
         "dashes, the parts of the prefix of letters, digits, dots, dashes and _, the "
         "first a letter or a digit, not 's3://b/x' (line 1)")),
        ("spool: {directory: 's3://bucket/p', roll_bytes: 2GiB}", ("spool.roll_bytes: 2GiB "
         "is more than 1GiB, the most for a file in s3://bucket/p (line 1)")),
        ("spool: {s3: {access_key_id: K}}", ("spool.s3.secret_access_key: is needed too: "
         "both parts of a key, or none of them (line 1)")),
        ("spool: {retention: 24}", ("spool.retention: must be a time with its unit, such "
         "as 200ms, 5s, 15m, 1h or 30d, not 24 (line 1)")),
        ("spool: {roll_events: 1.5}", ("spool.roll_events: must be a whole number, "
         "not 1.5 (line 1)")),
        ("spool: {roll_events: true}", ("spool.roll_events: must be a whole number, "
         "not True (line 1)")),
        ("spool: {roll_events: 0}", ("spool.roll_events: must be between 1 and 2147483648, "
         "not 0 (line 1)")),
        ("spool: {directory: journal}", None),
        ("spool: {directory: archive/new}", None),
        ("spark: {admin: {listen: 'tcp:0.0.0.0:8081'}}",
         ("admin.token: is required, because other machines can reach tcp:0.0.0.0:8081"
         " (spark.admin.listen) (line 1)")),
        ("admin: {listen: 'tcp:0.0.0.0:80'}", ("admin.token: is required, because other "
         "machines can reach tcp:0.0.0.0:80 (line 1)")),
        ("admin: {listen: systemd:admin}", ("admin.listen: must be tcp: or unix:, not "
         "systemd:admin (line 1)")),
        ("admin: {token: a, proxy_protocol: {trusted: [10.0.0.1], names: true}}",
         ("admin.proxy_protocol.names: has no effect here: the token says who may "
         "(line 1)")),
        ("admin: {token: ''}", ("admin.token: must be text of at least one character, or "
         "null (line 1)")),
        ("admin: {token: 12345}", ("admin.token: must be text of at least one character, "
         "or null (line 1)")),
        ("admin: {listen: 'tcp:127.0.0.1:5044'}", ("admin.listen: tcp:127.0.0.1:5044 is "
         "taken by listeners[0].listen: tcp:5044 (line 1)")),
    ],
)  # fmt: skip
def test_one_mistake(problems: Problems, text: str, problem: str | None) -> None:
    """Each names its place, its value, and what is allowed."""
    found = problems(text, listeners="listeners:" not in text)
    assert len(found) == 1
    if problem is None:
        assert "overlaps with" in found[0]
    else:
        assert found == [problem]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("protocol: [lumberjack]", "must be text, not ['lumberjack']"),
        ("protocol: kafka", ("protocol 'kafka' is not installed; installed: "
         f"{INSTALLED}.  A package brings it that has an entry point")),
        ("name: a b", ("must be at most 100 letters, digits, dots, dashes and _, "
         "not 'a b'")),
        ("websocket: true", "must be false or a mapping of path, origins, not true"),
        ("websocket: {path: rs}", "must start with / and have no query, not 'rs'"),
        ("websocket: {origins: [example.org]}", ("must be like https://app.example.org (no *), "
         "not 'example.org'")),
        ("websocket: {origins: https://a}", "must be a list, not 'https://a'"),
        ("proxy_protocol: true", "must be false or a mapping of trusted, names, not true"),
        ("proxy_protocol: {}", "is required: Networks whose PROXY header is believed"),
        ("proxy_protocol: {trusted: []}", "must have at least one entry"),
        ("proxy_protocol: {trusted: [10.0.0.1/8]}", "must be a network such as"),
        ("tls:", "is empty; leave the key out to have no encryption"),
        ("tls: {certificate: c.pem}", "is required: PEM file: the certificate's key"),
        ("tls: {certificate: c.pem, private_key: c.pem, client_auth: required}",
         "needed for client_auth: required"),
        ("tls: {certificate: c.pem, private_key: c.pem, client_ca: c.pem}",
         "has no effect with client_auth: none"),
        ("tls: {certificate: c.pem, private_key: c.pem, client_crl: c.pem}",
         "client_crl: has no effect with client_auth: none"),
        ("tls: {certificate: c.pem, private_key: c.pem, client_crl: [c.pem, d.pem]}",
         "client_crl[1]: no such file: "),
        ("tls: {certificate: c.pem, private_key: c.pem, client_crl_expired: accept}",
         "client_crl_expired: has no effect without client_crl"),
        ("tls: {certificate: c.pem, private_key: c.pem, allowed_names: [a, 'web-*']}",
         ("allowed_names[1]: must be whole, or begin with *. for any first label, as "
         "*.example.org (others: each name, or an authority of their own as client_ca), "
         "not 'web-*'")),
        ("tls: {certificate: c.pem, private_key: c.pem, allowed_names: ['CN=*.a']}",
         "must be whole"),
        ("websocket: {origins: ['https://*.example.org']}", "(no *)"),
        ("tls: {certificate: c.pem, private_key: c.pem, allowed_names: [a]}",
         "needs client_auth: required or optional"),
        ("tls: {certificate: c.pem, private_key: c.pem, minimum_version: TLSv1.1}",
         "must be TLSv1.2 or TLSv1.3, not 'TLSv1.1'; did you mean"),
        ("port: 5044", "unknown key; here it is listen: tcp:PORT"),
        ("options: {pairs: 0}", "must be between 1 and"),
        ("options: {xyz: 0}", "unknown key; allowed: stall_timeout, keepalive_interval"),
        ("options: {subscribe: [a, b, a]}", "has 'a' twice: its events would be doubled"),
        ("options: {publish: [tap, evnts], subscribe: []}",
         "options.publish[1]: must be tap or events, not 'evnts'; did you mean events?"),
        ("options: {subscribe: [" + 256 * "x" + "]}", "is longer than 255 bytes"),
    ],
)  # fmt: skip
def test_one_mistake_in_a_listener(
    problems: Problems, tmp_path: Path, text: str, problem: str
) -> None:
    """Listeners are where most mistakes are made, so each kind has its sentence."""
    (tmp_path / "c.pem").touch()
    protocol = "rsio" if "subscribe" in text else "lumberjack"
    lines = {"name": "b", "protocol": protocol, "listen": "tcp:1"}
    key, _, value = text.partition(":")
    lines[key] = value
    body = "\n    ".join(f"{key}: {value}" for key, value in lines.items())
    [found] = problems(f"listeners:\n  - {body}\n", listeners=False)
    assert found.startswith(f"listeners[0].{key}")
    assert problem in found


def test_a_file_that_may_not_be_read(
    problems: Problems, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key of somebody else is found out now, not at the first handshake."""
    (tmp_path / "cert.pem").touch()
    (tmp_path / "key.pem").touch()
    really = Path.open

    def open_unless_key(path: Path, *args: Any, **options: Any) -> Any:
        if path.name == "key.pem":
            raise PermissionError(13, "Permission denied")
        return really(path, *args, **options)

    monkeypatch.setattr(Path, "open", open_unless_key)
    [found] = problems(
        LISTENER + "    tls: {certificate: cert.pem, private_key: key.pem}",
        listeners=False,
    )
    assert f"private_key: permission denied: {tmp_path}/key.pem" in found


def test_names_and_ports_are_given_once(problems: Problems) -> None:
    """Two listeners with one name or one port: each said at the later one."""
    assert problems(
        """
        listeners:
          - {name: a, protocol: lumberjack, listen: tcp:5044}
          - {name: a, protocol: lumberjack, listen: "tcp:127.0.0.1:5044"}
        """,
        listeners=False,
    ) == [
        "listeners[1].name: listeners[0] is called 'a' too (line 4)",
        (
            "listeners[1].listen: tcp:127.0.0.1:5044 is taken by listeners[0].listen: "
            "tcp:5044 (line 4)"
        ),
    ]


@pytest.mark.parametrize("text", ["", "listeners: []", "listeners:", "[]", "x"])
def test_no_listener(problems: Problems, text: str) -> None:
    """A gateway that listens nowhere is a mistake, and so is a file of another shape."""
    assert len(problems(text, listeners=False)) == 1


@pytest.mark.parametrize(
    "text",
    [
        "spool: {directory: 's3://bucket/a//b'}",
        "spool: {directory: 's3://bucket/a/../b'}",
        "spool: {directory: 's3://Bucket'}",
        "spool: {directory: 'gs://bucket/a'}",
        "spool: {s3: {endpoint: 's3.example.org'}}",
        "spool: {s3: {endpoint: 'https://s3.example.org/path'}}",
        "spool: {s3: {uploads: 0}}",
        "spool: {s3: {timeout: 0s}}",
    ],
)
def test_an_address_that_is_none_is_refused(problems: Problems, text: str) -> None:
    """Of buckets and their servers."""
    [found] = problems(text, listeners=True)
    assert found.startswith("spool.")


def test_a_spool_in_a_bucket_has_a_place_here_too(load: Load) -> None:
    """Files wait there until they are uploaded."""
    loaded = load("spool: {directory: 's3://bucket/a/b/'}")
    assert str(loaded.spool.bucket) == "s3://bucket/a/b"
    assert loaded.spool.folder == Path("spool")
    assert load("spool: {directory: out}").spool.bucket is None
    assert load("spool: {directory: out}").spool.folder == Path("out")


def test_columns_of_ones_own(load: Load) -> None:
    """One source or several, of one type; a usual column may become another one for all."""
    loaded = load(
        """
        spark:
          columns:
            status: {path: http.status, type: int, default: 0}
            host: [{path: h, protocol: pomelo}, {path: [a, b], listener: x}]
            log_offset: {path: at}
            event_time: [{path: ts, protocol: pomelo}]
            took: [{path: t, type: double, default: 1, listener: x}, {path: d, type: double}]
            message: null
        """
    )
    columns = loaded.spark.columns
    assert columns["status"].default == 0
    assert [one.path for one in columns["host"]] == ["h", ["a", "b"]]
    assert columns["log_offset"].type == "string"
    assert columns["message"] is None


def test_an_empty_section_is_its_defaults(load: Load) -> None:
    """A section whose keys are all comments counts as left out."""
    assert load("spool:\nlogging:\n").spool == load("").spool


def test_node_defaults_to_the_host(load: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    """A host name with other characters still makes a valid node name."""
    monkeypatch.setattr("socket.gethostname", lambda: "-My_Host.local.")
    assert load("").node == "my-host.local"
    monkeypatch.setattr("socket.gethostname", lambda: "___")
    assert load("").node == "gateway"


# -- secrets ------------------------------------------------------------------


def test_a_secret_is_never_shown(load: Load, tmp_path: Path) -> None:
    """Neither repr nor str nor dump of a configuration has the token."""
    (tmp_path / "token").write_text("hunter2\n")
    loaded = load("admin: {token: '${file:token}'}")
    assert loaded.admin.token == SecretStr("hunter2")
    for shown in (repr(loaded), str(loaded), str(config.dump(loaded))):
        assert "hunter2" not in shown


@pytest.mark.parametrize(
    "text",
    [
        "node: ${env:S}",
        "ack: ${env:S}",
        "data_dir: ${env:S}",
        "spool: {roll_events: '${env:S}'}",
        "journal: '${env:S}'",
        "listeners: [{name: '${env:S}', protocol: '${env:S}', listen: '${env:S}'}]",
        "admin: {listen: '${env:S}'}",
        "admin: {listen: 'unix:${env:S}${env:S}${env:S}${env:S}${env:S}'}",
        "spool: {roll_interval: '${env:S}', max_bytes: '${env:S}'}",
        "spark: {ui: '${env:S}', driver_memory: '${env:S}', conf: '${env:S}'}",
        "admin: {token: &t '${env:S}'}\nlogging: {level: *t}",
    ],
)
def test_what_came_from_outside_is_not_repeated(problems: Problems, text: str) -> None:
    """A message shows the placeholder, not what it stood for, wherever it was put."""
    secret = "\0Hunter2 " + "x" * 60
    found = "\n".join(problems(text, {"S": secret}, listeners="listeners" not in text))
    assert "Hunter2" not in found
    assert "${env:S}" in found


def test_a_missing_file_by_its_placeholder(problems: Problems) -> None:
    """A path from outside is shown as it was written, too."""
    [found, _] = problems(
        LISTENER + "    tls: {certificate: '${env:C}', private_key: '${env:C}'}",
        {"C": "/nowhere/hunter2"},
        listeners=False,
    )
    assert found.startswith("listeners[0].tls.certificate: no such file: ${env:C}")


def test_nothing_of_the_file_reaches_the_terminal_raw(problems: Problems) -> None:
    """Control characters in keys and values are shown as escapes."""
    [found] = problems('"a\\e[31m\\u2028": 1')
    assert found.startswith("a\\x1b[31m\\u2028: unknown key")


def test_building_one_in_code() -> None:
    """Tests and tools may build a configuration without a file."""
    built = config.Config.model_validate(
        {
            "data_dir": Path("/tmp/x"),
            "listeners": [
                {"name": "b", "protocol": "lumberjack", "listen": Tcp("", 0)}
            ],
        }
    )
    assert built.data_dir == Path("/tmp/x")
    assert built.listeners[0].tls is None


POMELO = """
listeners:
  - name: game
    protocol: pomelo
    listen: tcp:3010
"""


def test_pomelo_takes_websocket_beside_tcp_unless_told_not_to(
    load: Callable[..., config.Config],
) -> None:
    """Clients of either kind find it on the one port that they are given."""
    [game] = load(POMELO, listeners=False).listeners
    assert game.websocket is not None
    assert game.websocket.path == "/"
    [game] = load(POMELO + "    websocket: false\n", listeners=False).listeners
    assert game.websocket is None


def test_options_are_those_of_the_protocol(
    load: Callable[..., config.Config], tmp_path: Path
) -> None:
    """Definitions may be written here or be a file beside the configuration."""
    (tmp_path / "routes.json").write_text("[]")
    text = POMELO + "    options: {routes: routes.json, heartbeat: 5s}\n"
    [game] = load(text, listeners=False).listeners
    assert isinstance(game.options, Pomelo)
    assert game.options.routes == tmp_path / "routes.json"
    assert game.options.heartbeat == 5.0
    [plain] = load(POMELO, listeners=False).listeners
    assert isinstance(plain.options, Pomelo)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ("{heartbeat: 1500ms}", "heartbeat: must be whole seconds, not 1.5s"),
        ("{hartbeat: 3s}", "unknown key; did you mean 'heartbeat'?"),
        ("{pairs: 3}", "unknown key; it belongs in listeners[].options of lumberjack"),
        ("{push_policy: kik}", "must be drop or kick, not 'kik'; did you mean kick?"),
        ("{profiles: {a: java}}", "profiles.a: must be one of js, pinus, c, c2, py"),
        ("{routes: no.json}", "routes: no such file"),
        ("{routes: 7}", "must be a list, a mapping or the path of a JSON file, not 7"),
        ("{authenticate: 'http://[/game'}", "authenticate: must be like https://login"),
        (
            "{backends: [{routes: [a], url: 'http://h:x/'}]}",
            "url: must be like https://",
        ),
        ("{jwt: {}}", "jwt.key: is required: The shared secret"),
        ("{outbox: yes-please}", "outbox: must be a mapping of directory, retention"),
        ("{outbox: {directory: spool/x}}", "overlaps with spool.directory"),
    ],
)
def test_one_mistake_in_pomelos_options(
    problems: Problems, options: str, problem: str
) -> None:
    """Sentences speak of the options of this listener's protocol."""
    [found] = problems(POMELO + f"    options: {options}\n", listeners=False)
    assert problem in found


@pytest.mark.parametrize(
    ("one", "other", "wrong"),
    [
        ("{directory: outbox}", "{directory: ./outbox}", None),
        ("{directory: outbox}", "{directory: others}", None),
        (
            "{directory: outbox}",
            "{directory: outbox, remember: 1d}",
            "listeners[1].options.outbox: must be as in listeners[0]: outbox is one outbox",
        ),
        (
            "{directory: outbox}",
            "{directory: outbox/team}",
            "outbox/team overlaps with listeners[0].options.outbox.directory",
        ),
        (
            "{directory: outbox/team}",
            "{directory: outbox}",
            "outbox overlaps with listeners[0].options.outbox.directory",
        ),
    ],
)
def test_outboxes_of_two_listeners(
    load: Callable[..., config.Config],
    problems: Problems,
    one: str,
    other: str,
    wrong: str | None,
) -> None:
    """They may share one, if they agree; none lies in another, whose files it would take."""
    text = "listeners:\n" + "".join(
        f"  - {{name: game{n}, protocol: pomelo, listen: 'tcp:301{n}', "
        f"options: {{outbox: {outbox}}}}}\n"
        for n, outbox in enumerate((one, other))
    )
    if wrong is None:
        assert len(load(text, listeners=False).listeners) == 2
    else:
        [found] = problems(text, listeners=False)
        assert wrong in found
