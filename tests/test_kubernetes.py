"""The manifests in deploy/kubernetes: by Kubernetes' own schemas, and by our promises."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from gateway import config
from gateway.sdk.endpoint import Tcp
from gateway.sinks.iceberg import kind as iceberg
from gateway.spark.files import s3a

FOLDER = Path(__file__).parents[1] / "deploy" / "kubernetes"
AUTOSCALE = FOLDER.parent / "autoscale"
OPERATOR = FOLDER.parent / "spark-operator"

#: The oldest that is supported, and the newest that there is.
VERSIONS = ("1.33", "1.37")


def kustomization(folder: Path = FOLDER) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((folder / "kustomization.yaml").read_text())
    return found


def objects(folder: Path = FOLDER) -> list[dict[str, Any]]:
    """All that kustomize applies."""
    return [
        one
        for name in kustomization(folder)["resources"]
        for one in yaml.safe_load_all((folder / name).read_text())
    ]


def of_kind(kind: str) -> dict[str, dict[str, Any]]:
    return {one["metadata"]["name"]: one for one in objects() if one["kind"] == kind}


def pods() -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
    """(name, pod, its one container) of each workload."""
    for name, one in of_kind("StatefulSet").items():
        pod = one["spec"]["template"]["spec"]
        (container,) = pod["containers"]
        yield name, pod, container


@pytest.fixture
def found(monkeypatch) -> Any:
    """The gateways' configuration, as it is for the first pod."""
    monkeypatch.setenv("POD_NAME", "gateway-0")
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "t0k")
    return config.load(FOLDER / "gateway.yaml")


@pytest.mark.parametrize("version", VERSIONS)
def test_the_schemas_of_kubernetes_take_them(version):
    """Strictly: a key that is misspelled is an error, not passed over."""
    if not os.environ.get("CI"):
        pytest.importorskip("kubernetes_validate")
    import kubernetes_validate

    for folder in (FOLDER, AUTOSCALE, OPERATOR):
        for one in objects(folder):
            if one["kind"] != "SparkApplication":
                kubernetes_validate.validate(one, version, strict=True)


def test_kustomize_finds_all_files():
    """Nothing lies there that is not applied, and nothing is named that is not there."""
    named = kustomization()
    files = {*named["resources"], *named["configMapGenerator"][0]["files"]}
    assert {path.name for path in FOLDER.iterdir()} == {*files, "kustomization.yaml"}
    images = {one["name"] for one in named["images"]}
    assert images == {container["image"] for _, _, container in pods()}
    maps = {one["name"] for one in named["configMapGenerator"]}
    for _, pod, _ in pods():
        used = {v["configMap"]["name"] for v in pod["volumes"] if "configMap" in v}
        assert used == maps


def test_the_configuration_is_one(found):
    """With the environment that the pods have; each node has its pod's name."""
    assert found.node == "gateway-0"
    assert found.ack == "spool"
    for name, _, container in pods():
        given = {one["name"] for one in container["env"]}
        assert {"POD_NAME", "GATEWAY_ADMIN_TOKEN"} <= given, name
        mounts = {one["mountPath"] for one in container["volumeMounts"]}
        assert {str(found.data_dir), "/etc/gateway", "/tmp"} == mounts, name


def test_every_page_has_a_row_for_all(found):
    """For as many gateways as there are at first, and for the job, at the names and ports
    that the services give them.
    """
    gateways = of_kind("StatefulSet")["gateway"]["spec"]
    wanted = [
        f"http://gateway-{number}.{gateways['serviceName']}:8080"
        for number in range(gateways["replicas"])
    ]
    services = of_kind("Service")
    assert gateways["serviceName"] in services
    [job] = [
        f"http://{name}:{one['spec']['ports'][0]['port']}"
        for name, one in services.items()
        if name == "gateway-job"
    ]
    assert found.admin.peers == [*wanted, job]


def test_prometheus_finds_both_under_the_names_of_the_alerts():
    """By the labels and ports that the pods have, with the token that they ask for."""
    path = FOLDER.parent / "prometheus-operator" / "podmonitors.yaml"
    found = {}
    for one in yaml.safe_load_all(path.read_text()):
        (endpoint,) = one["spec"]["podMetricsEndpoints"]
        (label,) = endpoint["relabelings"]
        assert label["targetLabel"] == "job"
        assert endpoint["authorization"]["credentials"]["name"] == "gateway-admin"
        chosen = one["spec"]["selector"]["matchLabels"]
        (workload,) = [
            set_
            for set_ in of_kind("StatefulSet").values()
            if set_["spec"]["template"]["metadata"]["labels"].items() >= chosen.items()
        ]
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}
        found[label["replacement"]] = workload["metadata"]["name"]
    assert found == {"gateway": "gateway", "gateway-spark": "gateway-job"}


def test_pods_can_do_no_harm():
    """A numeric user without rights, and nothing to write on but volumes."""
    for name, pod, container in pods():
        assert pod["automountServiceAccountToken"] is False, name
        user = pod["securityContext"]
        assert user["runAsNonRoot"] is True
        assert user["runAsUser"] == user["fsGroup"] == 10001
        assert user["seccompProfile"] == {"type": "RuntimeDefault"}
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert "memory" in container["resources"]["limits"]


