"""TXT records from a name server of our own."""

import socket
from collections.abc import Iterator
from threading import Thread

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest

from git_knotless.atproto.errors import HostUnreachable
from git_knotless.atproto.txt import txt_records

ZONE = {"_atproto.alice.example.com.": '"did=did:plc:" "abc" "\\255"'}


def serve(server: socket.socket) -> None:
    while True:
        data, client = server.recvfrom(4096)
        if not data:
            return
        query = dns.message.from_wire(data)
        name = query.question[0].name.to_text()
        answer = dns.message.make_response(query)
        if name in ZONE:
            answer.answer.append(dns.rrset.from_text(name, 60, "IN", "TXT", ZONE[name]))
        elif "fail" in name:
            answer.set_rcode(dns.rcode.SERVFAIL)
        elif "empty" not in name:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        server.sendto(answer.to_wire(), client)


@pytest.fixture
def resolver() -> Iterator[dns.resolver.Resolver]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))
        thread = Thread(target=serve, args=(server,))
        thread.start()
        made = dns.resolver.Resolver(configure=False)
        made.nameservers, made.port = ["127.0.0.1"], server.getsockname()[1]
        yield made
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
            end.sendto(b"", server.getsockname())
        thread.join()


def test_the_parts_of_a_text_are_joined(resolver: dns.resolver.Resolver) -> None:
    assert txt_records("_atproto.alice.example.com", resolver) == ["did=did:plc:abc\ufffd"]


@pytest.mark.parametrize("name", ["nobody.example.com", "empty.example.com"])
def test_nothing_there(resolver: dns.resolver.Resolver, name: str) -> None:
    assert txt_records(name, resolver) == []


def test_a_server_that_fails(resolver: dns.resolver.Resolver) -> None:
    with pytest.raises(HostUnreachable, match=r"the DNS does not answer for fail\.example\.com"):
        txt_records("fail.example.com", resolver)
