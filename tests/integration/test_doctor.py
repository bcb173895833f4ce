"""`gateway doctor`, and the chain of spool files, beside a daemon that runs."""

import json
from typing import Any

from pylogbeat import PyLogBeatClient


def send(daemon: Any, numbers: range) -> None:
    with PyLogBeatClient(*daemon.address()) as client:
        client.send([{"message": f"event {number}"} for number in numbers])


def chain(daemon: Any, last_lsn: int) -> str:
    """The newest link, once it is that of this event."""
    daemon.eventually(
        lambda: daemon.status()["chain"]["last_lsn"] == last_lsn,
        "its file is published",
    )
    link: str = daemon.status()["chain"]["link"]
    return link


def test_the_doctor_beside_a_daemon(start, gateway_command):
    """It sees who runs, takes the daemon's ports for the daemon's, and disturbs nothing; of
    the kernel in C it says what the daemon has logged."""
    daemon = start()
    send(daemon, range(10))
    done = gateway_command("doctor", "--config", daemon.config, "--json")
    looks = {look["what"]: look for look in json.loads(done.stdout)["looks"]}
    failed = {what for what, look in looks.items() if look["state"] == "fail"}
    assert failed <= {"Java", "Spark"}
    assert f"pid {daemon.pid}" in looks["daemon"]["detail"]
    assert f"Kernel in C: {looks['kernel in C']['detail']}" in daemon.log
    taken = [look for what, look in looks.items() if what.startswith("admin.listen")]
    assert [look["detail"] for look in taken] == [
        f"taken by gateway gw-1, pid {daemon.pid}"
    ]
    send(daemon, range(10, 20))
    daemon.terminate()
    assert len(daemon.rows()) == 20


def test_a_link_that_was_kept_is_in_the_chain_for_ever(start, gateway_command):
    """Over kill -9, with what was published before and after."""
    daemon = start()
    send(daemon, range(10))
    kept = [chain(daemon, 10)]
    send(daemon, range(10, 15))
    daemon.restart()
    kept.append(chain(daemon, 15))
    send(daemon, range(15, 20))
    kept.append(chain(daemon, 20))
    daemon.terminate()
    words = ["audit", "--config", daemon.config, "--chain"]
    for link in kept:
        words += ["--link", link]
    done = gateway_command(*words)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"lsn 1 to 20, link {kept[-1]}" in done.stdout
    first = min(daemon.spool.glob("events-*.parquet"))
    first.unlink()
    done = gateway_command(*words)
    assert done.returncode == 1
    assert f"problem: {first.name}: removed" in done.stdout
