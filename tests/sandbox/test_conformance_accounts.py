"""The sandbox answers about accounts and their DIDs as the reference PDS and directory do.

A difference that is meant stands in MEANT, with its reason.
"""

import time
from base64 import b64encode
from typing import Any

import httpx
import jwt
import pytest

from tests.network import Account, Network, write
from tests.sandbox.conversation import (
    ADMIN,
    IDENTITY,
    MISSING,
    NOT_THERE,
    NOTE,
    REPO,
    SERVER,
    SYNC,
    Conversation,
    Recorder,
    batch,
    differences,
    summary,
)

pytestmark = pytest.mark.testnet

MEANT = {
    "accounts: OAuth": "the sandbox has none yet, and so no page that says where",
    "takedowns: by the owner": "no moderation service is configured, so no token is taken for one",
    "moving: import garbage": "a CAR that is none is the sender's fault, and says so",
}


def sessions(on: Recorder) -> None:
    alice, bob = on.network.account(), on.network.account()
    host = alice.host
    create = f"{SERVER}createSession"

    def log_in(label: str, identifier: str, password: str, **more: Any) -> dict[str, Any]:
        body = {"identifier": identifier, "password": password, **more}
        answer: dict[str, Any] = on.post(label, host, create, body).json()
        return answer

    session = log_in("by handle", alice.handle, alice.password)
    log_in("by DID", alice.did, alice.password)
    log_in("by email", f"{alice.handle.partition('.')[0]}@example.com", alice.password)
    log_in("in capitals", alice.handle.upper(), alice.password)
    log_in("wrong password", alice.handle, "wrong")
    log_in("nobody", "nobody" + host.domain, "wrong")
    log_in("no name", "?", "wrong")
    log_in("long password", alice.handle, "a" * 600)
    on.post("no password", host, create, {"identifier": alice.handle})
    access, refresh = (f"Bearer {session[name]}" for name in ("accessJwt", "refreshJwt"))
    get = f"{SERVER}getSession"
    on.ask("session", host, "GET", get, auth=access)
    on.ask("no token", host, "GET", get)
    on.ask("refresh token as access token", host, "GET", get, auth=refresh)
    on.ask("garbage", host, "GET", get, auth="Bearer garbage")
    on.ask("garbage of three", host, "GET", get, auth="Bearer a.b.c")
    on.ask("Basic", host, "GET", get, auth="Basic " + b64encode(b"admin:x").decode())
    on.ask("another scheme", host, "GET", get, auth="Token x")
    on.ask("one word", host, "GET", get, auth="Bearer")
    on.ask("lower case", host, "GET", get, auth=access.replace("Bearer", "bearer"))
    other = on.network.hosts[1]
    on.ask("on another host", other, "GET", get, auth=access)
    renewed = on.post("refresh", host, f"{SERVER}refreshSession", auth=refresh).json()
    again = on.post("refresh again", host, f"{SERVER}refreshSession", auth=refresh).json()
    jti = [_claims(each["refreshJwt"])["jti"] for each in (renewed, again)]
    on.answers["the same successor"] = jti[0] == jti[1]
    on.answers["claims"] = {
        name: sorted(_claims(session[name])) for name in ("accessJwt", "refreshJwt")
    }
    on.post("refresh by access token", host, f"{SERVER}refreshSession", auth=access)
    on.post("refresh by nothing", host, f"{SERVER}refreshSession")
    on.post("end by access token", host, f"{SERVER}deleteSession", auth=access)
    on.post("end", host, f"{SERVER}deleteSession", auth=f"Bearer {renewed['refreshJwt']}")
    on.post("end again", host, f"{SERVER}deleteSession", auth=f"Bearer {renewed['refreshJwt']}")
    on.post(
        "refresh what has ended",
        host,
        f"{SERVER}refreshSession",
        auth=f"Bearer {renewed['refreshJwt']}",
    )
    on.ask("the access token lives on", host, "GET", get, auth=access)

    made = on.post("app password", alice, f"{SERVER}createAppPassword", {"name": "git"}).json()
    on.post("app password of that name", alice, f"{SERVER}createAppPassword", {"name": "git"})
    on.post("privileged", alice, f"{SERVER}createAppPassword", {"name": "more", "privileged": True})
    on.get("app passwords", alice, f"{SERVER}listAppPasswords")
    app = log_in("by app password", alice.handle, made["password"])
    token = f"Bearer {app['accessJwt']}"
    note = {"repo": alice.did, "collection": NOTE, "record": {}}
    on.post("app writes", host, f"{REPO}createRecord", note, auth=token)
    on.post(
        "app makes an app password", host, f"{SERVER}createAppPassword", {"name": "x"}, auth=token
    )
    on.post("app deactivates", host, f"{SERVER}deactivateAccount", {}, auth=token)
    on.post("app refreshes", host, f"{SERVER}refreshSession", auth=f"Bearer {app['refreshJwt']}")
    on.post("revoke", alice, f"{SERVER}revokeAppPassword", {"name": "git"})
    on.post("revoke again", alice, f"{SERVER}revokeAppPassword", {"name": "git"})
    on.post(
        "revoked refreshes", host, f"{SERVER}refreshSession", auth=f"Bearer {app['refreshJwt']}"
    )
    log_in("by revoked app password", alice.handle, made["password"])

    theirs = {**note, "repo": bob.did}
    on.post("writes to another", alice, f"{REPO}createRecord", theirs)
    on.post("writes to nobody", alice, f"{REPO}createRecord", {**note, "repo": NOT_THERE})
    on.post("writes by handle", alice, f"{REPO}createRecord", {**note, "repo": alice.handle})
    on.post("writes with no token", host, f"{REPO}createRecord", note)
    on.post("writes with garbage", host, f"{REPO}createRecord", note, auth="Bearer garbage")


