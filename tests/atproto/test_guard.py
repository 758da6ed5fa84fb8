"""Where a connection may go: by every kind of address, and by who has named the host."""

import socket
from collections.abc import Iterator, Sequence
from typing import Any

import httpcore
import httpx
import pytest

from git_knotless.atproto.connecting import GuardedBackend, Proxied, guard_connections
from git_knotless.atproto.errors import BadAnswer, HandleUnresolved, HostUnreachable
from git_knotless.atproto.guard import Guard, PrivateAddress
from git_knotless.atproto.hosts import is_public_address
from git_knotless.atproto.identity import Resolver
from git_knotless.atproto.transport import Transport
from git_knotless.atproto.xrpc import Client
from tests.atproto.fakes import PDS, PLC, Script, client_for, fresh
from tests.atproto.wire import Server, answering

NSID = "com.atproto.server.describeServer"
OK = b'HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n{"a": 1}'
PUBLIC = "9.9.9.9"


@pytest.mark.parametrize(
    "address",
    [PUBLIC, "8.8.8.8", "2620:fe::fe", "2a00:1450:4001::1", "64:ff9b::909:909", "2002:909:909::1"],
)
def test_public_addresses(address: str) -> None:
    assert is_public_address(address)


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.254"),
        *("10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.0.1", "100.64.0.1"),
        *("169.254.169.254", "224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
        *("192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "192.0.0.1"),
        *("192.0.0.192", "192.0.0.9", "192.88.99.1", "2002:c000:c0::1", "64:ff9b::c000:c0"),
        *("::", "::1", "::7f00:1", "::ffff:10.0.0.1", "::ffff:127.0.0.1", "::ffff:9.9.9.9"),
        *(
            "fe80::1",
            "fe80::1%eth0",
            "fc00::1",
            "fd12::1",
            "fec0::1",
            "ff02::1",
            "2001:db8::1",
            "3fff::1",
        ),
        *("64:ff9b::a00:1", "64:ff9b::7f00:1", "64:ff9b:1::a00:1"),
        *("2002:a00:1::1", "2002:7f00:1::", "2001:0:909:909::1", "100::1", "4000::1"),
        *("", "router", "9.9.9.9.9", "2620:fe::fe%eth0"),
    ],
)
def test_addresses_that_are_not_public(address: str) -> None:
    assert not is_public_address(address)


def usable(guard: Guard, host: str, *addresses: str, port: int = 443) -> Sequence[str]:
    return guard.usable(host, port, addresses or (host,))


def test_of_several_addresses_the_public_ones_are_used() -> None:
    assert usable(Guard(), "pds.example", "10.0.0.1", PUBLIC, "::1") == [PUBLIC]


@pytest.mark.parametrize("strict", [False, True])
def test_a_refusal_names_the_address_and_what_mends_it(strict: bool) -> None:
    with pytest.raises(PrivateAddress) as caught:
        usable(Guard(strict=strict), "pds.example", "169.254.169.254")
    said = "pds.example is at 169.254.169.254, which is not public: it is not asked"
    assert caught.value.message == said
    assert caught.value.hint == "git config --global --add knotless.allowHost pds.example"
    with pytest.raises(PrivateAddress, match=r"^10\.0\.0\.1 is not public: it is not asked$"):
        usable(Guard(strict=strict), "10.0.0.1")


@pytest.mark.parametrize("allowed", ["pds.corp", "pds.corp:8443"])
def test_a_host_that_is_allowed(allowed: str) -> None:
    for guard in (Guard(allowed=[allowed]), Guard(allowed=[allowed], strict=True)):
        assert usable(guard, "pds.corp", "10.0.0.1", port=8443) == ("10.0.0.1",)
        assert usable(guard.afar(), "pds.corp", "10.0.0.1", port=8443) == ("10.0.0.1",)
        with pytest.raises(PrivateAddress):
            usable(guard, "db.corp", "10.0.0.1")


@pytest.mark.parametrize("allowed", ["fd00::1", "[fd00::1]", "[fd00::1]:443"])
def test_an_address_that_is_allowed(allowed: str) -> None:
    assert usable(Guard(allowed=[allowed]), "fd00::1") == ("fd00::1",)


