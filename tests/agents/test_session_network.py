"""What an agent can reach in each network mode, in the real sandbox. Every host is a stub on loopback or a unix socket."""

import json
import socket
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from command import needs_sandbox
from loopback import echo, reach_loopback, upstream
from sessions import DONE, play, python
from test_session import run
from unix_server import served

from arena.errors import SandboxError
from arena.gateway.egress.rules import rule
from arena.gateway.network import Mode, Network, network
from arena.results import run_folder
from arena.results.run_folder import RunFolder
from arena.schema import Session

assert run  # the fixture
pytestmark = needs_sandbox

ASK = """
import http.client, json, os, socket, urllib.error, urllib.parse, urllib.request
def say(what, value): print(json.dumps({what: value}), flush=True)
def tunnel(host, port):
    '''What a program says and hears that goes by the proxy variables.'''
    proxy = urllib.parse.urlsplit(os.environ["HTTPS_PROXY"])
    link = socket.create_connection((proxy.hostname, proxy.port), 10)
    link.sendall(f"CONNECT {host}:{port} HTTP/1.1\\r\\n\\r\\n".encode())
    answer = http.client.HTTPResponse(link, method="CONNECT")
    answer.begin()
    if answer.status != 200:
        return answer.status, answer.read().decode().strip()
    link.sendall(b"through"); link.shutdown(1)
    return answer.status, link.recv(100).decode()
def direct(address, family=socket.AF_INET):
    try: return socket.socket(family).connect(address) or "open"
    except OSError as error: return error.strerror
"""


async def loopback(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


def heard(run: RunFolder) -> dict[str, object]:
    """What the agent said it saw."""
    events = [json.loads(line) for line in (run.agent / "stdout.jsonl").read_text().splitlines()]
    return {name: value for event in events for name, value in event.items()}


def asked(run: RunFolder, program: str, network: Network) -> tuple[Session, dict[str, object]]:
    played = play(python(ASK + textwrap.dedent(program) + "\n" + DONE), run, network=network)
    assert played.agent_status == "complete", played.message
    return played, heard(run)


def test_allow(run: RunFolder) -> None:
    with upstream(echo) as port, served(lambda link: link.sendall(b"model says")) as gateway:
        given = Network("allow", (rule(f"good.example:{port}"),), reach_loopback, gateway, loopback)
        program = f"""
            say("allowed", tunnel("good.example", {port}))
            say("other", tunnel("other.example", 443))
            say("address", tunnel("127.0.0.1", {port}))
            say("around", [direct(("127.0.0.1", {port})), direct(("192.0.2.1", 443))])
            say("gateway", socket.create_connection(("127.0.0.1", 3127), 10).recv(100).decode())
            try: urllib.request.urlopen("http://good.example/", timeout=10)
            except urllib.error.HTTPError as error: say("http", [error.code, error.read().decode().strip()])
        """
        played, said = asked(run, program, given)
    assert said == {
        "allowed": [200, "through"],
        "other": [403, "not on the allowlist"],
        "address": [403, "addresses are refused: ask for a name"],
        "around": ["Connection refused", "Network is unreachable"],
        "gateway": "model says",
        "http": [405, "only CONNECT is served: use https"],
        "type": "end",
    }
    assert (played.network, played.allowed, played.unsealed) == ("allow", (f"good.example:{port}",), False)
    lines = [json.loads(line) for line in run.network.read_text().splitlines()]
    # In the order in which they ended: the tunnel was still open when the agent went.
    assert {line["host"]: (line["verdict"], line["up_bytes"], line["down_bytes"]) for line in lines} == {
        "good.example": ("allowed", 7, 7),
        "other.example": ("refused", 0, 0),
        "127.0.0.1": ("refused", 0, 0),
        None: ("refused", 0, 0),
    }
    assert len(lines) == 4


def test_proxies_that_cannot_log_leave_a_note(run: RunFolder) -> None:
    run.network.symlink_to("/dev/full")
    program = 'say("answers", [tunnel("other.example", 443)[0] for _ in range(3)])'
    played, said = asked(run, program, network("allow", ("good.example",)))
    assert said["answers"] == [403] * 3
    assert played.message.endswith("; the egress proxy's log ends early, as it cannot be written (No space left on device)")
    (trouble,) = [event for event in run_folder.read_events(run) if event["kind"] == "network_trouble"]
    assert len(trouble["troubles"]) == 1


def test_none_and_gateway(run: RunFolder) -> None:
    program = """
        say("proxies", [name for name in os.environ if "PROXY" in name.upper()])
        say("ports", [direct(("127.0.0.1", port)) for port in (3127, 3128)])
        say("interfaces", [name for _, name in socket.if_nameindex()])
    """
    played, said = asked(run, program, Network())
    assert said == {"proxies": [], "ports": ["Connection refused"] * 2, "interfaces": ["lo"], "type": "end"}
    assert (played.network, played.allowed, played.unsealed) == ("none", (), False)
    with served(echo) as gateway:
        played, said = asked(run, program, Network(gateway=gateway))
    assert said["ports"] == ["open", "Connection refused"]
    assert played.network == "gateway" and not run.network.exists()


def test_open_is_marked(run: RunFolder) -> None:
    with upstream(echo) as port:
        played, said = asked(run, f'say("host", direct(("127.0.0.1", {port})))', network("open"))
    assert said["host"] == "open"
    assert (played.network, played.unsealed) == ("open", True)
    (ended,) = [event for event in run_folder.read_events(run) if event["kind"] == "session_ended"]
    assert (ended["network"], ended["unsealed"]) == ("open", True)


def test_missing_gateways_are_refused(run: RunFolder, tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match="gateway: a bridge should lead to this socket: No such file"):
        play(python("pass"), run, network=Network(gateway=tmp_path / "gateway"))
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(tmp_path / "dead"))
    (tmp_path / "dead").chmod(0o666)
    played, said = asked(
        run,
        """
        try: say("heard", socket.create_connection(("127.0.0.1", 3127), 10).recv(1).decode())
        except OSError as error: say("heard", error.strerror)
        """,
        Network(gateway=tmp_path / "dead"),
    )
    assert said["heard"] == "Connection reset by peer"
    assert played.agent_status == "complete"