def _claims(token: str) -> dict[str, Any]:
    claims: dict[str, Any] = jwt.decode(token, options={"verify_signature": False})
    return claims


def service_tokens(on: Recorder) -> None:
    alice = on.network.account()
    app = alice.post(f"{SERVER}createAppPassword", {"name": "app"})["password"]
    session = alice.host.post(f"{SERVER}createSession", {"identifier": alice.did, "password": app})
    now = int(time.time())
    lxm = {"lxm": "dev.example.push"}
    audiences = {
        "plc": alice.did,
        "plc with service": f"{alice.did}#svc",
        "web": "did:web:example.com",
        "web with service": "did:web:example.com#svc",
        "localhost with a port": "did:web:localhost%3A9999",
        "address with a port": "did:web:127.0.0.1%3A9999",
        "host with a port": "did:web:example.com%3A8080",
        "host": "https://example.com",
        "two fragments": "did:web:example.com#a#b",
        "key": "did:key:zQ3shunBKsXixLxKtC5qeSG9E4J5RkGN57im31pcTzbNQnm5w",
    }
    for name, aud in audiences.items():
        on.get(f"aud {name}", alice, f"{SERVER}getServiceAuth", aud=aud, **lxm)
    aud = "did:web:example.com"
    token = on.get("token", alice, f"{SERVER}getServiceAuth", aud=aud, **lxm).json()["token"]
    on.answers["token: claims"] = sorted(_claims(token))
    on.answers["token: header"] = jwt.get_unverified_header(token)
    on.get("without lxm", alice, f"{SERVER}getServiceAuth", aud=aud)
    on.get("without aud", alice, f"{SERVER}getServiceAuth", **lxm)
    on.get("bad lxm", alice, f"{SERVER}getServiceAuth", aud=aud, lxm="x")
    for name, exp in {
        "past": now - 10,
        "soon": now + 50,
        "in an hour": now + 3500,
        "later": now + 3700,
        "text": "x",
    }.items():
        on.get(f"exp {name}", alice, f"{SERVER}getServiceAuth", aud=aud, exp=exp, **lxm)
    on.get(
        "exp in two minutes without lxm", alice, f"{SERVER}getServiceAuth", aud=aud, exp=now + 120
    )
    for method in (
        f"{SERVER}createAppPassword",
        f"{SERVER}createAccount",
        "chat.bsky.convo.getLog",
        f"{SERVER}deleteAccount",
    ):
        on.get(f"lxm {method}", alice, f"{SERVER}getServiceAuth", aud=aud, lxm=method)
        auth = f"Bearer {session['accessJwt']}"
        on.ask(
            f"app, lxm {method}",
            alice.host,
            "GET",
            f"{SERVER}getServiceAuth",
            auth=auth,
            params={"aud": aud, "lxm": method},
        )
    on.ask("nobody", alice.host, "GET", f"{SERVER}getServiceAuth", params={"aud": aud, **lxm})
    upload = alice.get(f"{SERVER}getServiceAuth", aud="did:web:localhost", lxm=f"{REPO}uploadBlob")[
        "token"
    ]
    blob = {"content": b"x", "headers": {"Content-Type": "text/plain"}}
    on.post(
        "upload by service token", alice.host, f"{REPO}uploadBlob", auth=f"Bearer {upload}", **blob
    )
    on.post(
        "upload by a token for another method",
        alice.host,
        f"{REPO}uploadBlob",
        auth=f"Bearer {token}",
        **blob,
    )


