"""What every test runs under: no network beyond loopback, one thread for numeric
libraries, named hypothesis profiles, data if present.

The guard is a CPython audit hook, so it sees every connection and every name look-up
that Python code makes in this process, whatever library makes it. An attempt raises
`NetworkBlocked` and is written down: a library that swallows the exception still fails
the test.
"""

from __future__ import annotations

import gc
import inspect
import ipaddress
import os
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings
from places import ROOT

if TYPE_CHECKING:
    from postgres_kit import Postgres


# Read when numpy and torch are first imported; more threads only slow a small, busy machine.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMEXPR_NUM_THREADS"):
    os.environ.setdefault(_name, "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

# A shell that runs the tests in the background leaves SIGINT ignored, and every child inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("ci", max_examples=50, deadline=None, derandomize=True, database=None)
settings.register_profile("full", max_examples=1_000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# Collecting makes a million objects, modules and tests that stay to the end. Walking them again and
# again for garbage took a third of the collecting, and a quarter of each process that serves.
gc.disable()


def pytest_collection_finish() -> None:
    """Leave all that collecting made out of every later garbage collection."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 10, 10)
    gc.enable()


class NetworkBlocked(RuntimeError):
    """A test tried to reach something that is not on this machine."""


_ATTEMPTS: list[str] = []
_INTERNET = (socket.AF_INET, socket.AF_INET6)
_LOOK_UPS = {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}
_SENDS = {"socket.connect", "socket.sendto", "socket.sendmsg"}


def _is_loopback(host: object) -> bool:
    name = host.decode("ascii", "replace") if isinstance(host, bytes | bytearray) else host
    if name in (None, "", "localhost"):
        return True
    try:
        return ipaddress.ip_address(str(name).partition("%")[0]).is_loopback
    except ValueError:
        return False


def _guard(event: str, args: tuple[object, ...]) -> None:
    if event in _SENDS:
        sock, address = args[0], args[1]
        if (
            not isinstance(sock, socket.socket)
            or sock.family not in _INTERNET
            or not isinstance(address, tuple)
        ):
            return
        host = address[0]
    elif event in _LOOK_UPS:
        host = args[0]
    else:
        return
    if not _is_loopback(host):
        _ATTEMPTS.append(f"{event} {host}")
        raise NetworkBlocked(f"{event}: tests may reach loopback only, not {host!r}")


sys.addaudithook(_guard)


# Without torch, as in the environment of `make test`, the tests of training cannot even be read.
collect_ignore = [] if find_spec("torch") else ["training", "evaluation/test_evaluate_synthetic.py"]
if find_spec("mkdocs") is None:
    collect_ignore += ["docs/test_documentation_site.py"]
_STARTERS = frozenset({"asyncio.subprocess", "multiprocessing", "subprocess"})
_starting: dict[object, bool] = {}


def parts_of(item: pytest.Function) -> Iterator[object]:
    """Yield a test's function and those of the fixtures that it asks for."""
    yield item.function
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield definitions[-1].func


def names_in(code: CodeType) -> Iterator[str]:
    """Yield the names that a code object and the functions inside it look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def starts_processes(part: object) -> bool:
    """Say whether a function or class of the tests leads to a module that starts processes.

    Names are followed through the functions and classes of the tests and their kits.
    """
    if isinstance(part, ModuleType):
        return part.__name__ in _STARTERS
    part = inspect.unwrap(part) if callable(part) else part
    if isinstance(part, type):
        functions = [value for value in vars(part).values() if isinstance(value, FunctionType)]
    else:
        functions = [part] if isinstance(part, FunctionType) else []
    source = getattr(sys.modules.get(getattr(part, "__module__", "")), "__file__", None)
    if source is None or not functions or ROOT / "tests" not in Path(source).parents:
        return False
    if part not in _starting:
        _starting[part] = False
        _starting[part] = any(
            starts_processes(function.__globals__.get(name))
            for function in functions
            for name in names_in(function.__code__)
        )
    return _starting[part]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark each test by what it needs, so that `-m "not postgres"` and the like choose."""
    for item in items:
        if not isinstance(item, pytest.Function) or ROOT not in item.path.parents:
            continue
        parts = item.path.relative_to(ROOT / "tests").parts
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        needs = {
            "postgres": "postgres" in item.fixturenames
            or any(isinstance(value, str) and value == "postgres" for value in parameters),
            "browser": parts[0] == "ui",
            "torch": parts[0] == "training"
            or hasattr(item.module, "torch")
            or item.path.stem == "test_documentation_site",  # mkdocs comes with the rest
            "process": any(starts_processes(part) for part in parts_of(item)),
        }
        for name, needed in needs.items():
            if needed:
                item.add_marker(name)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """Run every coroutine test on asyncio."""
    return "asyncio"


@pytest.fixture
def network_attempts() -> list[str]:
    """Attempts to leave this machine made during the test, which answers for them
    itself: 'event host' each.
    """
    _ATTEMPTS.clear()
    return _ATTEMPTS


@pytest.fixture(autouse=True)
def _stay_on_this_machine(request: pytest.FixtureRequest) -> Iterator[None]:
    before = len(_ATTEMPTS)
    yield
    made = _ATTEMPTS[before:]
    if made and "network_attempts" not in request.fixturenames:
        pytest.fail(f"the network was tried: {made}")


@pytest.fixture(scope="session")
def locomo_dir() -> Path:
    """Folder of LoCoMo conversations, the user's own copy: $LOCOMO_DIR, or
    shared/data/locomo beside the checkout.
    """
    chosen = os.environ.get("LOCOMO_DIR")
    folder = Path(chosen) if chosen else ROOT.parent / "shared" / "data" / "locomo"
    if not any(folder.glob("*.json")):
        pytest.skip(
            f"no LoCoMo data: set LOCOMO_DIR to a folder that holds its JSON (looked in {folder})"
        )
    return folder


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server of the session's own; the test is skipped where there is none."""
    from postgres_kit import running_postgres

    with running_postgres() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgres"])
def new_place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Names places for journals that are not there yet: files, or empty schemas of a server."""
    with ExitStack() as schemas:
        if request.param == "postgres":
            server: Postgres = request.getfixturevalue("postgres")
            yield lambda: schemas.enter_context(server.schema())
        else:
            folders = iter(range(1_000_000))

            def file() -> str:
                folder = tmp_path / f"place{next(folders)}"
                folder.mkdir()
                return str(folder / "memory.db")

            yield file


@pytest.fixture
def place(new_place: Callable[[], str]) -> str:
    """One place for a journal, in SQLite and again in PostgreSQL."""
    return new_place()
