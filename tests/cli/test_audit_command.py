import csv

from running import run


def test_findings_are_printed_and_written(family, tmp_path):
    import duckdb

    with duckdb.connect(str(family / "c.duckdb")) as connection:
        connection.execute("UPDATE models SET license = 'mit' WHERE id = 'a-0'")
        connection.execute("UPDATE families SET license = 'cc-by-nc-4.0'")

    shown = run(family, "audit", "--kind", "licence", "-o", tmp_path / "findings.csv")
    rows = list(csv.DictReader((tmp_path / "findings.csv").read_text().splitlines()))
    one = run(family, "audit", "a-1", "--kind", "licence")

    assert shown.exit_code == one.exit_code == 0
    assert "1 finding among 4 models" in shown.stdout
    assert [(row["model"], row["kind"], row["z"]) for row in rows] == [("a-0", "licence", "")]
    assert rows[0]["detail"].endswith("allows no commercial use")
    assert "no finding among 1 model" in one.stdout