def accounts(on: Recorder) -> None:
    host = on.network.hosts[0]
    taken = on.network.account("taken")
    create = f"{SERVER}createAccount"

    def make(label: str, handle: str, **more: Any) -> dict[str, Any]:
        body = {
            "handle": handle,
            "email": f"{label.replace(' ', '')}@example.com",
            "password": "secret",
            **more,
        }
        answer: dict[str, Any] = on.post(
            label, host, create, {k: v for k, v in body.items() if v}
        ).json()
        return answer

    make("plain", "plainname.test")
    make("taken", taken.handle)
    make("taken mail", "another.test", email=f"{taken.handle.partition('.')[0]}@example.com")
    make("mail in capitals", "another1.test", email="PLAIN@example.com")
    make("capitals", "CapITals.test")
    make("two", "ab.test")
    make("three", "abc.test")
    make("eighteen", "a" * 18 + ".test")
    make("nineteen", "a" * 19 + ".test")
    make("dots", "a.bcd.test")
    make("underscore", "a_bcd.test")
    make("hyphen at the end", "abcd-.test")
    make("reserved", "admin.test")
    make("of another domain", "alice.example.com")
    make("of another host", "alice.pds1.test")
    make("no handle", "")
    make("no mail", "nomail.test", email=None)
    make("bad mail", "badmail.test", email="x")
    make("no password", "nopassword.test", password=None)
    make("long password", "longpassword.test", password="a" * 300)
    make("plcOp", "plcop.test", plcOp={"a": 1})
    make("with a DID", "withdid.test", did=NOT_THERE)
    make("with a bad DID", "withbaddid.test", did="x")
    make(
        "recovery key",
        "recovery.test",
        recoveryKey="did:key:zQ3shunBKsXixLxKtC5qeSG9E4J5RkGN57im31pcTzbNQnm5w",
    )
    on.get("describe", host, f"{SERVER}describeServer")
    on.get("health", host, "_health")
    on.get("unknown method", host, "com.example.unknown")
    on.get("unknown method, logged in", taken, "com.example.unknown")
    on.post("unknown procedure, logged in", taken, "com.example.unknown", {})
    on.get("no method", host, "x")
    on.get("spaces", host, "com.atproto.space.listSpaces")
    on.get("spaces, logged in", taken, "com.atproto.space.listSpaces")
    resolve = f"{IDENTITY}resolveHandle"
    on.get("resolve", host, resolve, handle=taken.handle)
    on.get("resolve capitals", host, resolve, handle=taken.handle.upper())
    on.get("resolve nobody", host, resolve, handle="nobody.test")
    on.get("resolve another's", host, resolve, handle="nobody.pds1.test")
    on.get("resolve elsewhere", host, resolve, handle="nobody.example.com")
    on.get("resolve no handle", host, resolve, handle="x")
    on.get("resolve nothing", host, resolve)
    update = f"{IDENTITY}updateHandle"
    on.post("rename", taken, update, {"handle": "renamed.test"})
    on.post("rename to oneself", taken, update, {"handle": "renamed.test"})
    on.post("rename to another's", taken, update, {"handle": "plainname.test"})
    on.post("rename to a short one", taken, update, {"handle": "ab.test"})
    on.post("rename to none", taken, update, {"handle": "x"})
    on.post("rename elsewhere", taken, update, {"handle": "alice.example.com"})
    on.get("resolve renamed", host, resolve, handle="renamed.test")
    on.get("resolve the old one", host, resolve, handle=taken.handle)
    on.get("renamed", taken, f"{SERVER}getSession")
    for name in ("renamed.test", "nobody.test", "example.com"):
        url = f"{host.url}/.well-known/atproto-did"
        response = host.http.get(url, headers={"Host": name})
        on.answers[f"well-known {name}"] = response.status_code, response.text == taken.did
    url = f"{host.url}/.well-known/oauth-protected-resource"
    on.answers["OAuth"] = summary(host.http.get(url))