def test_what_a_user_has_set_is_theirs_to_choose_but_for_a_server() -> None:
    origin = "https://plc.corp:8443"
    assert usable(Guard(free=[origin]), "plc.corp", "10.0.0.1", port=8443) == ("10.0.0.1",)
    refusing = Guard(free=[origin], strict=True), Guard(free=[origin]).afar(), Guard(free=[])
    for guard in refusing:
        with pytest.raises(PrivateAddress):
            usable(guard, "plc.corp", "10.0.0.1", port=8443)
    with pytest.raises(PrivateAddress):  # another service of that machine
        usable(Guard(free=[origin]), "plc.corp", "10.0.0.1", port=22)


def test_ones_own_host_is_looked_for_only_where_it_would_be_refused() -> None:
    asked: list[int] = []

    def own() -> list[str]:
        asked.append(1)
        return ["https://pds.corp"]

    guard = Guard(own=own)
    assert usable(guard, "pds.example", PUBLIC) == [PUBLIC]
    assert asked == []
    assert usable(guard, "pds.corp", "10.0.0.1") == ("10.0.0.1",)
    with pytest.raises(PrivateAddress):
        usable(guard, "pds.example", "10.0.0.1")
    with pytest.raises(PrivateAddress):
        usable(Guard(own=own, strict=True), "pds.corp", "10.0.0.1")


