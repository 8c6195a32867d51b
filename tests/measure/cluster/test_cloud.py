"""Cluster classes of the cloud, from their real packages and without an account."""

import json
import os
import subprocess

import pytest

from benchkit.errors import InvalidEnvironmentError
from benchkit.experiment.environment.build import build
from benchkit.experiment.environment.environment import Environment
from benchkit.experiment.environment.process_variables import measured_folder

pytestmark = [pytest.mark.slow, pytest.mark.environment, pytest.mark.timeout(900)]
PACKAGES = (
    "distributed",
    "coiled",
    "boto3>=1.34",
    "dask-kubernetes",
    "dask-cloudprovider[aws]",
)
#: Class -> options that it takes, an option that is misspelt, and what it lacks here.
CLUSTERS = {
    "coiled.Cluster": (
        {"n_workers": 2, "worker_vm_types": ["m6i.large"], "spot_policy": "on-demand"},
        ("n_worker", "n_workers"),
        "coiled.Cluster needs a login: run `coiled login` once, or set DASK_COILED__TOKEN",
    ),
    "dask_kubernetes.operator.KubeCluster": (
        {"n_workers": 2, "image": "ghcr.io/dask/dask", "resources": {"limits": {"cpu": "1"}}},
        ("images", "image"),
        "did not start: ValueError: Unable to find valid credentials",
    ),
    "dask_cloudprovider.aws.FargateCluster": (
        {"n_workers": 2, "worker_cpu": 1024, "worker_mem": 4096, "skip_cleanup": True},
        ("workers_cpu", "worker_cpu"),
        "did not start: NoRegionError: You must specify a region",
    ),
    "dask_cloudprovider.aws.EC2Cluster": (
        {"n_workers": 2, "instance_type": "m6i.large", "docker_image": "daskdev/dask"},
        ("instance_typ", "instance_type"),
        "did not start: NoRegionError: You must specify a region",
    ),
}
OPEN = """
import json, sys
from benchkit.measure.cluster.running import open_cluster
from benchkit.measure.cluster.spec import ClusterSpec
from benchkit.measure.errors import BenchkitError
try:
    with open_cluster(ClusterSpec.from_dict(json.loads(sys.argv[1]))):
        print("it opened")
except BenchkitError as error:
    print(error)
"""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    """Build one environment for all tests of this file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHKIT_CACHE", str(tmp_path_factory.mktemp("cloud")))
        yield


@pytest.mark.parametrize("name", CLUSTERS)
def test_options_of_cloud_class_are_checked_by_its_signature(name):
    options, (misspelt, right), _ = CLUSTERS[name]

    build(Environment("cloud", packages=PACKAGES, cluster={"class": name, **options}))
    wrong = {"class": name, **options, misspelt: 1}
    with pytest.raises(InvalidEnvironmentError) as caught:
        build(Environment("cloud", packages=PACKAGES, cluster=wrong))
    text = f"{name} has no option {misspelt!r}: did you mean {right!r}?"
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", CLUSTERS)
def test_cloud_class_without_account_is_one_line(name, tmp_path):
    options, _, text = CLUSTERS[name]
    cluster = {"class": name, **options, "timeout": "60 s"}
    built = build(Environment("cloud", packages=PACKAGES, cluster=cluster))
    prefixes = ("AWS_", "KUBE", "DASK_")
    variables = {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}
    variables |= {"PYTHONPATH": str(measured_folder()), "HOME": str(tmp_path)}

    done = subprocess.run(
        [str(built.python), "-c", OPEN, json.dumps(cluster)],
        env={**variables, "AWS_EC2_METADATA_DISABLED": "true"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=280,
    )

    (line,) = done.stdout.splitlines()[-1:]
    assert text in line, done.stderr