def states(on: Recorder) -> None:
    """Of section 4 of what was measured: how an account that went looks to whoever asks."""
    network = on.network
    for state in ("deactivated", "taken down", "deleted"):
        alice = network.account()
        host = alice.host
        blob = alice.upload(b"state" + state.encode(), "text/plain")
        alice.create(NOTE, "k", {"blob": blob})
        session = host.post(
            f"{SERVER}createSession", {"identifier": alice.did, "password": alice.password}
        )
        subject = {"$type": f"{ADMIN}defs#repoRef", "did": alice.did}
        if state == "deactivated":
            on.post("deactivate", alice, f"{SERVER}deactivateAccount", {})
        elif state == "taken down":
            network.admin(
                host,
                f"{ADMIN}updateSubjectStatus",
                {"subject": subject, "takedown": {"applied": True, "ref": "x"}},
            )
        else:
            network.admin(host, f"{ADMIN}deleteAccount", {"did": alice.did})
        did = {"did": alice.did}
        key = {"collection": NOTE, "rkey": "k"}
        for who, auth in (("anyone", None), ("the owner", alice.auth)):
            say = f"{state}, {who}: "
            for name, params in {
                "getLatestCommit": did,
                "getRepo": did,
                "getRecord": {**did, **key},
                "getBlob": {**did, "cid": blob["ref"]["$link"]},
                "listBlobs": did,
                "getRepoStatus": did,
            }.items():
                on.ask(say + name, host, "GET", SYNC + name, auth=auth, params=params)
            on.ask(
                say + "describeRepo",
                host,
                "GET",
                f"{REPO}describeRepo",
                auth=auth,
                params={"repo": alice.did},
            )
            on.ask(
                say + "listRecords",
                host,
                "GET",
                f"{REPO}listRecords",
                auth=auth,
                params={"repo": alice.did, "collection": NOTE},
            )
            on.ask(
                say + "record",
                host,
                "GET",
                f"{REPO}getRecord",
                auth=auth,
                params={"repo": alice.did, **key},
            )
        say = f"{state}: "
        on.get(say + "resolveHandle", host, f"{IDENTITY}resolveHandle", handle=alice.handle)
        on.post(
            say + "applyWrites",
            alice,
            f"{REPO}applyWrites",
            batch(alice, write("create", NOTE, "new", {})),
        )
        on.post(
            say + "createRecord",
            alice,
            f"{REPO}createRecord",
            {"repo": alice.did, "collection": NOTE, "record": {}},
        )
        on.post(
            say + "uploadBlob",
            alice,
            f"{REPO}uploadBlob",
            content=b"x",
            headers={"Content-Type": "text/plain"},
        )
        on.get(
            say + "getServiceAuth",
            alice,
            f"{SERVER}getServiceAuth",
            aud="did:web:example.com",
            lxm="com.example.x",
        )
        on.post(
            say + "createSession",
            host,
            f"{SERVER}createSession",
            {"identifier": alice.did, "password": alice.password},
        )
        on.post(
            say + "createSession with a wrong password",
            host,
            f"{SERVER}createSession",
            {"identifier": alice.did, "password": "x"},
        )
        on.post(
            say + "refreshSession",
            host,
            f"{SERVER}refreshSession",
            auth=f"Bearer {session['refreshJwt']}",
        )
        on.get(say + "getSession", alice, f"{SERVER}getSession")
        on.get(say + "checkAccountStatus", alice, f"{SERVER}checkAccountStatus")
        on.post(say + "activateAccount", alice, f"{SERVER}activateAccount")
        on.get(say + "listMissingBlobs", alice, f"{REPO}listMissingBlobs")
        on.post(say + "updateHandle", alice, f"{IDENTITY}updateHandle", {"handle": "back.test"})
        on.get(
            say + "getRecommendedDidCredentials", alice, f"{IDENTITY}getRecommendedDidCredentials"
        )
        on.post(say + "createAppPassword", alice, f"{SERVER}createAppPassword", {"name": "x"})
        if state == "taken down":
            network.admin(
                host,
                f"{ADMIN}updateSubjectStatus",
                {"subject": subject, "takedown": {"applied": False}},
            )
            on.get("lifted", alice, f"{SERVER}getSession")
            on.get("lifted: record", alice, f"{REPO}getRecord", repo=alice.did, **key)


