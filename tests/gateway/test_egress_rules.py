"""The rules of the egress proxy: hosts, request heads and addresses, all pure."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arena.errors import UsageError
from arena.gateway.egress.rules import Rule, Target, check_allowed, parse_request, private, public, reachable, rule
from arena.gateway.unix_server import Refusal


@pytest.mark.parametrize(
    ("text", "made"),
    [
        ("Mirror.Test", Rule("mirror.test")),
        ("mirror.test.", Rule("mirror.test")),
        ("mirror.example.org:8443", Rule("mirror.example.org", 8443)),
        ("*.example.org", Rule("example.org", 443, True)),
        (".example.org:80", Rule("example.org", 80, True)),
        ("intranet", Rule("intranet")),
    ],
)
def test_rules_are_parsed_and_printed(text: str, made: Rule) -> None:
    assert rule(text) == made
    assert rule(str(made)) == made


@pytest.mark.parametrize(
    "text",
    [
        *[
            "",
            "*",
            ".",
            "*.",
            "*.com",
            "**.a.b",
            "a.*.b",
            "https://a.b",
            "a.b/c",
            "a b",
            "a..b",
            "-a.b",
            "a_b.c",
            "a.b:",
            "a.b:0",
        ],
        *["a.b:65536", "a.b:x", "a.b:443:443", "u@a.b", "127.0.0.1", "127.1", "0x7f.1", "2130706433", "[::1]", "::1", "é.fr"],
        *["a" * 64 + ".org", "a.b\n", "a." * 130 + "org"],
    ],
)
def test_invalid_rules_are_usage_errors(text: str) -> None:
    if text == "a.b\n":
        assert rule(text) == Rule("a.b"), "white space around a rule is dropped"
    else:
        with pytest.raises(UsageError, match="--allow"):
            rule(text)


@pytest.mark.parametrize(
    ("host", "port", "allowed"),
    [
        ("mirror.test", 443, True),
        ("mirror.test", 80, False),
        ("mirror.test.evil.net", 443, False),
        ("evilmirror.test", 443, False),
        ("files.mirror.test", 443, False),
        ("a.example.org", 443, True),
        ("a.b.example.org", 443, True),
        ("example.org", 443, False),
        ("badexample.org", 443, False),
        ("mirror.net", 8443, True),
        ("mirror.net", 443, False),
    ],
)
def test_rules_cover_their_hosts_and_ports_only(host: str, port: int, allowed: bool) -> None:
    rules = [rule(text) for text in ("mirror.test", "*.example.org", "mirror.net:8443")]
    if allowed:
        check_allowed(Target(host, port), rules)
    else:
        with pytest.raises(Refusal, match="not on the allowlist"):
            check_allowed(Target(host, port), rules)


@pytest.mark.parametrize(
    ("address", "everywhere", "inside"),
    [
        ("8.8.8.8", True, True),
        ("2606:4700::1111", True, True),
        ("::ffff:8.8.8.8", True, True),
        ("64:ff9b::808:808", True, True),
        ("10.0.0.1", False, True),
        ("192.168.1.1", False, True),
        ("172.16.0.1", False, True),
        ("100.64.0.1", False, True),
        ("198.18.0.1", False, True),
        ("fd00::1", False, True),
        ("fec0::1", False, True),
        ("::ffff:10.0.0.1", False, True),
        ("64:ff9b::a00:1", False, True),
        ("2002:a00:1::1", False, True),
        ("240.0.0.1", False, True),
        ("127.0.0.1", False, False),
        ("127.8.8.8", False, False),
        ("::1", False, False),
        ("::ffff:127.0.0.1", False, False),
        ("64:ff9b::7f00:1", False, False),
        ("2002:7f00:1::1", False, False),
        ("168.63.129.16", False, False),
        ("::ffff:168.63.129.16", False, False),
        ("64:ff9b::a83f:8110", False, False),
        ("100.100.100.200", False, False),
        ("192.0.0.192", False, False),
        ("fd00:ec2::254", False, False),
        ("fd00:ec2::23", False, False),
        ("fd20:ce::254", False, False),
        ("fd00:42::42", False, False),
        ("64:ff9b:1::a9fe:a9fe", False, False),
        ("169.254.169.254", False, False),
        ("::ffff:169.254.169.254", False, False),
        ("64:ff9b::a9fe:a9fe", False, False),
        ("2002:a9fe:a9fe::1", False, False),
        ("fe80::1", False, False),
        ("0.0.0.0", False, False),
        ("::", False, False),
        ("224.0.0.1", False, False),
        ("ff0e::1", False, False),
    ],
)
def test_private_and_metadata_addresses_are_refused(address: str, everywhere: bool, inside: bool) -> None:
    for reach, wanted in ((public, everywhere), (private, inside)):
        if wanted:
            assert reachable([address], reach) == [address]
        else:
            with pytest.raises(Refusal, match="private or reserved"):
                reachable([address], reach)


def test_only_reachable_addresses_of_a_name_remain() -> None:
    assert reachable(["10.0.0.1", "8.8.8.8", "::1"], public) == ["8.8.8.8"]
    with pytest.raises(Refusal):
        reachable([], private)


@given(st.binary(max_size=60), st.sampled_from([b"", b"CONNECT ", b"CONNECT good.example", b"CONNECT good.example:443"]))
def test_any_request_gives_only_the_name_it_holds(tail: bytes, start: bytes) -> None:
    """Whatever follows, a target is a plain name, and an allowed name only if the request holds it."""
    try:
        target = parse_request(start + tail)
    except Refusal as refusal:
        assert refusal.status in (400, 403, 405)
        return
    assert target.host.encode() in (start + tail).lower()
    with pytest.raises(ValueError, match="does not appear"):
        ipaddress.ip_address(target.host)
