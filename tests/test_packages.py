"""What is shipped around the daemon: image, compose file, locked dependencies, units."""

import json
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from packaging.requirements import Requirement

from gateway import config

ROOT = Path(__file__).parents[1]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
COMPOSE_GO = "github.com/compose-spec/compose-go/v2@v2.4.7"
VERSION = re.compile(r":v?\d+\.\d+\.\d+")
LOCKED = re.compile(
    r"^([\w.-]+)==(\S+)((?: \\\n +--hash=sha256:[0-9a-f]{64})+)$", re.MULTILINE
)


def stages() -> dict[str, str]:
    """Each stage of the Dockerfile, by its name, with those that it is made from."""
    made: dict[str, str] = {}
    for stage in re.split(r"^FROM ", DOCKERFILE, flags=re.MULTILINE)[1:]:
        found = re.match(r"(\S+) AS (\S+)\n", stage)
        assert found
        base, name = found.groups()
        made[name] = made.get(base, "") + stage
    return made


def locked(name: str) -> dict[str, str]:
    """The versions in a file of requirements/, each of which has its hashes."""
    text = (ROOT / "requirements" / name).read_text()
    found = LOCKED.findall(text)
    assert len(found) == text.count("==")
    return {package.lower(): version for package, version, _ in found}


@pytest.mark.parametrize(
    "copy", ["js/test/vectors.jsonl", "java/src/test/resources/rsio.jsonl"]
)
def test_clients_have_the_vectors(copy):
    """Beside their own tests, so that a client taken alone can run them."""
    vectors = ROOT / "tests" / "vectors" / "rsio.jsonl"
    assert (ROOT / "clients" / copy).read_bytes() == vectors.read_bytes()


@pytest.mark.needs_go
def test_the_compose_file_fits_its_schema():
    """That of the Compose specification, as its own library has it."""
    from jsonschema import validate  # a second, which each worker would take

    done = subprocess.run(
        ["go", "mod", "download", "-json", COMPOSE_GO],
        capture_output=True,
        check=True,
        cwd="/",
    )
    schema = Path(json.loads(done.stdout)["Dir"], "schema", "compose-spec.json")
    # Aliases are merged by whoever reads YAML; the schema sees plain services.
    validate(COMPOSE, json.loads(schema.read_text()))


@pytest.mark.parametrize("name", SERVICES)
def test_every_service_is_watched_and_named_by_version(name):
    """A health check in the file or in the image; nothing says `latest`."""
    service = SERVICES[name]
    if "build" in service:
        assert "HEALTHCHECK" in stages()[service["build"]["target"]]
    else:
        assert service["healthcheck"]["test"][0] == "CMD"
        assert VERSION.search(service["image"])


@pytest.mark.parametrize("name", SERVICES)
def test_what_a_service_mounts_is_there(name):
    """Files in the repository, volumes, secrets and configs in the file."""
    service = SERVICES[name]
    for volume in service.get("volumes", []):
        source = volume.split(":")[0]
        if source != "./logs":
            known = source in COMPOSE["volumes"]
            assert known or (ROOT / source).is_file(), source
    assert set(service.get("secrets", [])) <= set(COMPOSE["secrets"])
    assert {one["source"] for one in service.get("configs", [])} <= {"filebeat"}
    assert set(service.get("depends_on", [])) <= set(SERVICES)


def test_ours_run_as_numbers():
    """So that whoever forbids root need not look into the image."""
    for name in ("gateway", "spark"):
        assert SERVICES[name]["user"] == "10001:10001"
        [user] = re.findall(r"^USER (\S+)$", stages()[name], re.MULTILINE)
        assert user == "10001:10001"


def test_the_page_is_for_this_machine_and_asks_for_a_token(monkeypatch):
    """Nobody else reaches it, Prometheus or Grafana unless somebody changes that."""
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "a token")
    loaded = config.load(ROOT / "conf" / "compose" / "gateway.yaml")
    assert loaded.admin.token is not None
    for name in ("gateway", "prometheus", "grafana"):
        for port in SERVICES[name]["ports"]:
            assert port == "5044:5044" or port.startswith("127.0.0.1:")