def takedowns(on: Recorder) -> None:
    network, alice = on.network, on.network.account()
    host = alice.host
    update = f"{ADMIN}updateSubjectStatus"
    auth = "Basic " + b64encode(f"admin:{network.admin_password}".encode()).decode()
    blob = alice.upload(b"taken down", "text/plain")
    alice.create(NOTE, "k", {"blob": blob})
    uri = f"at://{alice.did}/{NOTE}/k"
    record = {"$type": "com.atproto.repo.strongRef", "uri": uri, "cid": MISSING}
    applied, lifted = ({"applied": each} for each in (True, False))
    on.post("by nobody", host, update, {"subject": record, "takedown": applied})
    on.post("by the owner", alice, update, {"subject": record, "takedown": applied})
    on.post(
        "by a wrong password",
        host,
        update,
        {"subject": record},
        auth="Basic " + b64encode(b"admin:x").decode(),
    )
    on.post("record", host, update, {"subject": record, "takedown": applied}, auth=auth)
    key = {"repo": alice.did, "collection": NOTE, "rkey": "k"}
    on.get("record is gone", alice, f"{REPO}getRecord", **key)
    on.get("and unlisted", alice, f"{REPO}listRecords", repo=alice.did, collection=NOTE)
    on.get("and proven", alice, f"{SYNC}getRecord", did=alice.did, collection=NOTE, rkey="k")
    on.post(
        "and its key is taken",
        alice,
        f"{REPO}applyWrites",
        batch(alice, write("create", NOTE, "k", {})),
    )
    on.post("record back", host, update, {"subject": record, "takedown": lifted}, auth=auth)
    on.get("record is back", alice, f"{REPO}getRecord", **key)
    subject = {"$type": f"{ADMIN}defs#repoBlobRef", "did": alice.did, "cid": blob["ref"]["$link"]}
    on.post("blob", host, update, {"subject": subject, "takedown": applied}, auth=auth)
    on.get("blob is gone", alice, f"{SYNC}getBlob", did=alice.did, cid=blob["ref"]["$link"])
    on.post(
        "reference to it",
        alice,
        f"{REPO}applyWrites",
        batch(alice, write("create", NOTE, "k2", {"blob": blob})),
    )
    on.post(
        "uploaded again",
        alice,
        f"{REPO}uploadBlob",
        content=b"taken down",
        headers={"Content-Type": "text/plain"},
    )
    on.post("blob back", host, update, {"subject": subject, "takedown": lifted}, auth=auth)
    on.get("blob is back", alice, f"{SYNC}getBlob", did=alice.did, cid=blob["ref"]["$link"])
    on.post("no subject", host, update, {"takedown": applied}, auth=auth)
    on.post("delete nobody", host, f"{ADMIN}deleteAccount", {"did": NOT_THERE}, auth=auth)
    on.post("delete", host, f"{ADMIN}deleteAccount", {"did": alice.did}, auth=auth)
    on.get("deleted", alice.host, f"{SYNC}getRepoStatus", did=alice.did)


