"""The configuration: read it with `load`, and it is right or it is `Invalid`.

    load(path)         a `Config`; attribute names are the keys of the file
    dump(config)       the same as plain values, defaults filled in, secrets masked
    json_schema()      for editors

`Invalid` lists every problem, one a line, each with its place in the file:
`gateway.yaml: listeners[2].tls.certificate: no such file: /etc/gateway/cert.pem`.
"""

from __future__ import annotations

from gateway.config.dump import dump
from gateway.config.listener import Listener
from gateway.config.load import load
from gateway.config.model import Config
from gateway.config.problems import Invalid, Problem, Unreadable
from gateway.config.schema import json_schema
from gateway.sdk.endpoint import Endpoint, Systemd, Tcp, Unix

__all__ = [
    "Config",
    "Endpoint",
    "Invalid",
    "Listener",
    "Problem",
    "Systemd",
    "Tcp",
    "Unix",
    "Unreadable",
    "dump",
    "json_schema",
    "load",
]
