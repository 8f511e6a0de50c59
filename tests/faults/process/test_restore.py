"""A backup older than every outbox, restored under real processes: the federation goes on and says what was lost."""

import json
import signal
import time
from pathlib import Path

import pytest

from tests.faults import crowd

pytestmark = pytest.mark.e2e


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_a_backup_older_than_every_outbox_ends_in_a_running_federation_and_a_report(tmp_path: Path) -> None:
    with crowd.crowd(tmp_path / "run", clients=2, rounds=150, round_seconds=0.05) as federation:
        root = federation.root
        federation.start_server()
        federation.start_clients()
        federation.wait(lambda: federation.version >= 3, 60, "version 3")
        saved = json.loads(crowd.command(root, "server", "backup", "copy", "--json"))
        federation.wait(lambda: federation.version >= saved["version"] + 15, 30, "fifteen versions more")
        federation.kill("server", signal.SIGKILL)
        gone = federation.version
        restored = json.loads(crowd.command(root, "server", "restore", "copy", "--force", "--json"))
        assert (restored["version"], restored["server_epoch"]) == (saved["version"], 2)
        assert restored["versions_lost"] >= gone - saved["version"]
        federation.start_server()
        reporters = lambda: {event["participant"] for event in federation.events("server", "lost")}  # noqa: E731
        federation.wait(lambda: reporters() == set(federation.names), 20, "the reports")
        status = json.loads(crowd.command(root, "server", "status", federation.address, "--json"))
        assert status["server_epoch"] == 2
        assert all(one["rounds_lost"] > 0 for one in status["participants"])
        federation.wait_for_end(60)
        crowd.command(root, "server", "export", "exported")
        receipts = json.loads((root / "exported" / "receipts.json").read_text())
        lost = [(one["participant"], one["round"]) for one in receipts if one["disposition"] == "LOST"]
        logged = [(event["participant"], round_) for event in federation.events("server", "lost")
                  for round_ in event["rounds"]]  # fmt: skip
        assert sorted(lost) == sorted(logged)
        # What the outboxes had dropped is lost, and only that: the last versions before the kill were still held.
        assert {round_ for _, round_ in lost} <= set(range(saved["version"], gone + 1))
        assert len(lost) >= 2 * (gone - saved["version"] - 3)
        found = crowd.judge(root, federation.names, lost=lost)
        assert (len(found.sealed), found.versions) == (300, 151)
        # No suspension was needed: everybody said at once what it holds.
        assert not federation.events("server", "suspended")


@pytest.mark.faults
def test_with_backups_on_an_old_backup_loses_nothing_at_all(tmp_path: Path) -> None:
    with crowd.crowd(tmp_path / "run", clients=2, rounds=150, round_seconds=0.05, backups=True) as federation:
        root = federation.root
        federation.start_server()
        federation.start_clients()
        federation.wait(lambda: federation.version >= 3, 60, "version 3")
        saved = json.loads(crowd.command(root, "server", "backup", "copy", "--json"))
        federation.wait(lambda: federation.version >= saved["version"] + 30, 60, "thirty versions more")
        federation.kill("server", signal.SIGKILL)
        federation.kill("client-1", signal.SIGKILL)
        crowd.command(root, "server", "restore", "copy", "--force")
        federation.start_server()
        federation.start_client("client-1")
        federation.wait_for_end(90)
        assert not federation.events("server", "lost")
        found = crowd.judge(root, federation.names)
        assert (len(found.sealed), found.versions) == (300, 151)


@pytest.mark.faults
@pytest.mark.timeout(300)
def test_whoever_comes_back_within_the_wait_loses_nothing_and_whoever_comes_later_only_what_left_the_window(
    tmp_path: Path,
) -> None:
    """Both are away for longer than the straggler timeout and far behind the window; only the wait differs."""
    for wait, comes_back_in_time in ((60.0, True), (3.0, False)):
        root = tmp_path / f"wait-{wait:.0f}"
        settings = {"backups": True, "restore_wait_seconds": wait, "straggler_timeout_seconds": 2.0}
        with crowd.crowd(root, clients=3, rounds=90, round_seconds=0.05, **settings) as federation:
            federation.start_server()
            federation.start_clients()
            federation.wait(lambda: federation.version >= 3, 60, "version 3")
            saved = json.loads(crowd.command(root, "server", "backup", "copy", "--json"))["version"]
            federation.wait(lambda: federation.version >= 40, 60, "version 40")
            for name in ("client-1", "server"):
                federation.kill(name)
            crowd.command(root, "server", "restore", "copy", "--force")
            published = len(federation.events("server", "published"))
            federation.start_server()
            time.sleep(8)
            status = json.loads(crowd.command(root, "server", "status", federation.address, "--json"))
            made = len(federation.events("server", "published")) - published
            if comes_back_in_time:
                assert status["waiting_for"] == (
                    f"version {saved + 1} waits until client-1 says what it holds, because the server was restored"
                )
                assert made == 0
            else:
                assert [one["participant"] for one in federation.events("server", "not_heard_since_restore")] == [
                    "client-1"
                ]
                assert made > 0
            federation.start_client("client-1")
            federation.wait_for_end(120)
            assert not federation.events("server", "lost")
            if comes_back_in_time:
                found = crowd.judge(root, federation.names)
                assert found.versions == 91
                assert not federation.events("server", "suspended")
            else:
                crowd.command(root, "server", "export", "exported")
                receipts = json.loads((root / "exported" / "receipts.json").read_text())
                missed = {
                    (one["participant"], one["round"])
                    for one in receipts
                    if one["disposition"] == "SKIPPED" and one["participant"] == "client-1"
                }
                sealed = crowd.sealed_in_ledgers(root, federation.names)
                missed |= {key for key in sealed if key not in {(one["participant"], one["round"]) for one in receipts}}
                assert missed
                crowd.judge(root, federation.names, lost=sorted(missed & set(sealed)))