def test_prometheus_takes_its_configuration(tmp_path):
    """With the alerts, as they are mounted."""
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("no promtool (Debian's package prometheus has it)")
    for file in ("compose/prometheus.yml", "alerts.yml"):
        shutil.copy(ROOT / "conf" / file, tmp_path)
    check = [promtool, "check", "config", "--syntax-only", tmp_path / "prometheus.yml"]
    subprocess.run(check, check=True)


def test_the_image_is_made_of_what_the_context_has():
    """.dockerignore lets through what is copied, and the wheel needs it all."""
    ignore = (ROOT / ".dockerignore").read_text().split()
    for line in re.findall(r"^COPY (?!--from)(.*) \S+$", DOCKERFILE, re.MULTILINE):
        for path in line.split():
            assert (ROOT / path).exists(), path
            assert {f"!{path}", f"!{path.split('/')[0]}"} & {*ignore}, path


def test_bases_are_named_by_version():
    """And by digest, if somebody says so: all stages use the one argument."""
    [base] = re.findall(r"^ARG BASE=(\S+)$", DOCKERFILE, re.MULTILINE)
    assert VERSION.search(base)
    froms = re.findall(r"^FROM (\S+)", DOCKERFILE, re.MULTILINE)
    assert set(froms) <= {"${BASE}", *stages()}


def wanted(*extras: str) -> Iterator[Requirement]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    yield from map(Requirement, project["dependencies"])
    for extra in extras:
        yield from map(Requirement, project["optional-dependencies"][extra])


@pytest.mark.parametrize(
    ("file", "extras"), [("daemon.txt", ["s3"]), ("spark.txt", ["s3", "spark"])]
)
def test_the_lock_has_what_the_project_wants(file, extras):
    """In versions that pyproject.toml allows; if not, `make lock`."""
    has = locked(file)
    for requirement in wanted(*extras):
        assert requirement.specifier.contains(has[requirement.name.lower()])


def test_the_job_and_the_daemon_have_the_same_versions():
    """They share files: what both have, they have alike."""
    daemon, spark = locked("daemon.txt"), locked("spark.txt")
    assert {name: spark[name] for name in daemon} == daemon
    assert "hatchling" in locked("build.txt")


def test_units_are_valid(tmp_path):
    """Says systemd, but for the programs, which are not installed here."""
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd-analyze")
    units = [*(ROOT / "conf").glob("*.service"), *(ROOT / "conf").glob("*.socket")]
    assert {"gateway.service", "gateway-spark.service"} <= {unit.name for unit in units}
    for unit in units:
        text = re.sub(r"/opt/gateway/bin/\w+", "/bin/true", unit.read_text())
        (tmp_path / unit.name).write_text(text)
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", *sorted(tmp_path.iterdir())],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")


WHOLE = {
    "tests/integration/test_cluster.py",
    "tests/spark/test_consumer_of_bucket.py",
    "tests/spark/test_kafka.py",
    "tests/spark/test_lost_executors.py",
}
"""Minutes of CPU each, and no sample of them: before a release alone."""


def test_each_file_is_in_the_sample():
    """None is run before a release alone but those that say so."""
    recipe = re.search(
        r"^long-lowest:(.*?)\n\n",
        (ROOT / "Makefile").read_text(),
        re.MULTILINE | re.DOTALL,
    )
    assert recipe
    named = {ROOT / name for name in re.findall(r"tests/[\w/]+(?:\.py)?", recipe[1])}
    files = {
        file
        for path in named
        for file in (path.glob("test_*.py") if path.is_dir() else [path])
    }
    without = {
        str(file.relative_to(ROOT))
        for file in files
        if "pytest.mark.lowest" not in file.read_text()
    }
    assert without == WHOLE
