"""What is wrong with a configuration is said, each mistake in its sentence, also of keys that
are none where they stand.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

import pytest
import yaml

from gateway.config.explain import _unknown, sections_in
from gateway.config.listener import Listener, options_of, options_of_all
from gateway.config.model import Config
from gateway.plugins import installed
from gateway.sdk.section import Section

VECTORS = Path(__file__).parents[1] / "vectors" / "config-mistakes.yaml"
INSTALLED = ", ".join(installed().protocols)

LISTENER = """
listeners:
  - name: beats
    protocol: lumberjack
    listen: tcp:5044
"""
POMELO = """
listeners:
  - name: game
    protocol: pomelo
    listen: tcp:3010
"""


def mistakes(kind: str) -> list[tuple[str, str | None]]:
    """Texts with a mistake each, and the sentence about it."""
    rows: list[dict[str, str | None]] = yaml.safe_load(VECTORS.read_text())[kind]
    return [
        (text, problem and problem.replace("INSTALLED", INSTALLED))
        for text, problem in map(dict.values, rows)
    ]


def test_everything_at_once(problems, tmp_path):
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


def test_sections_are_compared_beside_other_mistakes(problems):
    """A mistake in one key does not hide that two sections do not fit together."""
    assert problems(
        """
        lodging: {}
        logging: {level: loud}
        spool: {max_bytes: 1MiB, roll_bytes: 1MiB, consumers: [a b]}
        journal: {segment_bytes: 2MiB}
        """
    ) == [
        "lodging: unknown key; did you mean 'logging'? (line 2)",
        (
            "logging.level: must be debug, info, warn, error or critical, not 'loud' "
            "(line 3)"
        ),
        (
            "spool.consumers[0]: must be at most 100 letters, digits, dots, dashes and _, "
            "not 'a b' (line 4)"
        ),
        "journal.segment_bytes: 2MiB is more than spool.max_bytes: 1MiB (line 5)",
    ]


def test_only_a_port_that_others_know_is_shared(problems):
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
        )
    ]


def test_not_every_protocol_ends_connections_that_are_old(load, problems):
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


def test_pravega_listeners_agree_on_what_they_share(problems):
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


def test_rules_of_access_are_checked(problems):
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
def test_where_pravega_clients_are_sent(problems, listen, options, problem):
    """A mistake shows at the start, not when the first client asks."""
    listener = f"name: a, protocol: pravega, listen: '{listen}', options: {{{options}}}"
    assert problems(f"listeners: [{{{listener}}}]", listeners=False) == [
        f"listeners[0].options.advertise: {problem} (line 1)"
    ]


@pytest.mark.parametrize(("text", "problem"), mistakes("file"))
def test_one_mistake(problems, text, problem):
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
        *mistakes("listener"),
        ("options: {subscribe: [" + 256 * "x" + "]}", "is longer than 255 bytes"),
    ],
)
def test_one_mistake_in_a_listener(problems, tmp_path, text, problem):
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


def test_a_file_that_may_not_be_read(problems, tmp_path, monkeypatch):
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


def test_names_and_ports_are_given_once(problems):
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
def test_no_listener(problems, text):
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
def test_an_address_that_is_none_is_refused(problems, text):
    """Of buckets and their servers."""
    [found] = problems(text, listeners=True)
    assert found.startswith("spool.")


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
def test_what_came_from_outside_is_not_repeated(problems, text):
    """A message shows the placeholder, not what it stood for, wherever it was put."""
    secret = "\0Hunter2 " + "x" * 60
    found = "\n".join(problems(text, {"S": secret}, listeners="listeners" not in text))
    assert "Hunter2" not in found
    assert "${env:S}" in found


def test_a_missing_file_by_its_placeholder(problems):
    """A path from outside is shown as it was written, too."""
    [found, _] = problems(
        LISTENER + "    tls: {certificate: '${env:C}', private_key: '${env:C}'}",
        {"C": "/nowhere/hunter2"},
        listeners=False,
    )
    assert found.startswith("listeners[0].tls.certificate: no such file: ${env:C}")


def test_nothing_of_the_file_reaches_the_terminal_raw(problems):
    """Control characters in keys and values are shown as escapes."""
    [found] = problems('"a\\e[31m\\u2028": 1')
    assert found.startswith("a\\x1b[31m\\u2028: unknown key")


@pytest.mark.parametrize(("options", "problem"), mistakes("pomelo"))
def test_one_mistake_in_pomelos_options(problems, options, problem):
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
def test_outboxes_of_two_listeners(load, problems, one, other, wrong):
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


@pytest.mark.parametrize(("text", "problem"), mistakes("forward"))
def test_what_does_not_go_together(problems, text, problem):
    assert any(problem in one for one in problems(text)), problems(text)


PROTOCOLS = [name for name, _ in options_of_all()]
Where = tuple[str | int, ...]


def sections(
    of: type[Section], where: Where, protocol: str
) -> Iterator[tuple[Where, type[Section]]]:
    """Itself and those in it, of a listener of that protocol."""
    yield where, of
    for key, field in of.model_fields.items():
        inside = sections_in(field.annotation)
        if of is Listener and key == "options":
            kind = options_of(protocol)
            inside = [] if kind is None else [kind]
        step: Where = {list: (key, 0), dict: (key, "mine")}.get(
            get_origin(field.annotation), (key,)
        )
        for one in inside:
            yield from sections(one, (*where, *step), protocol)


ALL = {one: dict(sections(Config, (), one)) for one in PROTOCOLS}
KEYS = {
    key
    for found in ALL.values()
    for where, section in found.items()
    if where[:1] == ("listeners",)
    for key in section.model_fields
}


def at(home: str, protocol: str) -> type[Section] | None:
    """The section of that place, as advice spells it."""
    text = "" if home == "the top level" else home
    steps = re.findall(r"[^.\[\]]+|\[\]", text)
    where = tuple({"[]": 0, "NAME": "mine"}.get(step, step) for step in steps)
    return ALL[protocol].get(where)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_where_a_key_belongs_is_true(protocol):
    """Every key of every protocol's listener, in every section that has it not."""
    file = {"listeners": [{"protocol": protocol}]}
    for where, section in ALL[protocol].items():
        for key in KEYS - section.model_fields.keys():
            said = _unknown((*where, key), file)
            assert said.startswith("unknown key; "), (where, key)
            if "here it is" in said:  # a word that others have for it
                assert re.split(r"\W", said.split("here it is ")[1])[0] in (
                    *section.model_fields,
                    *where[-1:],
                )
                continue
            if close := re.search(r"did you mean '(\w+)'", said):
                assert close[1] in section.model_fields, (where, key, said)
            for each in said.split("belongs in ")[1].split(" or "):
                home, _, whose = each.partition(" of ")
                for one in whose.split(", ") if whose else PROTOCOLS:
                    found = at(home, one)
                    assert found is not None, (where, key, said)
                    assert key in found.model_fields, (where, key, said)


