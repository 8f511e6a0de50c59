"""What `hushgrad reproduce beyond` compares: accounting, steps, asynchrony, growing sample sizes, label skew."""

from dataclasses import dataclass

from hushgrad.experiments.study.figures import Across


@dataclass(frozen=True, slots=True)
class Study:
    """One comparison.

    Attributes:
        title: of table and figure.
        across: what the figure's curves are drawn against.
        log: whether on a logarithmic axis.
        columns: which of the varied keys the table and the legend show.
        remarks: sentences below the table.
    """

    title: str
    across: Across
    log: bool
    columns: tuple[str, ...]
    remarks: tuple[str, ...]


_CHOSEN = (
    "Steps, clip norm and sample size were chosen by test accuracy on these public data, with other seeds than those "
    "of the table. On private data such a choice costs privacy, and accuracies chosen so are a little too good."
)
_CHOSEN_HERE = (
    "Steps, clip norm and sample size of the large rounds were chosen by test accuracy on these public data, three "
    "settings with the seeds of the table: a little too good. On private data such a choice costs privacy."
)
_PER_CLIENT = (
    "epsilon is each client's; a record that all five clients hold spends more. The paper's own runs claim less than "
    "they print: Theorem 2 is loose."
)
_TRAVEL = (
    "At a fixed epsilon the noise in the last model depends on how far it travels and hardly on sample size or rounds: "
    "these are knobs of communication."
)
_THEOREM_1 = (
    "Theorem 1 names no constants; the moments accountant, which its proof evaluates, gives the noise of that row for "
    "the same number of rounds. The epsilon beside it is what that noise really claims."
)
_TRUSTED_SERVER = (
    "The server that adds the noise is another trust model: it would see every client's clean sum. With n clients it "
    "needs a share 1/sqrt(n) of their noise. Its epsilon does not compare with the others'."
)
_HIDES_LATENCY = (
    "max-delay d: a round may begin d versions ahead. With one slow client every version waits for it whatever d is: "
    "the others do their rounds earlier and then have none left. Being ahead hides latency, not slowness."
)
_SWINGS = "sqrt and unbounded let fast clients finish long before the slow one: most of their steps rest on old models."
_SAME_GRADIENTS = "Every row computes 50,000 gradients per client with one noise multiplier for all its rounds."
_ONE_MODEL = "The model is one for all; the test set is not skewed."

PARTS = {
    "beyond-same": Study(
        "The same 10,000 records at each client: the paper's run, tight noise, and then better steps",
        "version",
        True,
        (
            "labels.step",
            "privacy.epsilon",
        ),
        (_CHOSEN_HERE, _PER_CLIENT),
    ),
    "beyond-disjoint": Study(
        "Five clients with 2,000 records each, none at two clients: the claim holds for the record",
        "version",
        False,
        ("privacy.epsilon",),
        (_CHOSEN, _TRAVEL),
    ),
    "beyond-baselines": Study(
        "Baselines at epsilon 0.1, disjoint clients of 2,000 records, 200 rounds",
        "version",
        False,
        ("labels.baseline",),
        (_THEOREM_1, _TRUSTED_SERVER),
    ),
    "beyond-asynchrony": Study(
        "How far clients may run ahead: accuracy against time, epsilon 0.5",
        "seconds",
        False,
        (
            "training.delay.kind",
            "training.delay.max_delay",
            "labels.speeds",
        ),
        (_HIDES_LATENCY, _SWINGS),
    ),
    "beyond-growing": Study(
        "Growing sample sizes: rounds of communication against accuracy, the same gradients and epsilon 0.5",
        "version",
        True,
        ("labels.samples",),
        (_SAME_GRADIENTS,),
    ),
    "beyond-skew": Study(
        "Label skew: clients of 1,000 records whose classes follow a Dirichlet distribution",
        "version",
        False,
        (
            "partition.kind",
            "partition.alpha",
            "labels.privacy",
        ),
        (_ONE_MODEL,),
    ),
}
NAMES = tuple(PARTS)