def test_probes_ask_what_answers_them(found):
    """/healthz and /readyz on the port of `admin.listen`, which need no token; and each
    listener has its port."""
    container = next(one for name, _, one in pods() if name == "gateway")
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    wanted = {one.name: one.listen.port for one in found.listeners}
    assert ports == {**wanted, "admin": found.admin.listen.port}
    paths = {
        kind: container[kind]["httpGet"]
        for kind in ("startupProbe", "livenessProbe", "readinessProbe")
    }
    job = next(one for name, _, one in pods() if name == "gateway-job")
    listen = found.spark.admin.listen
    assert isinstance(listen, Tcp)
    assert job["ports"] == [{"name": "admin", "containerPort": listen.port}]
    assert {kind: job[kind]["httpGet"] for kind in paths} == paths
    assert {one["port"] for one in paths.values()} == {"admin"}
    assert {kind: one["path"] for kind, one in paths.items()} == {
        "startupProbe": "/healthz",
        "livenessProbe": "/healthz",
        "readinessProbe": "/readyz",
    }


def test_services_reach_the_pods():
    """The balancer and the headless one; the names that StatefulSets need are there."""
    services = of_kind("Service")
    sets = of_kind("StatefulSet")
    for name, one in sets.items():
        own = services[one["spec"]["serviceName"]]["spec"]
        labels = one["spec"]["template"]["metadata"]["labels"]
        assert own["clusterIP"] == "None", name
        assert own["selector"] == labels == one["spec"]["selector"]["matchLabels"]
    names = {
        port["name"]
        for port in sets["gateway"]["spec"]["template"]["spec"]["containers"][0][
            "ports"
        ]
    }
    for name in ("gateway", "gateway-nodes"):
        assert {port["targetPort"] for port in services[name]["spec"]["ports"]} <= names
    # One that takes no events is still to be asked why, and its clients keep its name.
    assert services["gateway-nodes"]["spec"]["publishNotReadyAddresses"]
    assert not services["gateway"]["spec"].get("publishNotReadyAddresses")
    # The page and its posts are for those inside.
    assert [port["name"] for port in services["gateway"]["spec"]["ports"]] == ["beats"]


def test_at_most_one_gateway_goes_at_a_time():
    """The budget is for gateways; of the job there is one, which must be able to go."""
    (budget,) = of_kind("PodDisruptionBudget").values()
    gateways = of_kind("StatefulSet")["gateway"]["spec"]
    assert budget["spec"]["selector"] == gateways["selector"]
    assert budget["spec"]["maxUnavailable"] == 1
    assert gateways["replicas"] > 1
    assert of_kind("StatefulSet")["gateway-job"]["spec"]["replicas"] == 1


def test_a_volume_outlives_its_pod_and_holds_an_outage(found):
    """It may have what is not in the bucket; journal, spool and archive fit into it."""
    gateways = of_kind("StatefulSet")["gateway"]["spec"]
    kept = gateways["persistentVolumeClaimRetentionPolicy"]
    assert set(kept.values()) == {"Retain"}
    (claim,) = gateways["volumeClaimTemplates"]
    size = claim["spec"]["resources"]["requests"]["storage"]
    assert size.endswith("Gi")
    assert found.spool.archive_bytes is not None
    used = found.spool.max_bytes + found.spool.archive_bytes + (2 << 30)
    assert used < int(size.removesuffix("Gi")) << 30


def test_who_may_talk_to_whom(found):
    """Shippers reach the listeners and nothing else, the admin ports are for gateways, job
    and Prometheus, and each workload reaches names, bucket and the others' admin ports.
    """
    policies = of_kind("NetworkPolicy")
    sets = of_kind("StatefulSet")
    assert policies.keys() == sets.keys()
    for name, policy in policies.items():
        spec = policy["spec"]
        assert spec["podSelector"] == sets[name]["spec"]["selector"]
        assert spec["policyTypes"] == ["Ingress", "Egress"]
        *open_to_all, admin = spec["ingress"]
        assert [port["port"] for port in admin["ports"]] == ["admin"]
        assert len(admin["from"]) == 2
        assert [one["ports"][0]["port"] for one in open_to_all] == (
            [one.name for one in found.listeners] if name == "gateway" else []
        )
        ours = admin["from"][0]["podSelector"]["matchExpressions"][0]["values"]
        assert set(ours) == {
            one["spec"]["selector"]["matchLabels"]["app.kubernetes.io/component"]
            for one in sets.values()
        }
        out = {port["port"] for one in spec["egress"] for port in one["ports"]}
        assert isinstance(found.admin.listen, Tcp)
        assert isinstance(found.spark.admin.listen, Tcp)
        assert out == {53, 443, found.admin.listen.port, found.spark.admin.listen.port}