def leaving(on: Recorder) -> None:
    alice = on.network.account()
    delete = f"{SERVER}deleteAccount"
    body = {"did": alice.did, "password": alice.password, "token": "x"}
    on.post("no token", alice.host, delete, body)
    on.post("ask", alice, f"{SERVER}requestAccountDelete")
    token = on.network.mailed(alice, "delete_account")
    on.post("wrong password", alice.host, delete, {**body, "token": token, "password": "x"})
    on.post("wrong token", alice.host, delete, {**body, "token": "AAAAA-BBBBB"})
    on.post("nobody", alice.host, delete, {**body, "did": NOT_THERE, "token": token})
    on.post("delete", alice.host, delete, {**body, "token": token})
    on.get("gone", alice.host, f"{SYNC}getRepoStatus", did=alice.did)


def moving(on: Recorder) -> None:
    network = on.network
    old, new = network.hosts
    alice = network.account("mover")
    blob = alice.upload(b"moving " * 100, "text/plain")
    alice.create(NOTE, "with-blob", {"blob": blob})
    alice.apply(*(write("create", NOTE, f"k{n}", {"n": n}) for n in range(50)))
    create = f"{SERVER}createAccount"
    handle = alice.handle.replace(".test", ".pds1.test")
    body = {
        "did": alice.did,
        "handle": handle,
        "email": "mover@example.org",
        "password": alice.password,
    }
    on.post("without a token", new, create, body)

    def service_token(aud: str, lxm: str) -> str:
        made = alice.get(f"{SERVER}getServiceAuth", aud=aud, lxm=lxm)
        return f"Bearer {made['token']}"

    token = on.get(
        "token", alice, f"{SERVER}getServiceAuth", aud="did:web:localhost", lxm=create
    ).json()["token"]
    on.post(
        "of another method",
        new,
        create,
        body,
        auth=service_token("did:web:localhost", "com.example.x"),
    )
    on.post(
        "for another audience",
        new,
        create,
        body,
        auth=service_token("did:web:example.com", create),
    )
    on.post("garbled", new, create, body, auth=f"Bearer {token[:-4]}AAAA")
    on.post("of another DID", new, create, {**body, "did": NOT_THERE}, auth=f"Bearer {token}")
    made = on.post("create", new, create, body, auth=f"Bearer {token}").json()
    on.post(
        "create again",
        new,
        create,
        {**body, "handle": "second.pds1.test", "email": "o@example.org"},
        auth=f"Bearer {token}",
    )
    moved = Account(new, alice.did, handle, alice.password, f"Bearer {made['accessJwt']}")
    on.get("status at first", moved, f"{SERVER}checkAccountStatus")
    on.post("activate too early", moved, f"{SERVER}activateAccount")
    on.post(
        "write too early",
        moved,
        f"{REPO}createRecord",
        {"repo": alice.did, "collection": NOTE, "record": {}},
    )
    car = old.send("GET", f"{SYNC}getRepo", params={"did": alice.did}).content
    kind = {"Content-Type": "application/vnd.ipld.car"}
    on.post("import garbage", moved, f"{REPO}importRepo", content=b"garbage", headers=kind)
    on.post("import", moved, f"{REPO}importRepo", content=car, headers=kind)
    on.post("import again", moved, f"{REPO}importRepo", content=car, headers=kind)
    missing = on.get("missing", moved, f"{REPO}listMissingBlobs").json()
    on.answers["missing: which"] = [each["cid"] for each in missing["blobs"]]
    on.get("status without blobs", moved, f"{SERVER}checkAccountStatus")
    on.post(
        "blob",
        moved,
        f"{REPO}uploadBlob",
        content=b"moving " * 100,
        headers={"Content-Type": "text/plain"},
    )
    on.get("nothing missing", moved, f"{REPO}listMissingBlobs")
    status = on.get("status with blobs", moved, f"{SERVER}checkAccountStatus").json()
    names = ("activated", "validDid", "indexedRecords", "expectedBlobs", "importedBlobs")
    on.answers["status with blobs: values"] = {name: status[name] for name in names}
    on.post("ask for a signature", alice, f"{IDENTITY}requestPlcOperationSignature")
    mailed = network.mailed(alice, "plc_operation")
    wanted = on.get("credentials", moved, f"{IDENTITY}getRecommendedDidCredentials").json()
    on.post("sign without a token", alice, f"{IDENTITY}signPlcOperation", wanted)
    on.post(
        "sign with a wrong token",
        alice,
        f"{IDENTITY}signPlcOperation",
        {**wanted, "token": "AAAAA-BBBBB"},
    )
    signed = on.post(
        "sign", alice, f"{IDENTITY}signPlcOperation", {**wanted, "token": mailed}
    ).json()
    on.post("sign again", alice, f"{IDENTITY}signPlcOperation", {**wanted, "token": mailed})
    on.post("submit to the old host", alice, f"{IDENTITY}submitPlcOperation", signed)
    on.post("submit garbage", moved, f"{IDENTITY}submitPlcOperation", {"operation": {"a": 1}})
    on.post("submit", moved, f"{IDENTITY}submitPlcOperation", signed)
    on.post("activate", moved, f"{SERVER}activateAccount")
    on.post(
        "the old host still writes",
        alice,
        f"{REPO}createRecord",
        {"repo": alice.did, "collection": NOTE, "record": {}},
    )
    on.post("deactivate", alice, f"{SERVER}deactivateAccount", {})
    on.get("old host", old, f"{SYNC}getLatestCommit", did=alice.did)
    on.get("new host", new, f"{REPO}getRecord", repo=alice.did, collection=NOTE, rkey="k3")
    on.get("blob there", new, f"{SYNC}getBlob", did=alice.did, cid=blob["ref"]["$link"])
    on.get("handle there", new, f"{IDENTITY}resolveHandle", handle=handle)
    on.post(
        "write there",
        moved,
        f"{REPO}createRecord",
        {"repo": alice.did, "collection": NOTE, "record": {}},
    )
    on.get("status at last", moved, f"{SERVER}checkAccountStatus")
    said = network.http.get(f"{network.plc}/{alice.did}/data").json()
    on.answers["the DID"] = (
        said["services"]["atproto_pds"]["endpoint"] == new.url,
        said["alsoKnownAs"] == [f"at://{handle}"],
    )


