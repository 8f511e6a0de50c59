"""What must be quick, so that accounting never waits: times on one core, with room for a busy machine."""

import subprocess
import sys
import time

from hushgrad import accountant


def test_thirty_six_thousand_rounds_of_one_size_take_less_than_a_third_of_a_second():
    """The paper's smallest sample of table 3: s = 10 of 60,000, sigma 12.10881; processor time, not the clock's."""
    group = accountant.RoundGroup(10 / 60_000, 12.10881, 36_000)
    mode = {"sampling": "poisson", "adjacency": "add-remove", "delta": 1 / 60_000}
    accountant.from_schedule([accountant.RoundGroup(0.1, 2.0, 1)], **mode)  # the libraries' import is not meant

    start = time.process_time()
    claim = accountant.from_schedule([group], **mode)
    seconds = time.process_time() - start

    assert 0.00551 < claim.epsilon < 0.00554
    assert seconds < 0.3


def test_importing_the_accountant_is_cheap():
    program = "import time; start = time.process_time(); import hushgrad.accountant; print(time.process_time() - start)"
    output = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    assert float(output.stdout) < 0.5