def test_the_autoscaler_looks_at_load():
    """Of the gateways, as many as stand one that goes at least, by a metric that the adapter
    makes of one that there is; an apply does not set their number back.
    """
    (scaler,) = objects(AUTOSCALE)
    spec = scaler["spec"]
    gateways = of_kind("StatefulSet")[spec["scaleTargetRef"]["name"]]
    assert spec["minReplicas"] == gateways["spec"]["replicas"]
    (patch,) = kustomization(AUTOSCALE)["patches"]
    assert patch["target"] == {"kind": "StatefulSet", "name": "gateway"}
    assert yaml.safe_load(patch["patch"]) == [
        {"op": "remove", "path": "/spec/replicas"}
    ]
    (cpu, late) = spec["metrics"]
    (container,) = gateways["spec"]["template"]["spec"]["containers"]
    assert cpu["resource"]["name"] in container["resources"]["requests"]
    adapter = yaml.safe_load((AUTOSCALE / "adapter.yaml").read_text())
    (rule,) = adapter["rules"]["custom"]
    assert rule["name"]["as"] == late["pods"]["metric"]["name"]
    manual = (FOLDER.parents[1] / "docs" / "metrics.md").read_text()
    assert "`gateway_reactor_lag_seconds`" in manual
    for part in ("sum", "count"):
        assert f"gateway_reactor_lag_seconds_{part}" in rule["metricsQuery"]
    assert spec["behavior"]["scaleDown"]["policies"][0]["value"] == 1


#: Of the operator's schema (v1beta2; whole, it has 800 KB): what a part may have of what is
#: used here.
_APPLICATION = {
    "": {
        *("type", "pythonVersion", "mode", "image", "sparkVersion", "arguments"),
        *("mainApplicationFile", "deps", "sparkConf", "restartPolicy", "volumes"),
        *("driver", "executor"),
    },
    "deps": {"packages", "excludePackages"},
    "restartPolicy": {
        *("type", "onFailureRetryInterval", "onSubmissionFailureRetryInterval")
    },
    "driver": {
        *("cores", "memory", "memoryOverhead", "javaOptions", "serviceAccount"),
        *("labels", "env", "envFrom", "ports", "podSecurityContext"),
        *("securityContext", "volumeMounts"),
    },
    "executor": {"instances", "cores", "memory", "envFrom", "securityContext"},
}


def test_the_operator_starts_the_job(monkeypatch):
    """With the file that it reads, the jars that it would fetch, tables that executors can
    write, and a port that Prometheus finds; nobody writes where nobody should.
    """
    monkeypatch.setenv("GATEWAY_ADMIN_TOKEN", "t0k")
    found = config.load(OPERATOR / "gateway.yaml")
    volume, application, policy = objects(OPERATOR)
    spec = application["spec"]
    for part, known in _APPLICATION.items():
        assert (spec[part] if part else spec).keys() <= known, part
    named = kustomization(OPERATOR)["configMapGenerator"][0]
    volumes = {one["name"]: one for one in spec["volumes"]}
    assert volumes["config"]["configMap"]["name"] == named["name"]
    claim = volumes["data"]["persistentVolumeClaim"]["claimName"]
    assert claim == volume["metadata"]["name"]
    mounts = {one["name"]: one["mountPath"] for one in spec["driver"]["volumeMounts"]}
    assert mounts == {"data": str(found.data_dir), "config": "/etc/gateway"}
    assert spec["arguments"] == ["--config", f"/etc/gateway/{named['files'][0]}"]
    image = (OPERATOR / "Dockerfile").read_text()
    assert spec["mainApplicationFile"].removeprefix("local://") in image
    assert f"spark:{spec['sparkVersion']}-python3" in image
    assert spec["sparkVersion"].startswith("4.1.")
    bucket = s3a.settings(found.spool, spec["sparkVersion"])
    assert spec["deps"]["packages"] == [
        iceberg.jars["4.1"], *bucket["spark.jars.packages"].split(",")
    ]  # fmt: skip
    assert spec["deps"]["excludePackages"] == [bucket["spark.jars.excludes"]]
    assert found.spark.sink == "iceberg"
    assert isinstance(found.spark.admin.listen, Tcp)
    (port,) = spec["driver"]["ports"]
    assert port["containerPort"] == found.spark.admin.listen.port
    labels = of_kind("StatefulSet")["gateway-job"]["spec"]["selector"]["matchLabels"]
    assert spec["driver"]["labels"] == labels
    # Under the policy of these labels alone it could not talk to its executors.
    more = policy["spec"]
    assert more["podSelector"]["matchLabels"] == labels
    executors = {"podSelector": {"matchLabels": {"spark-role": "executor"}}}
    assert more["ingress"] == [{"from": [executors]}]
    talks, *asks = more["egress"]
    assert talks == {"to": [executors]}
    catalog = urlsplit(found.spark.conf["spark.sql.catalog.lake.uri"]).port
    assert [port["port"] for one in asks for port in one["ports"]] == [
        443, 6443, catalog
    ]  # fmt: skip
    for part in ("driver", "executor"):
        harmless = spec[part]["securityContext"]
        assert harmless["runAsNonRoot"] is True
        assert harmless["allowPrivilegeEscalation"] is False
        assert harmless["capabilities"] == {"drop": ["ALL"]}
