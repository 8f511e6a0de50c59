"""The data set that comes with the package; see data/phishing-credit.txt for its makers and its licence."""

import hashlib
import io
from importlib import resources

import numpy as np
from hushgrad.experiments.tables import Table

PHISHING_SHA256 = "6169ef007b200607aeb93853850c3594950c1a995699b3a3e495780dc03d7fe5"
PHISHING_FEATURES = 68


def phishing() -> Table:
    """Returns the UCI Phishing Websites data: 11,055 web pages, 68 binary features, label 1 for the larger class.

    A set bit reads as 0.18257, about 1/sqrt(30), so that the features of a page have L2 norm 1: there are 30 groups of
    one-hot bits, each with one bit set. The scale is a public constant; nothing was computed from the pages.

    Raises:
        RuntimeError: if the packaged file is not the one that was packaged.

    >>> phishing().features.shape
    (11055, 68)
    """
    packaged = resources.files("hushgrad.experiments").joinpath("data/phishing.npz").read_bytes()
    found = hashlib.sha256(packaged).hexdigest()
    if found != PHISHING_SHA256:
        raise RuntimeError(f"the packaged phishing.npz must have SHA-256 {PHISHING_SHA256}, found {found}; reinstall")
    with np.load(io.BytesIO(packaged), allow_pickle=False) as arrays:
        bits = np.unpackbits(arrays["bits"], axis=1)[:, :PHISHING_FEATURES]
        return Table(
            features=bits.astype(np.float64) * float(arrays["value"]),
            labels=arrays["y"].astype(np.int64),
            class_names=("0", "1"),
        )