def directory(on: Recorder) -> None:
    alice = on.network.account()
    plc, http = on.network.plc, on.network.http

    def say(label: str, method: str, path: str, **options: Any) -> httpx.Response:
        response = http.request(method, f"{plc}/{path}", **options)
        on.answers[label] = summary(response)
        return response

    say("document", "GET", alice.did)
    say("data", "GET", f"{alice.did}/data")
    say("log", "GET", f"{alice.did}/log")
    say("audit", "GET", f"{alice.did}/log/audit")
    say("last", "GET", f"{alice.did}/log/last")
    for what in ("", "/data", "/log", "/log/audit", "/log/last"):
        say(f"nobody{what}", "GET", f"{NOT_THERE}{what}")
    genesis = http.get(f"{plc}/{alice.did}/log/last").json()
    say("garbage", "POST", alice.did, json={"a": 1})
    say("the first again", "POST", alice.did, json=genesis)
    say("of another DID", "POST", NOT_THERE, json=genesis)
    forged = {**genesis, "sig": genesis["sig"][:-4] + "AAAA"}
    say("forged", "POST", NOT_THERE, json=forged)


@pytest.mark.parametrize(
    "have",
    [sessions, service_tokens, accounts, states, takedowns, leaving, moving, directory],
    ids=lambda each: each.__name__,
)
def test_both_answer_alike(have: Conversation, reference: Network, sandbox: Network) -> None:
    assert not differences(have, (reference, sandbox), MEANT)
