"""Models of other bases over the API."""

from factories import write_reviews
from panel_families import make_families
from services import API, printed, served

import deltadex as dx

N_SETS = 4


def test_the_service_answers_by_panels_that_are_there_and_names_no_folder(tmp_path):
    folder = make_families(tmp_path)
    (folder / "sets").mkdir()
    for number in range(N_SETS):
        write_reviews(folder / "sets" / f"set-{number}.csv", n=16 + 2 * number)
    catalog = folder / "c.duckdb"
    with dx.open(catalog) as db:
        db.panels.build(folder / "sets")

    with served(catalog) as client:
        answer = client.get(f"{API}/across", params={"model": "g-0", "k": 3})
        unknown = client.get(f"{API}/across", params={"model": "g-0", "panel": str(folder)})

    assert answer.status_code == 200, answer.text
    expected = printed(catalog, "find-similar", "g-0", "--across", "-k", "3")
    models = [row["model"] for row in expected["neighbours"]]
    assert [row["model"] for row in answer.json()["neighbours"]] == models
    assert unknown.status_code == 422
    assert str(folder) not in answer.text
