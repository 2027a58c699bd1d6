"""The example under examples/shop: real sinks, real kills, approvals from another terminal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_each_act_of_the_shop_arrives_once() -> None:
    """A payment service and a mailbox count what arrives, while the agent is killed and asks for leave."""
    command = [sys.executable, str(ROOT / "examples" / "shop" / "settle.py"), "--orders", "1", "--seed", "4"]

    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    assert done.returncode == 0, done.stdout + done.stderr
    lines = [line.rsplit(maxsplit=1) for line in done.stdout.splitlines() if line]
    told = {name.strip(): int(number) for name, number in lines}
    assert told["charges arrived"] == told["mails arrived"] == 1
    assert told["arrived twice"] == 0
    assert told["approvals given"] == 2
    assert told["kills"] > 0
