"""What lies in `deploy/` fits the program: every file parses, images are pinned, and
settings, flags, ports and probes are our own.

Docker and Kubernetes are not run here. What can be run without them is: the commands of
the containers, the script that makes the database role, `kubectl kustomize` where there
is a kubectl, and `make test-qdrant` with a docker that only writes down how it was
called.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import httpx
import pytest
import typer
import yaml
from places import ROOT

import memagent
from memagent.build import open_store
from memagent.cli.app import app
from memagent.config import AgentSettings, PostgresSettings, QdrantSettings, load_settings
from memagent.memory.bank import system_clock

if TYPE_CHECKING:
    from postgres_kit import Postgres

DEPLOY = ROOT / "deploy"
YAML_FILES = sorted([*DEPLOY.rglob("*.yaml"), *DEPLOY.rglob("*.yml")])
DOCKERFILE = DEPLOY / "Dockerfile"
PORT = 8377
FOREIGN_VARIABLES = re.compile(r"PGPASSWORD|POSTGRES_[A-Z_]+|QDRANT__[A-Z_]+")
"""Of libpq and of other images; everything else has to be a setting of ours."""


def documents(path: Path) -> list[Any]:
    return [one for one in yaml.safe_load_all(path.read_text(encoding="utf-8")) if one is not None]


def nodes(value: Any) -> Iterator[dict[str, Any]]:
    """Every mapping inside, outermost first."""
    if isinstance(value, dict):
        yield value
    for one in (
        value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    ):
        yield from nodes(one)


def compose(name: str = "compose.yaml") -> dict[str, Any]:
    [found] = documents(DEPLOY / name)
    return found


def manifests() -> dict[str, dict[str, Any]]:
    """Kubernetes objects by kind."""
    return {
        one["kind"]: one
        for path in (DEPLOY / "kubernetes").glob("*.yaml")
        for one in documents(path)
    }


def pod(kind: str) -> dict[str, Any]:
    return manifests()[kind]["spec"]["template"]["spec"]


def images() -> list[str]:
    found = [
        node["image"]
        for path in YAML_FILES
        for node in nodes(documents(path))
        if isinstance(node.get("image"), str)
    ]
    return found + re.findall(r"^FROM (\S+)", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)


def variables() -> dict[str, set[str]]:
    """Names of variables by file."""
    found: dict[str, set[str]] = {}
    for path in YAML_FILES:
        names: set[str] = set()
        for node in nodes(documents(path)):
            names |= set(node.get("environment") or {})
            names |= {one["name"] for one in node.get("env") or []}
            names |= set(node.get("data") or {}) if node.get("kind") == "ConfigMap" else set()
        names |= set(
            re.findall(r"\b(MEMAGENT_[A-Z_]+|PGPASSWORD)=", path.read_text(encoding="utf-8"))
        )
        found[path.name] = names
    return found


def commands() -> list[list[str]]:
    """Every command line of memagent in the folder, in words."""
    texts = [path.read_text(encoding="utf-8") for path in YAML_FILES]
    found = re.findall(
        r"memagent ((?:init|keys \w+|doctor|serve)\b[^&;'\"\]\n]*(?:\"\$\w+\"[^&;'\"\]\n]*)?)",
        "\n".join(texts),
    )
    lines = [shlex.split(one) for one in found]
    lines.append(pod("Deployment")["containers"][0]["args"])
    cmd = re.search(r"^CMD (\[.*\])$", DOCKERFILE.read_text(encoding="utf-8"), re.MULTILINE)
    assert cmd is not None
    lines.append(yaml.safe_load(cmd[1]))
    return lines


@pytest.mark.parametrize("path", YAML_FILES, ids=lambda path: path.relative_to(DEPLOY).as_posix())
def test_a_file_parses_and_says_each_key_once(path: Path) -> None:
    class Strict(yaml.SafeLoader):
        """Refuses a key that stands twice in a mapping."""

    def mapping(loader: yaml.SafeLoader, node: yaml.MappingNode) -> dict[Any, Any]:
        names = [
            loader.construct_object(key)
            for key, _ in node.value
            if key.tag != "tag:yaml.org,2002:merge"
        ]
        assert len(names) == len(set(names)), f"a key stands twice in {path.name}: {names}"
        loader.flatten_mapping(node)
        return loader.construct_mapping(node, deep=True)

    Strict.add_constructor(yaml.resolver.BaseResolver.DEFAULT_MAPPING_TAG, mapping)
    found = list(yaml.load_all(path.read_text(encoding="utf-8"), Loader=Strict))
    assert found and all(isinstance(one, dict) for one in found)


def test_every_image_is_pinned_to_a_whole_version() -> None:
    found = images()
    assert len(found) >= 7
    for image in found:
        assert re.search(r":v?\d+\.\d+(\.\d+)?(-[a-z0-9-]+)?$", image), image
    [kustomized] = documents(DEPLOY / "kubernetes" / "kustomization.yaml")[0]["images"]
    ours = {image for image in found if image.startswith("memagent:")}
    assert ours == {f"memagent:{kustomized['newTag']}"}
    assert memagent.__version__.startswith(kustomized["newTag"])
    assert len({image for image in found if "qdrant" in image}) == 1


def test_every_variable_is_a_setting_of_ours_or_of_an_image() -> None:
    for name, found in variables().items():
        for variable in found:
            if FOREIGN_VARIABLES.fullmatch(variable):
                continue
            group, _, field = variable.removeprefix("MEMAGENT_").lower().partition("__")
            assert variable.startswith("MEMAGENT_") and group in AgentSettings.model_fields, (
                f"{name}: {variable}"
            )
            inside = {"store": PostgresSettings, "index": QdrantSettings}.get(group)
            fields = (inside or type(getattr(AgentSettings(), group))).model_fields
            assert field in fields, f"{name}: {variable}"


@pytest.mark.parametrize("source", ["compose", "kubernetes"])
def test_the_settings_of_a_container_load(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = (
        compose()["services"]["memagent"]["environment"]
        if source == "compose"
        else manifests()["ConfigMap"]["data"]
    )
    for name, value in {**given, "MEMAGENT_INDEX__API_KEY": "secret"}.items():
        monkeypatch.setenv(name, value)
    settings = load_settings()
    assert (
        isinstance(settings.store, PostgresSettings)
        and settings.store.url == given["MEMAGENT_STORE__URL"]
    )
    assert settings.index is not None and settings.index.url == given["MEMAGENT_INDEX__URL"]
    assert settings.index.api_key == "secret" and "secret" not in repr(settings)
    assert str(round(settings.service.drain_s)) == given["MEMAGENT_SERVICE__DRAIN_S"]


def test_every_command_line_is_one_that_memagent_takes() -> None:
    program = typer.main.get_command(app)
    found = commands()
    assert len(found) >= 6
    for words in found:
        group: Any = program
        while isinstance(group, click.Group) or hasattr(group, "commands"):
            group = group.commands[words[0]]
            words = words[1:]
        group.make_context(group.name, list(words))


def test_ports_agree() -> None:
    service, container = (
        manifests()["Service"]["spec"]["ports"][0],
        pod("Deployment")["containers"][0],
    )
    assert (
        container["ports"] == [{"name": "http", "containerPort": PORT}]
        and service["targetPort"] == "http"
    )
    assert manifests()["NetworkPolicy"]["spec"]["ingress"][0]["ports"] == [
        {"protocol": "TCP", "port": PORT}
    ]
    assert f"EXPOSE {PORT}\n" in DOCKERFILE.read_text(encoding="utf-8")
    for words in commands():
        if words[0] == "serve":
            assert words[words.index("--port") + 1] == str(PORT)
            assert words[words.index("--host") + 1] == "0.0.0.0"
    published = [
        port
        for name in ("compose.yaml", "compose.qdrant.yaml")
        for one in compose(name)["services"].values()
        for port in one.get("ports", ())
    ]
    assert published and all(port.startswith("127.0.0.1:") for port in published)
    test_port = compose("compose.qdrant.yaml")["services"]["qdrant"]["ports"][0].split(":")[1]
    assert f"MEMAGENT_TEST_QDRANT_URL=http://127.0.0.1:{test_port}" in (
        ROOT / "Makefile"
    ).read_text(encoding="utf-8")
    allowed = {port["port"] for port in manifests()["NetworkPolicy"]["spec"]["egress"][0]["ports"]}
    urls = [
        manifests()["ConfigMap"]["data"][name]
        for name in ("MEMAGENT_STORE__URL", "MEMAGENT_INDEX__URL")
    ]
    assert {int(found) for url in urls for found in re.findall(r":(\d+)", url)} <= allowed


async def test_probes_ask_for_paths_that_the_service_answers_without_a_key(tmp_path: Path) -> None:
    from memagent.service.app import serve_app
    from memagent.service.hosting import Service

    container = pod("Deployment")["containers"][0]
    paths = {
        container[f"{kind}Probe"]["httpGet"]["path"]
        for kind in ("startup", "readiness", "liveness")
    }
    told = [
        DOCKERFILE.read_text(encoding="utf-8"),
        str(compose()["services"]["memagent"]["healthcheck"]),
    ]
    paths |= {
        found for text in told for found in re.findall(rf"http://127\.0\.0\.1:{PORT}(/\w+)", text)
    }
    assert (
        paths == {"/healthz", "/readyz"}
        and container["livenessProbe"]["httpGet"]["path"] == "/healthz"
    )

    service = Service(open_store(path=tmp_path / "memory.db", embedder="hashing"))
    try:
        service.keys.create(name="first", scopes=["memory:read"], user_id=None, at=system_clock())
        await service.start()
        transport = httpx.ASGITransport(app=serve_app(service))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://10.1.2.3:8377"
        ) as client:
            for path in paths:
                assert (await client.get(path)).status_code == 200, path
        await service.stop()
    finally:
        service.close()


def test_there_is_time_to_drain() -> None:
    drain = float(manifests()["ConfigMap"]["data"]["MEMAGENT_SERVICE__DRAIN_S"])
    spec = pod("Deployment")
    before = float(spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"][-1])
    assert spec["terminationGracePeriodSeconds"] >= before + drain + 10
    assert (
        int(compose()["services"]["memagent"]["stop_grace_period"].removesuffix("s")) >= drain + 10
    )


def test_selectors_secrets_and_volumes_exist() -> None:
    found = manifests()
    labels = found["Deployment"]["spec"]["template"]["metadata"]["labels"]
    for selector in (
        found["Deployment"]["spec"]["selector"]["matchLabels"],
        found["Service"]["spec"]["selector"],
        found["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"],
        found["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"],
    ):
        assert selector.items() <= labels.items()
    assert found["Job"]["spec"]["template"]["metadata"]["labels"] != labels
    assert (
        found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"]
        == found["Deployment"]["metadata"]["name"]
    )
    keys = {
        node["secretKeyRef"]["key"]
        for one in found.values()
        for node in nodes(one)
        if "secretKeyRef" in node
    }
    assert keys == set(found["Secret"]["stringData"])
    whole = compose()
    for name, service in whole["services"].items():
        assert set(service.get("secrets", ())) <= set(whole["secrets"]), name
        for volume in service.get("volumes", ()):
            source = volume.split(":")[0]
            assert source in whole["volumes"] or (DEPLOY / source).exists(), volume
        for other in service.get("depends_on", {}):
            assert "healthcheck" in whole["services"][other]
    listed = documents(DEPLOY / "kubernetes" / "kustomization.yaml")[0]["resources"]
    unlisted = {path.name for path in (DEPLOY / "kubernetes").glob("*.yaml")} - set(listed)
    assert unlisted == {"kustomization.yaml", "secret.example.yaml"}


def test_nothing_runs_as_root_or_holds_a_secret() -> None:
    for kind in ("Deployment", "Job"):
        spec = pod(kind)
        assert (
            spec["securityContext"]["runAsNonRoot"]
            and spec["securityContext"]["runAsUser"] == 10001
        )
        for container in spec["containers"]:
            assert container["securityContext"]["readOnlyRootFilesystem"]
            assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
            assert "limits" in container["resources"] and "requests" in container["resources"]
    text = DOCKERFILE.read_text(encoding="utf-8")
    build, last = text.split("\nFROM ")[-2:]
    assert "USER 10001:10001" in last and "pip install" in build and "pip install" not in last
    assert "torch" not in re.sub(r"#.*", "", text) and "embeddings" not in text
    extras = re.search(r"EXTRAS=(\S+)", text)
    assert extras is not None
    project = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    for extra in extras[1].split(","):
        assert re.search(rf"^{extra} = \[", project, re.MULTILINE), extra
    for path in re.findall(r"^COPY (?!--from)(.+) \./?\S*$", text, re.MULTILINE):
        assert all((ROOT / name).exists() for name in path.split()), path
    assert "secrets/" in (DEPLOY / ".gitignore").read_text(encoding="utf-8")


def test_kustomize_builds_the_whole() -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl here; `kubectl kustomize` needs no cluster")
    done = subprocess.run(
        [kubectl, "kustomize", str(DEPLOY / "kubernetes")],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert len(built) == 8 and {one["metadata"].get("namespace", "memagent") for one in built} == {
        "memagent"
    }
    assert "registry.example/memagent:" in done.stdout and "image: memagent:" not in done.stdout


# -- what can be run without docker ----------------------------------------------------


def test_the_role_that_the_database_script_makes_is_bound_by_row_level_security_and_the_job_fills_its_database(
    postgres: Postgres, tmp_path: Path
) -> None:
    if postgres.admin_url is None or postgres.folder is None or postgres.programs is None:
        pytest.skip("making roles takes a server of our own")
    import psycopg

    password = tmp_path / "password"
    password.write_text('it\'s a "secret"\n')
    admin = {
        "POSTGRES_USER": "root_of_tests",
        "PGHOST": str(postgres.folder.parent),
        "MEMAGENT_PASSWORD_FILE": str(password),
    }
    path = f"{Path(sys.executable).parent}:{postgres.programs}:{os.environ['PATH']}"
    script = [str(DEPLOY / "postgres" / "10-memagent.sh")]
    subprocess.run(script, check=True, env={**os.environ, **admin, "PATH": path}, timeout=60)
    try:
        url = f"postgresql://memagent@/memagent?host={postgres.folder.parent}"
        [job] = pod("Job")["containers"]
        own = {
            "MEMAGENT_STORE__TYPE": "postgres",
            "MEMAGENT_STORE__URL": url,
            "PGPASSWORD": password.read_text().strip(),
            "PATH": path,
        }
        done = subprocess.run(
            job["command"],
            cwd=tmp_path,
            env={**os.environ, **own},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert (
            "no API keys" in done.stdout
            and password.read_text().strip() not in done.stdout + done.stderr
        )
        with psycopg.connect(url) as connection:
            assert connection.execute(
                "SELECT rolsuper OR rolbypassrls FROM pg_roles WHERE rolname = current_user"
            ).fetchall() == [(False,)]
            owners = connection.execute(
                "SELECT DISTINCT tableowner FROM pg_tables WHERE schemaname = 'public'"
            ).fetchall()
            assert owners == [("memagent",)]
    finally:
        with psycopg.connect(postgres.admin_url, autocommit=True) as connection:
            connection.execute("DROP DATABASE IF EXISTS memagent WITH (FORCE)")
            connection.execute("DROP ROLE IF EXISTS memagent")


@pytest.fixture
def made(tmp_path: Path) -> Any:
    """Runs `make test-qdrant` with a Python and a docker that only write down how they were called."""
    if shutil.which("make") is None:
        pytest.skip("no make here")
    folder = tmp_path / "venv"
    log = tmp_path / "log"

    def program(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
        path.chmod(0o755)

    def run(
        *, docker: int | None, tests: int = 0, url: str | None = None
    ) -> tuple[int, str, list[str]]:
        log.write_text("")
        program(
            folder / "bin" / "python",
            f'echo "python $MEMAGENT_TEST_QDRANT_URL $*" >> {log}; exit {tests}',
        )
        (folder / ".dev").touch()
        program(
            tmp_path / "bin" / "docker",
            f'echo "docker $*" >> {log}; exit {0 if docker is None else docker}',
        )
        if docker is None:
            program(tmp_path / "bin" / "docker", "exit 127")
        env = {**os.environ, "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"}
        env.pop("MEMAGENT_TEST_QDRANT_URL", None)
        done = subprocess.run(
            [
                "make",
                "--no-print-directory",
                "--old-file",
                str(folder / ".dev"),
                "test-qdrant",
                f"VENV={folder}",
            ],
            cwd=ROOT,
            env=env if url is None else {**env, "MEMAGENT_TEST_QDRANT_URL": url},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return done.returncode, done.stdout + done.stderr, log.read_text().splitlines()

    return run


def test_make_test_qdrant_takes_the_server_that_is_named(made: Any) -> None:
    code, _, log = made(docker=0, url="http://127.0.0.1:7777")
    assert (
        code == 0
        and len(log) == 1
        and log[0].startswith("python http://127.0.0.1:7777 -m pytest tests/stores/test_qdrant")
    )


@pytest.mark.parametrize("tests", [0, 1])
def test_make_test_qdrant_starts_one_by_docker_and_stops_it_whatever_the_tests_say(
    made: Any, tests: int
) -> None:
    code, _, log = made(docker=0, tests=tests)
    assert (code == 0) == (tests == 0)
    assert log[2].endswith("qdrant.yaml up --detach --wait")
    assert log[3].startswith("python http://127.0.0.1:6399 -m pytest") and log[4].endswith(
        "down --volumes"
    )


def test_make_test_qdrant_says_what_is_missing(made: Any) -> None:
    code, told, log = made(docker=None)
    assert (
        code != 0
        and "set MEMAGENT_TEST_QDRANT_URL" in told
        and "start docker" in told
        and log == []
    )


def test_every_package_of_the_image_is_held_to_hashes_and_to_our_pins() -> None:
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        sbom = importlib.import_module("sbom")
    finally:
        sys.path.pop(0)
    locked = sbom.pins(sbom.LOCK.read_text(encoding="utf-8"))
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = dict(line.split("==") for line in lines if "==" in line)
    pinned = {name.lower().replace("_", "-"): version for name, version in pinned.items()}
    assert {"fastapi", "uvicorn", "sqlalchemy", "pydantic", "mcp", "psycopg"} <= {
        name for name, _, _ in locked
    }
    for name, version, digests in locked:
        assert digests, name
        assert pinned.get(name, version) == version, name
    bill = sbom.bill(sbom.LOCK.read_text(encoding="utf-8"))
    names = [part["name"] for part in bill["components"]]
    assert names == [name for name, _, _ in locked] and len(set(names)) == len(names)
    assert all(part["purl"].startswith("pkg:pypi/") for part in bill["components"])
    licensed = [part for part in bill["components"] if "licenses" in part]
    assert len(licensed) > len(names) / 3
