"""What the hosts' clocks show, by what they answer."""

import time

from tests.atproto.fakes import PDS, Script, client_for, json_answer

GET = "com.atproto.repo.getRecord"


def test_the_hosts_clock_is_the_one_of_its_newest_answer() -> None:
    date = time.strftime("%a, %d %b %Y %H:%M:%S GMT", time.gmtime(time.time() + 1e8))
    host = Script([json_answer({}, {"Date": date}), json_answer({})])
    with client_for(host) as client:
        assert client.clock_offset(PDS) is None
        client.get(PDS, GET)
        offset = client.clock_offset(f"{PDS}/")
        assert offset is not None
        assert abs(offset - 1e8) < 60
        assert client.clock_offset("https://pds.example.com") is None


def test_a_date_that_is_none_is_ignored() -> None:
    for date in (
        "yesterday",
        "",
        "Thu, 01 Jan 99999999 00:00:00 GMT",
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Mon, 01 Jan 1900 00:00:00 GMT",
    ):
        with client_for(Script([json_answer({}, {"Date": date})])) as client:
            client.get(PDS, GET)
            assert client.clock_offset(PDS) is None
