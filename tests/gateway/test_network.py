"""The network of a session: which options make sense, and what each mode gives the sandbox."""

from pathlib import Path
from typing import Any

import pytest

from arena.errors import UsageError
from arena.gateway.egress.rules import Rule
from arena.gateway.network import Network, connected, network


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("allow",), "at least one --allow HOST"),
        (("none", ("mirror.test",)), "mean nothing with --network none"),
        (("open", ("mirror.test",)), "mean nothing with --network open"),
        (("open", (), True), "mean nothing with --network open"),
        (("allow", ("1.2.3.4",)), "give a host name"),
    ],
)
def test_contradictory_network_options_are_errors(words: tuple[Any, ...], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        network(*words)


def test_each_network_mode_gives_its_settings(tmp_path: Path) -> None:
    gateway, log = tmp_path / "gateway", tmp_path / "log"
    with connected(Network(), log) as connection:
        assert (connection.network, connection.bridges, connection.env) == ("none", {}, {})
    with connected(Network(gateway=gateway), log) as connection:
        assert (connection.network, connection.bridges, connection.env) == ("none", {3127: gateway}, {})
    with connected(network("open"), log) as connection:
        assert (connection.network, connection.bridges, connection.env) == ("open", {}, {})
    assert not log.exists()
    with connected(network("allow", ("mirror.test", "MIRROR.Test")), log) as connection:
        assert connection.network == "none" and list(connection.bridges) == [3128]
        assert connection.env["HTTPS_PROXY"] == connection.env["http_proxy"] == "http://127.0.0.1:3128"
        assert connection.env["NO_PROXY"] == connection.env["no_proxy"] == "127.0.0.1,localhost"
        socket_ = connection.bridges[3128]
        assert socket_.is_socket() and socket_.parent.stat().st_mode & 0o777 == 0o700
    assert not socket_.parent.exists()
    assert network("allow", ("mirror.test", "MIRROR.Test")).allowed == (Rule("mirror.test"),)
    recorded = [Network(mode, gateway=path).recorded() for mode in ("none", "allow", "open") for path in (None, gateway)]
    assert recorded == ["none", "gateway", "allow", "allow", "open", "open"]
