"""The effective configuration."""

import pytest
import yaml

from gateway import config


def test_a_dump_loads_to_the_same(load, tmp_path):
    """What `dump` writes is a configuration again, and the same one."""
    loaded = load(
        """
        spool: {roll_interval: 1500ms, max_bytes: 1GiB}
        listeners:
          - {name: a, protocol: lumberjack, listen: unix:a.sock, websocket: {path: /x}}
          - {name: b, protocol: lumberjack, listen: 'tcp:[::1]:1',
             proxy_protocol: {trusted: [10.0.0.0/8]}}
        """,
        listeners=False,
    )
    again = tmp_path / "again.yaml"
    again.write_text(yaml.safe_dump(config.dump(loaded)))
    assert config.load(again) == loaded


def test_values_are_written_as_people_write_them(load):
    """Units and forms, not bare bytes and seconds."""
    values = config.dump(load(""))
    assert values["spool"]["max_bytes"] == "20GiB"
    assert values["journal"]["commit_interval"] == "2ms"
    assert values["listeners"][0]["listen"] == "tcp:5044"
    assert values["listeners"][0]["websocket"] is False


@pytest.mark.parametrize(
    "key",
    ["spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "my.PASSWORD"],
)
def test_spark_settings_that_sound_secret(load, key):
    """They are masked as Spark itself masks them; others are not."""
    values = config.dump(load(f"spark: {{conf: {{{key}: hunter2, spark.x: 5}}}}"))
    assert values["spark"]["conf"] == {key: "**********", "spark.x": "5"}


def test_the_user_of_a_registry(load):
    """It is masked, and the address is not."""
    text = "spark: {schemas: s, schema_registry: 'https://me:hunter2@host:1/a@b'}"
    shown = config.dump(load(text))["spark"]["schema_registry"]
    assert shown == "https://**********@host:1/a@b"


def test_spark_settings_from_outside(load):
    """What came from outside the file is shown by its placeholder; Spark gets it."""
    loaded = load("spark: {conf: {spark.x: 'a${env:S}'}}", {"S": "hunter2"})
    assert loaded.spark.conf == {"spark.x": "ahunter2"}
    assert config.dump(loaded)["spark"]["conf"] == {"spark.x": "a${env:S}"}
