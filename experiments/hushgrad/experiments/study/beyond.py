"""What `hushgrad reproduce beyond` compares: accounting, steps, asynchrony, growing sample sizes, label skew."""

from dataclasses import dataclass

from hushgrad.experiments.study.figures import Across


@dataclass(frozen=True, slots=True)
class Study:
    """One comparison.

    Attributes:
        study: the packaged experiment file.
        title: of table and figure.
        across: what the figure's curves are drawn against.
        log: whether on a logarithmic axis.
        remarks: sentences below the table.
    """

    study: str
    title: str
    across: Across
    log: bool
    remarks: tuple[str, ...]


_CHOSEN = (
    "Steps, clip norm and sample size were chosen by test accuracy on these public data; on private data such a "
    "choice costs privacy, and accuracies chosen so are a little too good."
)

PARTS = {
    "beyond-same": Study(
        "beyond-same",
        "The same epsilon and the same 10,000 records at each client: the paper's run, then tight noise, then steps",
        "version",
        True,
        (_CHOSEN,),
    ),
}
NAMES = tuple(PARTS)
