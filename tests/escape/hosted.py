"""Registry of probes whose outcome only the host can see; freezing.py, taking.py and holding.py define them."""

from __future__ import annotations

import contextlib
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from escape.inside.common import Open, Untried

if TYPE_CHECKING:
    from escape.lures import Host


class Hosted(NamedTuple):
    """One probe that the host checks."""

    name: str
    text: str
    source: str
    profile: str
    """The one profile that it concerns: agents leave files, workers are frozen."""
    work: Callable[[Host], str]


HOSTED: list[Hosted] = []


def hosted(group: str, profile: str) -> Callable[[Callable[[Host], str]], Callable[[Host], str]]:
    """Register a probe of that group."""

    def register(work: Callable[[Host], str]) -> Callable[[Host], str]:
        text, _, source = " ".join((work.__doc__ or "").split()).partition(" -- ")
        HOSTED.append(Hosted(f"{group}.{work.__name__}", text.rstrip("."), source.rstrip("."), profile, work))
        return work

    return register


def run_all(host: Host) -> dict[str, dict[str, tuple[str, str]]]:
    """Run all of them: profile -> probe -> (state, detail)."""
    found: dict[str, dict[str, tuple[str, str]]] = {"agent": {}, "worker": {}}
    for entry in HOSTED:
        try:
            found[entry.profile][entry.name] = ("held", entry.work(host))
        except Open as finding:
            found[entry.profile][entry.name] = ("open", str(finding))
        except Untried as reason:
            found[entry.profile][entry.name] = ("untried", str(reason))
    return found


@contextlib.contextmanager
def bridge_server() -> Iterator[Path]:
    """A server on a unix socket that answers every connection with one word, in a folder with a meaningless name."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as server:
        path = Path(folder, "socket")
        server.bind(str(path))
        path.chmod(0o777)
        server.listen()

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    client, _ = server.accept()
                    with client:
                        client.recv(100)
                        client.send(b"bridge")

        threading.Thread(target=serve, daemon=True).start()
        yield path
