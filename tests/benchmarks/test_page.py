"""That the page of performance says what was measured."""

import json

from benchmarks import page


def test_tables_of_the_page_are_those_of_the_measurements_beside_it():
    text = page.PAGE.read_text()
    bench, peers = json.loads(page.BENCH.read_text()), json.loads(page.PEERS.read_text())
    assert page.with_tables(text, bench, peers) == text, "run `python -m benchmarks.page`"


def test_missed_bar_and_system_that_did_not_finish_are_told():
    bench = {
        "machine": {},
        "ratios": [],
        "records": [],
        "bounds": [{"name": "slow", "value": 3.0, "unit": "ms", "bar": 2.0, "sense": "at most", "holds": False}],
    }
    row = {"system": "Other", "version": "1.0", "not_finished": "no round was done in 120 s"}
    peers = {"machine": {}, "versions": {}, "bounds": [], "sizes": [{"parameters": 69, "rows": [row]}]}
    assert "| slow | 3 ms | <= 2 | **missed** |" in page.bounds_table(bench, peers)
    assert "- Other at 69 parameters did not finish: no round was done in 120 s." in page.peers_table(bench, peers)