@pytest.mark.parametrize("strict", [False, True])
def test_a_directory_on_loopback_speaks_for_loopback_by_name_alone(strict: bool) -> None:
    guard = Guard(free=["http://localhost:2582"], strict=strict)
    assert usable(guard, "localhost", "::1", "127.0.0.1", port=9) == ["::1", "127.0.0.1"]
    assert usable(guard, "127.0.0.1", port=9) == ["127.0.0.1"]
    for host, address in [
        ("pds.example", "127.0.0.1"),
        ("localhost", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.1"),
    ]:
        with pytest.raises(PrivateAddress):
            usable(guard, host, address)
    for other in (Guard(free=["https://plc.example"]), guard.afar()):
        with pytest.raises(PrivateAddress):
            usable(other, "localhost", "127.0.0.1")


# Connections.


class Names:
    """A resolver that answers each time with the next of its answers, the last one for ever."""

    def __init__(self, *answers: str | list[str]) -> None:
        self.answers = [[each] if isinstance(each, str) else each for each in answers]
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> Iterator[tuple[Any, ...]]:
        self.asked.append(host)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if not answer:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        for address in answer:
            yield (0, 0, 0, "", (address, port, 0, 0) if ":" in address else (address, port))


def answered(guard: Guard, names: Names, host: str, port: int) -> bytes:
    """What a connection, once made, has to say."""
    stream = GuardedBackend(guard, names).connect_tcp(host, port, 5.0)
    try:
        stream.write(b"GET / HTTP/1.1\r\n\r\n")
        return stream.read(1000)
    finally:
        stream.close()


def port_of(host: Server) -> int:
    return int(host.url.rpartition(":")[2])


def test_a_name_that_is_rebound_leads_to_the_address_that_was_checked() -> None:
    """First it is one that may be asked; by the time of a second question it would be ours."""
    with Server(answering(OK)) as host:
        names = Names("127.0.0.1", "10.255.255.1")
        guard = Guard(free=["http://localhost"])
        assert answered(guard, names, "localhost", port_of(host)) == OK
        assert names.asked == ["localhost"]
        with pytest.raises(PrivateAddress):
            answered(guard, names, "localhost", port_of(host))


def test_the_next_address_is_tried_and_a_private_one_never_is() -> None:
    with Server(answering(OK)) as host:
        names = Names(["127.0.0.9", "10.0.0.1", "127.0.0.1"])  # nobody listens on the first
        guard = Guard(free=["http://localhost"])
        assert answered(guard, names, "localhost", port_of(host)) == OK
        with pytest.raises(PrivateAddress):
            answered(guard, names, "pds.example", port_of(host))
        assert host.connections == 1
    with pytest.raises(httpcore.ConnectError, match="refused"):
        answered(guard, names, "localhost", port_of(host))


@pytest.mark.parametrize("answer", [[], None])
def test_a_name_without_an_address(answer: list[str] | None) -> None:
    names = Names([]) if answer is not None else (lambda _host, _port: [])
    with pytest.raises(httpcore.ConnectError):
        GuardedBackend(Guard(), names).connect_tcp("pds.example", 443)


def test_a_link_local_address_keeps_its_zone() -> None:
    place = (0, 0, 0, "", ("fe80::1", 443, 0, 1))
    with pytest.raises(PrivateAddress, match="fe80::1%1, which is not public"):
        GuardedBackend(Guard(), lambda _host, _port: [place]).connect_tcp("pds.example", 443)


def test_names_go_on_as_they_are_while_addresses_are_connected_to() -> None:
    heads: list[bytes | None] = []

    def serve(connection: Any) -> None:
        heads.append(connection.request())
        connection.send(OK)

    with Server(serve) as host, httpx.Client(trust_env=False) as client:
        guard_connections(client, Guard(allowed=["pds.example"]), Names("127.0.0.1"))
        answer = client.get(f"http://pds.example:{port_of(host)}/x")
    assert answer.json() == {"a": 1}
    assert b"Host: pds.example" in (heads[0] or b"")


def test_the_server_name_of_tls_is_the_host_and_not_the_address() -> None:
    hello: list[bytes] = []

    def serve(connection: Any) -> None:
        hello.append(connection.socket.recv(4096))

    with Server(serve) as host, httpx.Client(trust_env=False) as client:
        guard_connections(client, Guard(allowed=["pds.example"]), Names("127.0.0.1"))
        with pytest.raises(httpx.ConnectError):
            client.get(f"https://pds.example:{port_of(host)}/x")
    assert b"pds.example" in hello[0]


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_client_of_ours_is_guarded(host: str) -> None:
    """Without one that is told otherwise: loopback is by its name, and nothing else is private."""
    with Server(answering(OK)) as server, Client() as client:
        assert client.get(server.url.replace("127.0.0.1", host), NSID) == {"a": 1}
        for address in ("https://10.255.255.1", "https://[fe80::1]", "https://169.254.169.254"):
            with pytest.raises(PrivateAddress):
                client.get(address, NSID)


def test_a_client_whose_user_has_nothing_on_loopback_goes_nowhere_there() -> None:
    guard = Guard(free=["https://plc.directory"])
    with Server(answering(OK)) as server:
        for hurried in (False, True):
            with Client(guard=guard, hurried=hurried) as client, pytest.raises(PrivateAddress):
                client.get(server.url, NSID)
        assert server.connections == 0


def test_what_a_redirect_leads_to_has_connections_of_its_own() -> None:
    """Else one that is open, and free, would be used by whoever sends us there."""
    with Server(answering(OK)) as host:
        transport = Transport(guard=Guard(free=[host.url]))
        with transport.exchange("GET", host.url) as answer:
            assert answer.read(100) == b'{"a": 1}'
        with pytest.raises(PrivateAddress), transport.exchange("GET", host.url, afar=True):
            pass
        assert host.connections == 1
        transport.close()


# A proxy.


def test_names_that_are_private_here_are_refused_though_a_proxy_connects(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    heads: list[bytes | None] = []

    def serve(connection: Any) -> None:
        heads.append(connection.request())
        connection.send(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    with Server(serve) as proxy:
        monkeypatch.setenv("HTTPS_PROXY", proxy.url)  # on loopback, which is the user's business
        names = Names(PUBLIC, [PUBLIC, "10.0.0.1"], [])
        with httpx.Client() as client:
            guard_connections(client, Guard(), names)
            with pytest.raises(httpx.ProxyError):
                client.get("https://pds.example/x")
            with pytest.raises(PrivateAddress):
                client.get("https://pds.example/x")
            with pytest.raises(httpx.ProxyError):  # nobody knows it but the proxy
                client.get("https://pds.example/x")
    assert [(head or b"").split(b"\r\n")[0] for head in heads] == [
        b"CONNECT pds.example:443 HTTP/1.1"
    ] * 2


def test_a_proxied_transport_closes_what_it_stands_before() -> None:
    closed: list[bool] = []

    class Inner(httpx.BaseTransport):
        def close(self) -> None:
            closed.append(True)

    Proxied(Inner(), Guard(), Names(PUBLIC)).close()
    assert closed == [True]


# What names hosts.


def test_a_handle_at_a_private_address_says_so_and_how_to_allow_it() -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise PrivateAddress(f"{request.url.host} is not public", request.url.host)

    client = Client(httpx.MockTransport(refuse), guard=Guard())
    made = Resolver(client, plc_url=PLC, txt=lambda _: [])
    with pytest.raises(HandleUnresolved, match=r"alice\.example\.com is not public") as caught:
        made.resolve("alice.example.com")
    assert caught.value.hint == "git config --global --add knotless.allowHost alice.example.com"


def test_a_did_web_that_a_user_types_may_be_a_host_of_theirs() -> None:
    guard = Guard(free=["https://plc.directory"])
    with Server(answering(OK)) as host:
        did = f"did:web:localhost%3A{port_of(host)}"
        with Client(guard=guard) as client:
            made = Resolver(client, plc_url=PLC)
            with pytest.raises(PrivateAddress):
                made.document(did)
            made.trust(did)
            made.trust("alice.example")
            assert made.document(did) == {"a": 1}


def test_a_host_that_cannot_be_resolved_is_unreachable() -> None:
    with Client() as client, pytest.raises(HostUnreachable, match=r"nobody\.invalid"):
        client.get("https://nobody.invalid", NSID)


def test_a_redirect_into_our_own_network_is_refused_by_its_name() -> None:
    redirect = b"HTTP/1.1 302 Found\r\nContent-Length: 0\r\nLocation: %s\r\n\r\n"
    for where in ("http://127.0.0.1:9/", "http://[::1]:9/", "https://169.254.169.254/latest"):
        refused = pytest.raises((BadAnswer, PrivateAddress), match="127.0.0.1:[0-9]+ sends a blob")
        with Server(answering(redirect % where.encode())) as host, Client() as client, refused:
            list(client.download(host.url, "d", "c", limit=4))


def redirect(location: str) -> httpx.Response:
    return httpx.Response(302, headers={"Location": location})


@pytest.mark.parametrize(
    ("host", "location", "allowed"),
    [
        ("https://10.0.0.1", "/a", ()),
        (PDS, f"{PDS}/a", ()),
        (PDS, "http://localhost:9000/a", ["localhost"]),
        (PDS, "http://localhost:9000/a", ["localhost:9000"]),
        ("https://pds.example.com", "https://10.0.0.1/a", ["10.0.0.1"]),
        ("https://pds.example.com", "https://[fd00::1]:8443/a", ["[fd00::1]:8443"]),
        ("https://pds.example.com", "https://router/a", ["printer", "router"]),
    ],
)
def test_redirects_within_a_network_of_ones_own(
    host: str, location: str, allowed: list[str]
) -> None:
    """To the same host, and to those that a user allows."""
    answers = Script([redirect(location), httpx.Response(200, content=b"PACK")])
    transport = httpx.MockTransport(lambda request: fresh(answers(request)))
    with Client(transport, guard=Guard(allowed=allowed)) as client:
        assert b"".join(client.download(host, "did:plc:x", "bafk", limit=4)) == b"PACK"


def test_a_redirect_that_is_refused_says_how_to_allow_it() -> None:
    answers = Script([redirect("https://10.0.0.1:8443/a")])
    with client_for(answers) as client, pytest.raises(PrivateAddress) as caught:
        list(client.download("https://pds.example.com", "did:plc:x", "bafk", limit=4))
    assert "pds.example.com sends a blob to 10.0.0.1:8443" in caught.value.message
    hint = "git config --global --add knotless.allowHost 10.0.0.1:8443"
    assert caught.value.hint == hint
