"""The Helm chart and the manifests rendered from it: valid, up to date, and in agreement with the server they start."""

import argparse
import importlib.util
import itertools
import json
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema_rs
import pytest
import yaml

from chairlift.cli import node, serve
from chairlift.cli.inputs.flags import settings_from
from chairlift.config.settings import Settings
from chairlift.config.version import VERSION
from chairlift.server.app import create_app
from chairlift.telemetry.metrics.series import SERIES

HELM = Path(__file__).parents[2] / "deploy" / "helm"
CHART = HELM / "chairlift"
SCHEMA = json.loads((CHART / "values.schema.json").read_text())
SERVER, NODE = "chairlift", "chairlift-node"  # StatefulSets
OLDEST, NEWEST = "1.27", "1.37"  # of Kubernetes
# Their schemas are in the projects that define them, not in Kubernetes'.
CUSTOM = {"ServiceMonitor": "monitoring.coreos.com/v1", "InferencePool": "inference.networking.k8s.io/v1"}
# Ten times as fast where it was compiled.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
needs_helm = pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm in the PATH; tried with 3.17 and 4.2")
WRONG_VALUES = {
    "replicas": "two",
    "gpus": 2,
    "image": {"pullPolicy": "Sometimes"},
    "model": {"cache": {"size": "lots"}},
    "config": {"port": 9000},
    "apiKeys": {"secret": "No Name"},
    "nodes": {"count": "many"},
    "drain": {"delaySeconds": -1},
    "service": {"port": 70000},
    "autoscaling": {"requestsPerReplica": 0},
    "inferencePool": {"endpointPicker": {"failureMode": "FailLoudly"}},
    "podLabels": {"tier": 1},
    "resources": {"limits": {"memory": "4 GB"}},
    "tolerations": {"key": "nvidia.com/gpu"},
    "repicas": 3,
}


