"""Start `deltadex serve` from what is installed, and ask every GET route that it declares.

    python -I .ci/every_route.py demo.duckdb

Pages are asked for each file that they name. The catalog needs two models of one labelled family;
of kept data sets and jobs, which it may lack, the answer may be that there is none.
"""

import json
import re
import subprocess
import sys
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urljoin
from urllib.request import ProxyHandler, build_opener

from deltadex.service.api.routes import UNVERSIONED, VERSIONED
from deltadex.service.api.settings import PREFIX

ABSENT = ("/data", "/nearest-data", "/trained-on", "/jobs/")
"""Routes of what a catalog may lack."""

NAMED = re.compile(rb'(?:src|href)="([^"#:]+)"')


def main() -> None:
    python = [sys.executable, *(["-I"] if sys.flags.isolated else [])]
    serve = ["-m", "deltadex", "serve", "--share-catalog", "--port", "0", "--db", sys.argv[1]]
    with subprocess.Popen([*python, *serve], stdout=subprocess.PIPE) as service:
        try:
            said = service.stdout.readline().decode()
            wrong = ask_all(re.search(r"http://\S+", said)[0])
        finally:
            service.terminate()
    if wrong:
        sys.exit("\n".join(wrong))


def ask_all(url: str) -> list[str]:
    """What is wrong with the answers to every GET route, a line for each."""
    families = json.loads(ask(f"{url}api/v1/families")[1])["families"]
    base = families[0]["base"]
    answer = ask(f"{url}api/v1/models?{urlencode({'base': base, 'status': 'indexed'})}")[1]
    one, other = (model["model"] for model in json.loads(answer)["models"][:2])
    given = {"model": one, "other": other, "first": one, "second": other, "base": base}
    given["text"] = "cells and tissue"
    addresses = {}
    for prefix, router in ((PREFIX, r) for r in VERSIONED):
        addresses |= {prefix + r.path: url_of(r, prefix, given) for r in router.routes if is_get(r)}
    plain = [r for r in UNVERSIONED.routes if is_get(r)]
    addresses |= {r.path: url_of(r, "", given) for r in plain if "{" not in r.path}
    for page in ("/", f"{PREFIX}/docs"):
        for name in NAMED.findall(ask(urljoin(url, page))[1]):
            addresses[f"{page} {name.decode()}"] = urljoin(urljoin(url, page), name.decode())
    wrong = [f"{route}: {fault}" for route, at in addresses.items() if (fault := fault_of(url, at))]
    print(f"{len(addresses)} GET routes and files of pages asked, {len(wrong)} wrong")
    return wrong


def is_get(route) -> bool:
    return "GET" in route.methods


def url_of(route, prefix, given) -> str:
    """A route's path and query with the names that are given; `none` for others."""
    path = re.sub(r"\{(\w+)(:\w+)?\}", lambda part: quote(given.get(part[1], "none")), route.path)
    query = urlencode({name: given.get(name, "none") for name in needed_by(route.dependant)})
    return f"{prefix}{path}?{query}"


def needed_by(dependant) -> set[str]:
    """The parameters of a query that have no default, also of what a route depends on."""
    own = {p.name for p in dependant.query_params if p.field_info.is_required()}
    return own.union(*map(needed_by, dependant.dependencies))


def fault_of(url: str, at: str) -> str:
    """What is wrong with an answer; nothing where it is right."""
    status, body = ask(urljoin(url, at))
    if status in (200, 202):
        return "" if body else "empty"
    code = json.loads(body).get("code", "")
    may_lack = any(f"{PREFIX}{absent}" in at for absent in ABSENT)
    is_right = may_lack and status in (404, 422) and code != "not-found"
    return "" if is_right else f"{status} {code}"


def ask(address: str) -> tuple[int, bytes]:
    try:
        with build_opener(ProxyHandler({})).open(address, timeout=120) as answer:
            return answer.status, answer.read()
    except HTTPError as answer:
        return answer.code, answer.read()


if __name__ == "__main__":
    main()