SOCKETS = """
import array, stat, struct, time
def sockets():
    '''Unix sockets that a program of the sandbox may try: mounts, files, and the abstract name that arena gives its user.'''
    places = [line.split()[4] for line in open("/proc/self/mountinfo")]
    for start in ("/run", "/tmp", "/dev"):
        places += [os.path.join(top, name) for top, _, names in os.walk(start) for name in names]
    found = [place for place in places if os.path.lexists(place) and stat.S_ISSOCK(os.lstat(place).st_mode)]
    user = open("/proc/self/uid_map").read().split()[1]
    return found + [f"\\0arena/uid/{user}"]
def given(path, descriptors):
    '''A socket through which these descriptors were sent.'''
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_SEQPACKET):
        link = socket.socket(socket.AF_UNIX, kind)
        link.setblocking(False)
        try:
            link.connect(path)
            link.sendmsg([b"x"], rights)
        except OSError:
            continue
        say("sent", path)
        return link
"""
PARKED = "held = [given(path, [1, 2]) for path in sockets() for _ in range(300)]; time.sleep(60)"
LINGERING = """
server = socket.create_server(("127.0.0.1", 0))
for path in sockets():
    for _ in range(3):
        full = socket.create_connection(server.getsockname())
        full.setblocking(False)
        try:
            while True: full.send(bytes(1 << 20))
        except BlockingIOError: pass
        full.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 25))
        given(path, [full.fileno()])
        full.close()
say("done", len(sockets()))
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["allow", "open"])
@pytest.mark.parametrize("program", [PARKED, LINGERING], ids=["its own output", "a socket that lingers"])
def test_no_descriptor_of_the_sandbox_reaches_arena(program: str, mode: Mode, run: RunFolder) -> None:
    """Arena would keep the pipe open after the sandbox's end, or wait in the kernel as long as the sandbox chose."""
    given = Network(mode, (rule("good.example"),) if mode == "allow" else ())
    began_s = time.monotonic()
    played = play(python(ASK + SOCKETS + program), run, network=given, budget_s=3.0, grace_s=1.0)
    assert played.agent_status == "deadline", played.message
    assert time.monotonic() - began_s < 15
    assert "sent" not in heard(run)
