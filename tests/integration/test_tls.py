"""TLS to a real server, with a CA of our own: all processes and the client, and what they say of a wrong CA.

The servers in the wheels have no TLS, Debian's has.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deployment import LEASE_S
from plugins import tools
from programs import debian_redis, needed

from common.errors import StoreRefused
from common.store.cell import Cell
from common.store.client import connect, connect_sync, translated
from common.store.embedded import EmbeddedServer, _free_port
from hexgen_flow.client import Client, Refused
from hexgen_flow.processes import Processes

CHAIN = {
    "name": "chain",
    "stages": {
        "greet": {"prompt": "Ada"},
        "say": {"needs": ["greet"], "tool": "test.say", "args": {"text": "{{ greet.output }}"}},
    },
    "output": "say.output",
}
REFUSED = r"the certificate of Redis is not trusted \(\?ssl_ca_certs=FILE names the CA\): .*CERTIFICATE_VERIFY_FAILED.*"


def authority(folder: Path, name: str) -> None:
    """NAME.pem and NAME.key of a new certificate authority."""
    _certificate(folder, name, f"/CN={name}", "basicConstraints=critical,CA:TRUE")


def _certificate(folder: Path, name: str, subject: str, *words: str) -> None:
    key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", f"{name}.key"]
    extensions = [part for word in words if "=" in word for part in ("-addext", word)]
    signed = [word for word in words if "=" not in word]
    command = [needed("openssl"), "req", "-x509", "-days", "2", "-subj", subject, *key, *extensions, *signed]
    subprocess.run([*command, "-out", f"{name}.pem"], cwd=folder, check=True, capture_output=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """ca.pem, which has signed server.pem, and other.pem, which has not."""
    made = Path(tmp_path_factory.mktemp("tls"))
    for name in ("ca", "other"):
        authority(made, name)
    named = ("subjectAltName=IP:127.0.0.1", "basicConstraints=critical,CA:FALSE")
    _certificate(made, "server", "/CN=redis", *named, "-CA", "ca.pem", "-CAkey", "ca.key")
    return made


@pytest.fixture(scope="module")
def secured(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server's URL, without a CA."""
    program, port = debian_redis(folder), _free_port()
    options = {"port": port, "cert-file": folder / "server.pem", "key-file": folder / "server.key",
               "ca-cert-file": folder / "ca.pem", "auth-clients": "no"}  # fmt: skip
    flat = [str(word) for name, value in options.items() for word in (f"--tls-{name}", value)]
    with EmbeddedServer.start(Path(tmp_path_factory.mktemp("secured")), program=program, extra_args=flat) as server:
        yield server.url.replace("redis://", "rediss://").replace(f":{server.port}/", f":{port}/")


@pytest.mark.slow
def test_all_processes_speak_tls(secured: str, folder: Path, namespace: str, tmp_path: Path) -> None:
    own = tools(tmp_path / "own", 'def say(args, context): return args["text"]', "say")
    url = f"{secured}?ssl_ca_certs={folder / 'ca.pem'}"
    paths = os.pathsep.join([str(own), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {
        "HEXGEN_REDIS_URL": url,
        "HEXGEN_NAMESPACE": namespace,
        "HEXGEN_LEASE_S": LEASE_S,
        "PYTHONPATH": paths,
    }
    with Processes(tmp_path / "logs", environment) as processes, Client(url, namespace) as client:
        for words in (["coordinator"], ["worker", "--instance", "a"], ["tools"]):
            processes.start(words[0], words)
        assert "Ada" in client.wait(client.submit(CHAIN, slo_s=60), timeout_s=60)["output"]
        processes.check()


@pytest.mark.parametrize("words", [["coordinator"], ["worker", "--instance", "a"], ["tools"], ["status"]])
def test_a_ca_that_did_not_sign_is_told_in_one_sentence(secured: str, folder: Path, words: list[str]) -> None:
    environment = os.environ | {"HEXGEN_REDIS_URL": f"{secured}?ssl_ca_certs={folder / 'other.pem'}"}
    command = [sys.executable, "-m", "hexgen_flow", *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 3
    assert re.fullmatch(f"Error: {REFUSED}", done.stderr.strip().splitlines()[-1])
    assert "Traceback" not in done.stderr


async def test_without_the_ca_nobody_trusts_it(secured: str, namespace: str) -> None:
    async with Cell.opened(secured, namespace) as cell:
        with pytest.raises(StoreRefused, match=REFUSED):
            await cell.records.now_ms()
    with connect_sync(secured) as connection, pytest.raises(StoreRefused, match=REFUSED), translated():
        connection.ping()
    with Client(secured, namespace) as client, pytest.raises(Refused, match=REFUSED):
        client.submit(CHAIN)


async def test_a_certificate_of_another_host_is_not_trusted(secured: str, folder: Path) -> None:
    url = f"{secured}?ssl_ca_certs={folder / 'ca.pem'}".replace("127.0.0.1", "localhost")
    async with Cell.opened(url, "default") as cell:
        with pytest.raises(StoreRefused, match=REFUSED):
            await cell.records.now_ms()


@pytest.mark.parametrize("scheme", ["rediss://h:1/0", "rediss+sentinel://h:1/main"])
@pytest.mark.parametrize("name", ["ssl_ca_certs", "ssl_certfile", "ssl_keyfile"])
def test_a_file_that_is_not_there_is_named(scheme: str, name: str) -> None:
    for client in (connect, connect_sync):
        with pytest.raises(StoreRefused, match=rf"^redis URL: {name}: there is no file /no/such\.pem$"):
            client(f"{scheme}?{name}=/no/such.pem")
