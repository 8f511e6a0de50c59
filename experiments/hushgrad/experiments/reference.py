"""What the same data gives without privacy: one logistic regression on everybody's records in one place."""

from hushgrad.experiments.tables import Table


def accuracy(train: Table, test: Table) -> float:
    """Returns the test accuracy, 0 to 1, of scikit-learn's LogisticRegression with its default settings.

    Nobody could train it without collecting the records; it says what privacy and distribution cost.
    """
    from sklearn.linear_model import LogisticRegression  # slow to import

    model = LogisticRegression(max_iter=1000).fit(train.features, train.labels)
    return float(model.score(test.features, test.labels))