def test_a_key_of_another_protocol():
    """Its place has the same name, but is another one's."""
    said = _unknown(
        ("listeners", 0, "options", "rates"),
        {"listeners": [{"protocol": "lumberjack"}]},
    )
    assert said == "unknown key; it belongs in listeners[].options of pomelo"


@pytest.mark.parametrize(
    ("where", "key", "said"),
    [
        (("listeners", 0), "port", "here it is listen: tcp:PORT"),
        (("listeners", 0, "tls"), "ssl_crl", "here it is tls.client_crl"),
        (("forward",), "host", "allowed: to, next_after"),
    ],
)
def test_what_others_call_it(where, key, said):
    assert said in _unknown((*where, key), {"listeners": [{"protocol": "lumberjack"}]})


FORWARDING = "spool: {after: forward}\nforward: {to: 'https://hub:7410'}"


def test_an_address_is_enough(load):
    """All the rest has its defaults, and there is no job."""
    loaded = load(FORWARDING)
    assert loaded.forward is not None
    assert loaded.forward.to == "https://hub:7410"
    assert loaded.forward.name is loaded.forward.token is loaded.forward.rate is None
    assert not loaded.spool.has_job
    assert load("").forward is None
    assert load("").spool.has_job


@pytest.mark.parametrize(
    "to",
    [
        "http://10.0.0.1:7410",
        "https://[2001:db8::1]:7410",
        "http://hub:80",
        "https://hub.example.org/edges",
        "unix:/run/hub.sock",
    ],
)
def test_addresses(load, to):
    """As of any server of HTTP, or a socket of this machine."""
    loaded = load(f"spool: {{after: forward}}\nforward: {{to: '{to}'}}")
    assert loaded.forward is not None
    assert loaded.forward.to == to


def test_several_hubs(load):
    """In order, the first that is preferred; alone it need be no list."""
    loaded = load(
        "spool: {after: forward}\n"
        "forward: {to: ['https://hub:1', 'http://other:2'], next_after: 1m, ca: gateway.yaml}"
    )
    assert loaded.forward is not None
    assert loaded.forward.hubs == ["https://hub:1", "http://other:2"]
    assert loaded.forward.next_after == 60
    alone = load(FORWARDING).forward
    assert alone is not None
    assert alone.hubs == ["https://hub:7410"]