def _load_renderer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("render", HELM.parent / "render.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


render = _load_renderer()
MANIFESTS = sorted(render.VALUES)
PODS = [*((name, SERVER) for name in MANIFESTS), ("nodes", NODE)]


def manifest(name: str) -> str:
    return (HELM.parent / "kubernetes" / f"{name}.yaml").read_text()


def objects(text: str) -> list[dict[str, Any]]:
    return [each for each in yaml.load_all(text, Loader=LOADER) if each is not None]


def found(name: str, kind: str) -> list[dict[str, Any]]:
    return [each for each in objects(manifest(name)) if each["kind"] == kind]


def stateful_set(name: str, of: str = SERVER) -> dict[str, Any]:
    [only] = [each for each in found(name, "StatefulSet") if each["metadata"]["name"] == of]
    return only


def pod(name: str, of: str = SERVER) -> dict[str, Any]:
    template: dict[str, Any] = stateful_set(name, of)["spec"]["template"]
    return template


def container(name: str, of: str = SERVER) -> dict[str, Any]:
    [only] = pod(name, of)["spec"]["containers"]
    return dict(only)


def settings(name: str, folder: Path, of: str = SERVER) -> Settings:
    """As the container's program would resolve them, with what is mounted in the folder."""
    [config] = found(name, "ConfigMap")
    files = {"config": config["data"], "keys": {"keys.yaml": "- sk-a-key-of-at-least-sixteen-characters"}}
    mounts = {each["name"]: each["mountPath"] for each in container(name, of)["volumeMounts"]}
    command, *arguments = [each.replace("$(POD_IP)", "10.0.0.7") for each in container(name, of)["args"]]
    add_flags = {"serve": serve.add_flags, "node": node.add_flags}[command]
    for volume in files.keys() & mounts.keys():
        (folder / volume).mkdir()
        for file, text in files[volume].items():
            (folder / volume / file).write_text(text)
        arguments = [each.replace(mounts[volume], str(folder / volume)) for each in arguments]
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return settings_from(parser.parse_args(arguments))


# The files without helm.


def test_manifests_are_rendered_from_the_chart_as_it_is() -> None:
    outdated = [name for name in MANIFESTS if not manifest(name).startswith(render.header(name))]
    assert outdated == [], "run: python deploy/render.py"


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_manifests_are_valid(version: str) -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (make setup)")
    for each in itertools.chain.from_iterable(objects(manifest(name)) for name in MANIFESTS):
        if each["kind"] in CUSTOM:
            assert each["apiVersion"] == CUSTOM[each["kind"]]
        else:
            validator.validate(each, version, strict=True)


def test_a_manifest_with_a_mistake_is_not() -> None:
    validator = pytest.importorskip("kubernetes_validate", reason="needs kubernetes-validate (make setup)")
    for field, value, complaint in (("replicas", "two", "two"), ("replicass", 2, "replicass")):
        wrong = stateful_set("cpu")
        wrong["spec"][field] = value
        with pytest.raises(validator.ValidationError, match=complaint):
            validator.validate(wrong, NEWEST, strict=True)


def test_the_chart_is_for_this_version() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert chart["kubeVersion"] == f">={OLDEST}.0-0"


def test_all_values_have_a_default_and_a_schema() -> None:
    def names(schema: dict[str, Any]) -> Any:
        is_closed = schema.get("additionalProperties") is False
        return {name: names(each) for name, each in schema["properties"].items()} if is_closed else None

    def keys(values: Any, like: Any) -> Any:
        return {name: keys(each, like.get(name)) for name, each in values.items()} if isinstance(like, dict) else None

    schemas = names(SCHEMA)
    del schemas["global"]  # set by Helm
    assert keys(yaml.safe_load((CHART / "values.yaml").read_text()), schemas) == schemas


def test_the_schema_allows_the_values_that_we_give() -> None:
    for file in render.VALUES.values():
        jsonschema_rs.validator_for(SCHEMA).validate(yaml.safe_load(file.read_text()))


def test_the_schema_refuses_a_wrong_value_by_its_name() -> None:
    for name, value in WRONG_VALUES.items():
        [error] = jsonschema_rs.validator_for(SCHEMA).iter_errors({name: value})
        assert error.instance_path[:1] == [name] or f"'{name}'" in error.message


# What the objects say of each other and of the server.


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_server_takes_its_arguments_and_its_options(name: str, tmp_path: Path) -> None:
    resolved = settings(name, tmp_path)
    assert (resolved.host, resolved.port) == ("0.0.0.0", container(name)["ports"][0]["containerPort"])
    has_gpu = "nvidia.com/gpu" in container(name)["resources"]["limits"]
    assert resolved.device == ("cuda" if has_gpu else "cpu")


def test_options_and_keys_come_from_the_values(tmp_path: Path) -> None:
    resolved = settings("gpu", tmp_path)
    assert (resolved.max_running, resolved.log_requests, resolved.model) == (256, True, "/models/my-model")
    [keys] = [each for each in pod("gpu")["spec"]["volumes"] if each["name"] == "keys"]
    assert keys["secret"]["secretName"] == "chairlift-keys"
    assert resolved.api_key_file == tmp_path / "keys" / "keys.yaml"


@pytest.mark.parametrize("name", MANIFESTS)
def test_the_grace_period_outlasts_the_hook_and_the_drain(name: str, tmp_path: Path) -> None:
    program, delay_s = container(name)["lifecycle"]["preStop"]["exec"]["command"]
    drain_s = settings(name, tmp_path).drain_timeout
    assert program == "sleep" and drain_s is not None
    assert pod(name)["spec"]["terminationGracePeriodSeconds"] >= int(delay_s) + drain_s + 10


def test_probes_ask_routes_that_exist() -> None:
    routes = {getattr(each, "path", None) for each in create_app.__globals__["_ROUTES"]}
    for name in MANIFESTS:
        probes = [container(name)[f"{kind}Probe"]["httpGet"] for kind in ("startup", "readiness", "liveness")]
        assert [probe["path"] for probe in probes] == ["/health/ready", "/health/ready", "/health/live"]
        assert {probe["path"] for probe in probes} <= routes
        assert {probe["port"] for probe in probes} == {container(name)["ports"][0]["name"]}


def test_every_mount_has_a_volume_and_every_volume_a_mount() -> None:
    for name, of in PODS:
        claims = [each["metadata"]["name"] for each in stateful_set(name, of)["spec"].get("volumeClaimTemplates", ())]
        volumes = [each["name"] for each in pod(name, of)["spec"]["volumes"]] + claims
        assert sorted(volumes) == sorted(each["name"] for each in container(name, of)["volumeMounts"]), (name, of)


def test_a_service_named_chairlift_sets_no_option() -> None:
    """Kubernetes would set CHAIRLIFT_PORT=tcp://... in the pods, which the server reads as its port."""
    assert [pair for pair in PODS if pod(*pair)["spec"]["enableServiceLinks"] is not False] == []


@pytest.mark.parametrize("name", MANIFESTS)
def test_selectors_find_the_pods(name: str) -> None:
    pods = [pod(name, each["metadata"]["name"])["metadata"]["labels"] for each in found(name, "StatefulSet")]
    selectors = [each["spec"]["selector"] for each in found(name, "Service")]
    for kind in ("StatefulSet", "PodDisruptionBudget", "InferencePool"):
        selectors += [each["spec"]["selector"]["matchLabels"] for each in found(name, kind)]
    selectors += [each["spec"]["podSelector"]["matchLabels"] for each in found(name, "NetworkPolicy")]
    assert len(selectors) >= 4 * len(pods)
    for selector in selectors:  # those of servers never find nodes
        assert len([labels for labels in pods if selector and selector.items() <= labels.items()]) == 1
    services = [each["metadata"]["name"] for each in found(name, "Service")]
    assert {each["spec"]["serviceName"] for each in found(name, "StatefulSet")} <= set(services)


def test_the_monitor_scrapes_each_pod_once() -> None:
    [monitor] = found("gpu", "ServiceMonitor")
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert len([each for each in found("gpu", "Service") if wanted <= each["metadata"]["labels"].items()]) == 1


def test_the_pool_leads_to_the_port_of_the_server() -> None:
    [pool] = found("gateway", "InferencePool")
    assert [each["number"] for each in pool["spec"]["targetPorts"]] == [
        container("gateway")["ports"][0]["containerPort"]
    ]


def test_the_autoscaler_reads_what_the_adapter_makes_of_our_series() -> None:
    [scaler] = found("gpu", "HorizontalPodAutoscaler")
    rule = adapter_rule(scaler["spec"]["metrics"][0]["pods"]["metric"]["name"])
    assert scaler["spec"]["scaleTargetRef"]["name"] == SERVER
    assert "replicas" not in stateful_set("gpu")["spec"]  # else every upgrade would undo the autoscaler's work
    [pattern] = re.findall(r'__name__=~"(.*?)"', rule["metricsQuery"])
    added = {name for name in SERIES if re.fullmatch(pattern, name)}
    assert added == {f"chairlift_requests_{state}" for state in ("running", "waiting", "preempted")}
    assert rule["seriesQuery"].partition("{")[0] in added


def adapter_rule(metric: str) -> dict[str, Any]:
    rules = yaml.safe_load((HELM / "prometheus-adapter.yaml").read_text())["rules"]["custom"]
    [rule] = [each for each in rules if each["name"]["as"] == metric]
    return dict(rule)


def test_nodes_follow_the_requests_that_the_server_counts() -> None:
    [scaler] = found("nodes", "HorizontalPodAutoscaler")
    [metric] = [each["object"] for each in scaler["spec"]["metrics"]]
    assert "pod" in adapter_rule(metric["metric"]["name"])["resources"]["overrides"]
    assert metric["describedObject"] == {"apiVersion": "v1", "kind": "Pod", "name": f"{SERVER}-0"}
    assert scaler["spec"]["scaleTargetRef"]["name"] == NODE
    assert "replicas" not in stateful_set("nodes", NODE)["spec"]
    assert stateful_set("nodes")["spec"]["replicas"] == 1  # nodes join one server


def test_nodes_find_their_server_and_are_reached_where_they_listen(tmp_path: Path) -> None:
    (tmp_path / "server").mkdir()
    (tmp_path / "node").mkdir()
    served, joined = settings("nodes", tmp_path / "server"), settings("nodes", tmp_path / "node", NODE)
    ports = {each["name"]: each["containerPort"] for of in (SERVER, NODE) for each in container("nodes", of)["ports"]}
    service = stateful_set("nodes")["spec"]["serviceName"]
    assert (served.cluster, served.replicas, served.device) == (f":{ports['cluster']}", 0, "cpu")
    assert joined.join == f"{SERVER}-0.{service}:{ports['cluster']}"
    assert joined.address == f"10.0.0.7:{ports['engine']}"
    assert (joined.device, joined.max_running, joined.model) == ("cuda", 256, served.model)
    assert container("nodes", NODE)["startupProbe"]["tcpSocket"]["port"] == "engine"
    [pods] = [each for each in found("nodes", "Service") if each["metadata"]["name"] == service]
    assert pods["spec"]["publishNotReadyAddresses"]  # the server is ready only once a node has joined


def test_servers_and_nodes_have_the_key_of_one_secret() -> None:
    keys = [
        [each["valueFrom"] for each in container("nodes", of)["env"] if each["name"] == "CHAIRLIFT_CLUSTER_KEY"]
        for of in (SERVER, NODE)
    ]
    assert keys == [[{"secretKeyRef": {"name": "chairlift-cluster", "key": "key"}}]] * 2


def test_a_node_has_time_to_drain(tmp_path: Path) -> None:
    drain_s = settings("nodes", tmp_path, NODE).drain_timeout
    assert drain_s is not None
    assert pod("nodes", NODE)["spec"]["terminationGracePeriodSeconds"] >= drain_s + 10


def test_the_endpoint_picker_reads_our_gauges() -> None:
    router = yaml.safe_load((HELM / "endpoint-picker.yaml").read_text())["router"]
    config = yaml.safe_load(router["epp"]["pluginsCustomConfig"][router["epp"]["pluginsConfigFile"]])
    [extractor] = [each for each in config["plugins"] if each["type"] == "core-metrics-extractor"]
    [engine] = extractor["parameters"]["engineConfigs"]
    labels = pod("gateway")["metadata"]["labels"]
    assert engine.pop("name") == labels["llm-d.ai/engine-type"]
    assert len(engine) == 5
    assert {SERIES[name].kind for name in engine.values()} == {"gauge"}
    assert router["modelServers"]["matchLabels"].items() <= labels.items()
    scorers = {each["pluginRef"] for each in config["schedulingProfiles"][0]["plugins"]}
    assert scorers < {each["type"] for each in config["plugins"]}


# With helm.


def template(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["helm", "template", "chairlift", str(CHART), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@needs_helm
def test_helm_finds_nothing_wrong_with_the_chart() -> None:
    lint = subprocess.run(["helm", "lint", "--strict", str(CHART)], capture_output=True, text=True, check=False)
    assert lint.returncode == 0, lint.stdout + lint.stderr


@needs_helm
@pytest.mark.parametrize("name", MANIFESTS)
def test_helm_renders_what_the_manifest_says(name: str) -> None:
    """Whatever the version of helm: layout and order are its own."""
    rendered = sorted(objects(render.render(name)), key=str)
    assert rendered == sorted(objects(manifest(name)), key=str)


@needs_helm
@pytest.mark.parametrize("name", ["replicas", "config", "repicas"])
def test_helm_refuses_a_wrong_value_by_its_name(name: str, tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text(json.dumps({name: WRONG_VALUES[name]}))
    refused = template("--values", str(tmp_path / "wrong.yaml"))
    assert refused.returncode != 0
    assert name in refused.stderr and refused.stdout == ""


@needs_helm
@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ("inferencePool.enabled=true", "inferencePool.endpointPicker.name is needed"),
        ("inferencePool.enabled=true,apiKeys.secret=a", "inferencePool.enabled and apiKeys.secret exclude each other"),
        ("serviceMonitor.enabled=true,apiKeys.secret=a", "serviceMonitor.apiKey.secret is needed"),
        ("autoscaling.enabled=true,autoscaling.minReplicas=9", "autoscaling.minReplicas is larger than"),
        ("nodes.count=2", "nodes.keySecret is needed"),
    ],
)
def test_values_that_exclude_each_other_are_refused_in_words(values: str, reason: str) -> None:
    refused = template("--set", values)
    assert refused.returncode != 0 and reason in refused.stderr


@needs_helm
def test_large_numbers_stay_numbers() -> None:
    """Helm reads numbers of a file as floats and would write the larger ones as 8.64e+04."""
    rendered = template("--set-json", 'drain={"delaySeconds":3600,"finishSeconds":86400}')
    assert "--drain-timeout=86400" in rendered.stdout and "terminationGracePeriodSeconds: 90020" in rendered.stdout
