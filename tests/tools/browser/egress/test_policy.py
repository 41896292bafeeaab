"""Reachable addresses: entries, names, addresses and schemes."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from statehold.tools.browser.egress.addresses import special
from statehold.tools.browser.egress.network_policy import (
    OTHER_SCHEMES,
    NetworkPolicy,
    Target,
    scheme_allowed,
)


def target(host: str, port: int = 443) -> Target:
    return Target.of(host, port)


def reaches(policy: NetworkPolicy, host: str, address: str, port: int = 443) -> bool:
    """Return whether a request to a host that resolves to this address gets through: by TLS, but to port 80."""
    to = replace(target(host, port), is_secure=port != 80)
    return (
        policy.name_refusal(to) is None and policy.address_refusal(to, ip_address(address)) is None
    )


PUBLIC = "93.184.215.14"

SPECIAL = {
    "0.0.0.0": "unspecified",
    "0.1.2.3": "reserved",
    "10.1.2.3": "private",
    "100.64.0.1": "carrier-grade NAT",
    "100.127.255.255": "carrier-grade NAT",
    "100.100.100.200": "metadata",
    "127.0.0.1": "loopback",
    "127.255.255.254": "loopback",
    "168.63.129.16": "metadata",
    "169.254.1.1": "link-local",
    "169.254.169.254": "metadata",
    "172.16.0.1": "private",
    "172.31.255.255": "private",
    "192.0.0.8": "reserved",
    "192.168.1.1": "private",
    "198.18.0.1": "reserved",
    "224.0.0.251": "multicast",
    "255.255.255.255": "reserved",
    "::": "unspecified",
    "::1": "loopback",
    "::7f00:1": "reserved",
    "::ffff:127.0.0.1": "loopback",
    "::ffff:169.254.169.254": "metadata",
    "64:ff9b::a00:1": "private",
    "64:ff9b::a9fe:a9fe": "metadata",
    "64:ff9b:1::1": "reserved",
    "2001::1": "reserved",
    "2001:db8::1": "reserved",
    "2002:7f00:1::": "loopback",
    "2002:c0a8:101::1": "private",
    "fc00::1": "private",
    "fd00:ec2::254": "metadata",
    "fd12::1": "private",
    "fe80::1": "link-local",
    "fec0::1": "private",
    "ff02::1": "multicast",
}

ORDINARY = [
    PUBLIC,
    "1.1.1.1",
    "100.63.255.255",
    "100.128.0.1",
    "172.32.0.1",
    "2606:4700::1111",
    "::ffff:1.1.1.1",
    "64:ff9b::101:101",
    "2002:101:101::1",
]


@pytest.mark.parametrize(("address", "kind"), SPECIAL.items())
def test_special_addresses_are_refused_unless_private_ones_may_be_reached(
    address: str, kind: str
) -> None:
    assert special(ip_address(address)) == kind
    assert not reaches(NetworkPolicy(), "rebound.example", address)
    assert not reaches(NetworkPolicy(), address, address)
    assert not reaches(NetworkPolicy(allow=["*"]), "rebound.example", address)
    assert not reaches(NetworkPolicy(allow=["*.example"]), "rebound.example", address)
    assert reaches(NetworkPolicy(private=True), "rebound.example", address)


@pytest.mark.parametrize("address", ORDINARY)
def test_public_addresses_are_reached(address: str) -> None:
    assert special(ip_address(address)) is None
    assert reaches(NetworkPolicy(), "example.com", address)
    assert reaches(NetworkPolicy(), address, address)


@given(st.ip_addresses())
def test_every_address_is_judged_as_its_network_says(address: object) -> None:
    one = ip_address(str(address))
    kind = special(one)
    if kind is None and one.version == 4:
        assert one.is_global
        assert not one.is_multicast


@given(st.ip_addresses(v=4))
def test_a_wrapped_address_is_of_the_kind_of_the_address_in_it(address: object) -> None:
    four = int(ip_address(str(address)))
    kind = special(ip_address(str(address)))
    for wrapped in (0xFFFF << 32 | four, 0x64FF9B << 96 | four, 0x2002 << 112 | four << 80 | 1):
        assert special(ip_address(wrapped.to_bytes(16))) == kind


@pytest.mark.parametrize("spelled", ["127.1", "0x7f.1", "2130706433", "0177.0.0.1", "127.0.0.1."])
def test_old_spellings_of_an_address_are_the_address(spelled: str) -> None:
    assert target(spelled).host == "127.0.0.1"
    policy = NetworkPolicy(private=True, block=["127.0.0.0/8"])
    assert policy.name_refusal(target(spelled)) == "127.0.0.1 is blocked"


@pytest.mark.parametrize(
    "host",
    [
        "",
        ".",
        "a..b",
        "-a.example",
        "a b",
        "a/b",
        "a@b",
        "1.2.3.4.5",
        "1.2.3.256",
        "fe80::1%eth0",
        ":::",
        "[::1",
        "*.example",
        "bücher.example",
        "a" * 64,
        "a." * 127 + "aa",
        "x\x00y",
    ],
)
def test_an_invalid_host_is_no_target(host: str) -> None:
    if host == "[::1":  # an URL parser takes the brackets off before us
        host = "[::1]]"
    with pytest.raises(ValueError, match=r".*"):
        target(host)


def test_hosts_are_compared_without_case_and_final_dot() -> None:
    policy = NetworkPolicy(block=["Evil.Example"])
    assert not reaches(policy, "EVIL.example.", PUBLIC)
    assert reaches(policy, "notevil.example", PUBLIC)
    assert reaches(policy, "www.evil.example", PUBLIC)


def test_a_wildcard_means_the_names_below() -> None:
    policy = NetworkPolicy(allow=["*.example.com"])
    assert reaches(policy, "a.example.com", PUBLIC)
    assert reaches(policy, "a.b.example.com", PUBLIC)
    assert not reaches(policy, "example.com", PUBLIC)
    assert not reaches(policy, "badexample.com", PUBLIC)
    assert not reaches(policy, PUBLIC, PUBLIC)


def test_block_wins_over_allow() -> None:
    policy = NetworkPolicy(allow=["*"], block=["evil.example", "203.0.112.0/24"])
    assert reaches(policy, "good.example", PUBLIC)
    assert not reaches(policy, "evil.example", PUBLIC)
    assert not reaches(policy, "good.example", "203.0.112.9")
    assert not reaches(policy, "good.example", "::ffff:203.0.112.9")
    assert not reaches(policy, "good.example", "64:ff9b::cb00:7009")


@pytest.mark.parametrize("unspecified", ["0.0.0.0", "::", "::ffff:0.0.0.0"])
@pytest.mark.parametrize("blocked", ["127.0.0.0/8", "127.0.0.1", "::1", "[::1]:443"])
def test_blocking_loopback_blocks_the_unspecified_address(blocked: str, unspecified: str) -> None:
    policy = NetworkPolicy(private=True, block=[blocked])
    assert not reaches(policy, f"[{unspecified}]", unspecified)
    assert not reaches(policy, "leads.example", unspecified)
    assert reaches(policy, "leads.example", "10.0.0.1")


def test_old_spellings_of_the_unspecified_address_are_blocked_with_loopback() -> None:
    policy = NetworkPolicy(private=True, block=["127.0.0.0/8"])
    for spelled in ("0", "0x0", "[::]", "[::ffff:0:0]"):
        to = target(spelled)
        assert to.address is not None
        assert policy.address_refusal(to, to.address) is not None


def test_allowing_loopback_does_not_open_the_unspecified_address() -> None:
    policy = NetworkPolicy(allow=["*", "127.0.0.0/8", "::1"])
    assert not reaches(policy, "0.0.0.0", "0.0.0.0")


def test_a_network_of_mapped_addresses_is_the_network_in_it() -> None:
    policy = NetworkPolicy(private=True, block=["::ffff:127.0.0.0/104"])
    assert not reaches(policy, "127.1.2.3", "127.1.2.3")
    assert not reaches(policy, "leads.example", "::ffff:127.1.2.3")
    assert reaches(policy, "128.0.0.1", "128.0.0.1")
    assert not reaches(NetworkPolicy(block=["::ffff:0:0/96"]), "a.example", PUBLIC)


def test_an_entry_may_name_a_port() -> None:
    policy = NetworkPolicy(allow=["example.com:8443", "10.0.0.1:80", "[fd00::1]:81"])
    assert reaches(policy, "example.com", PUBLIC, 8443)
    assert not reaches(policy, "example.com", PUBLIC, 443)
    assert reaches(policy, "10.0.0.1", "10.0.0.1", 80)
    assert not reaches(policy, "10.0.0.1", "10.0.0.1", 81)
    assert reaches(policy, "[fd00::1]", "fd00::1", 81)
    assert not reaches(policy, "fd00::1", "fd00::1", 82)


def test_an_entry_may_name_a_scheme() -> None:
    secure = NetworkPolicy(allow=["https://example.com"])
    assert reaches(secure, "example.com", PUBLIC, 443)
    assert not reaches(secure, "example.com", PUBLIC, 8443)
    assert not reaches(secure, "example.com", PUBLIC, 80)
    plain = NetworkPolicy(allow=["http://example.com/"])
    assert reaches(plain, "example.com", PUBLIC, 80)
    assert not reaches(plain, "example.com", PUBLIC, 443)
    assert reaches(NetworkPolicy(allow=["https://example.com:*"]), "example.com", PUBLIC, 8443)


def test_an_address_or_network_on_the_list_opens_a_private_one() -> None:
    policy = NetworkPolicy(
        allow=["*", "10.0.0.0/8", "::1", "::ffff:192.168.3.3", "169.254.169.254"]
    )
    assert reaches(policy, "intranet.example", "10.2.3.4")
    assert reaches(policy, "10.2.3.4", "10.2.3.4")
    assert reaches(policy, "::1", "::1")
    assert reaches(policy, "printer.example", "192.168.3.3")
    assert reaches(policy, "169.254.169.254", "169.254.169.254")
    assert not reaches(policy, "192.168.0.1", "192.168.0.1")
    assert not reaches(NetworkPolicy(allow=["10.0.0.0/8"]), "intranet.example", "10.2.3.4")


@pytest.mark.parametrize(
    "address", ["127.0.0.1", "::1", "192.168.7.7", "169.254.169.254", "0.0.0.0"]
)
def test_a_name_on_the_list_needs_its_private_address_on_the_list_too(address: str) -> None:
    by_name = NetworkPolicy(allow=["localhost:3000", "intranet.example", "*.example"])
    for host, port in (("localhost", 3000), ("intranet.example", 443), ("a.example", 443)):
        assert by_name.name_refusal(target(host, port)) is None
        assert not reaches(by_name, host, address, port)
        both = NetworkPolicy(
            allow=[*by_name.allow, f"[{address}]:{port}" if ":" in address else f"{address}:{port}"]
        )
        assert reaches(both, host, address, port)
        assert not reaches(both, host, "10.9.9.9", port)
        assert reaches(NetworkPolicy(allow=by_name.allow, private=True), host, address, port)


@pytest.mark.thorough
def test_a_long_list_is_no_slower_to_ask() -> None:
    policy = NetworkPolicy(block=[f"host{n}.example" for n in range(20_000)])
    assert not reaches(policy, "host19999.example", PUBLIC)
    assert reaches(policy, "host20000.example", PUBLIC)


@pytest.mark.parametrize(
    ("entry", "remedy"),
    [
        ("ftp://example.com", "write http:// or https://"),
        ("https://example.com/path", "write the host alone"),
        ("user@example.com", "write the host alone"),
        ("exa*mple.com", "write *.example.com"),
        ("*.*.example.com", "write *.example.com"),
        ("*.10.0.0.1", "write a network"),
        ("bücher.example", "begins with xn--"),
        ("10.0.0.1/8", "write 10.0.0.0/8"),
        ("fd00:::1", "write a name, an address"),
        ("10.0.0.0/33", "write one such as 10.0.0.0/8"),
        ("fe80::1%eth0", "write a name, an address"),
        ("example.com:0", "from 1 to 65535"),
        ("example.com:70000", "from 1 to 65535"),
        ("example.com:http", "write example.com, example.com:8443"),
        ("[::1", "write example.com, example.com:8443"),
        ("", "write a name"),
        ("1.2.3.4.5", "write a name"),
    ],
)
def test_a_wrong_entry_is_refused_in_one_line_with_the_remedy(entry: str, remedy: str) -> None:
    for field in ("allow", "block"):
        with pytest.raises(ValidationError) as refused:
            NetworkPolicy.model_validate({field: [entry]})
        (error,) = refused.value.errors()
        assert remedy in error["msg"]
        assert "\n" not in error["msg"]
        assert error["type"] == "statehold"


def test_a_policy_cannot_be_changed_and_knows_its_fields_only() -> None:
    policy = NetworkPolicy()
    with pytest.raises(ValidationError):
        policy.private = True
    with pytest.raises(ValidationError):
        NetworkPolicy.model_validate({"allowed": []})
    with pytest.raises(ValidationError):
        NetworkPolicy(bytes_per_second=0)


@pytest.mark.parametrize(
    "url",
    [
        "http://a.example",
        "HTTPS://a.example",
        "ws://a.example",
        "wss://a.example",
        "about:blank",
        "about:srcdoc",
        "about:blank#top",
        "data:text/html,hi",
        "blob:http://a.example/1",
        "",
        "blob:null/1",
        "chrome-error://chromewebdata/",
    ],
)
def test_pages_of_the_web_and_of_nowhere_are_allowed(url: str) -> None:
    assert scheme_allowed(url)


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd",
        "FILE:/etc/passwd",
        "fi\nle:///etc/passwd",
        " file:///etc/passwd",
        "view-source:http://a.example",
        "view-source:file:///etc/passwd",
        "chrome://version",
        "about:version",
        "about:blank/../version",
        "chrome-error://other/",
        "devtools://devtools",
        "javascript:alert(1)",
        "filesystem:http://a.example/",
        "blob:file:///1",
        "ftp://a.example",
        "chrome-extension://x/",
        "\x01file:///etc/passwd",
        "nothing",
        "unknown:x",
    ],
)
def test_every_other_scheme_is_refused(url: str) -> None:
    assert not scheme_allowed(url)


@pytest.mark.parametrize(
    ("url", "aborted"),
    [
        ("file:///etc/passwd", True),
        ("FILE:///etc/passwd", True),
        ("view-source:file:///etc/passwd", True),
        ("chrome://version/", True),
        ("httpsx://a.example/", True),
        ("http://a.example/", False),
        ("https://a.example/file:", False),
        ("wss://a.example/", False),
        ("about:blank", False),
    ],
)
def test_the_pattern_of_a_route_finds_other_schemes(url: str, aborted: bool) -> None:
    assert bool(OTHER_SCHEMES.search(url)) is aborted
