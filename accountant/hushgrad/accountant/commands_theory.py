"""The verbs of `hushgrad-accountant` that show the paper's theorems beside the tight claim.

Noise multipliers are the plain mathematical ones, as in `commands`. An epsilon of the paper is printed under the name
`paper_epsilon` or `moments_epsilon`, and as true only where `claimable` says so; a plain `epsilon` is part of a claim.
"""

import click
from hushgrad.accountant import _theory_input, _theory_output
from hushgrad.accountant.claims import Adjacency, RoundGroup, Sampling
from hushgrad.accountant.errors import AccountantError, RefusedError

_PUBLISHED = (
    "As published these numbers leave epsilon out of (12) and stop gamma after one update, so they are no claim"
)


@click.command()
@_theory_input.COMMON
@_theory_input.SIZES
@click.option("--noise-multiplier", type=float, help="Without it: the smallest that the theorem allows.")
@click.option("--epsilon", type=float, help="Check the theorem here; without a sample size: find the largest one.")
@click.option("--as-published", is_flag=True, help="The numbers of the paper's tables, slips included.")
def theorem2(
    records: int,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    accept_large_delta: bool,
    as_json: bool,
    grad_computations: int | None,
    sample_size: int | None,
    listed: str | None,
    polynomial: str | None,
    noise_multiplier: float | None,
    epsilon: float | None,
    as_published: bool,
) -> None:
    """Show Theorem 2: gamma, its four conditions, its epsilon, and whether that is true for the sampler."""
    from hushgrad.accountant import theorem2 as theorem
    from hushgrad.accountant import theorem2_answer, theorem2_inverse, verdict

    if as_published and epsilon is not None:
        raise AccountantError("--as-published computes epsilon; leave --epsilon out")
    if not as_published:  # which uses 1/N, whatever digits of it are typed
        _theory_input.warn_of_large_delta(delta, records, accept_large_delta)
    if not any((sample_size, listed, polynomial)) and grad_computations is not None and epsilon is not None:
        found = theorem2_inverse.largest_sample_size(
            records=records,
            grad_computations=grad_computations,
            epsilon=epsilon,
            delta=delta,
            noise_multiplier=noise_multiplier,
        )
        if found is None:
            raise RefusedError(f"not even a sample size of 1 meets Theorem 2 at epsilon {epsilon:g}; raise it, or N")
        sample_size = found[0]
    sequence = _theory_input.sample_sizes(grad_computations, sample_size, listed, polynomial)
    _theory_input.check_sampling(sequence, sampling, records)
    if as_published:
        answer = theorem2_answer.published(sequence, records=records, delta=delta, noise_multiplier=noise_multiplier)
    else:
        answer = theorem2_answer.answer(
            sequence, records=records, delta=delta, epsilon=epsilon, noise_multiplier=noise_multiplier
        )
    if answer.noise_multiplier is None:
        judged = verdict.Verdict(None, False, "Theorem 2 allows no epsilon here, whatever the noise multiplier.")
    else:
        judged = verdict.judge(
            answer.epsilon,
            source="Theorem 2",
            failed=answer.failed,
            groups=_theory_input.round_groups(sequence.schedule(), answer.noise_multiplier, records),
            sampling=sampling,
            adjacency=adjacency,
            delta=answer.delta,
            never=_PUBLISHED if as_published else None,
        )
    low, high = answer.epsilon_range
    conditions = _theory_output.conditions(answer.conditions)
    conditions["9"] |= {"epsilon_from": low if low <= high else None, "epsilon_to": high if low <= high else None}
    values = {
        "gamma": answer.gamma,
        "alpha_bar": answer.alpha_bar,
        "theta": answer.theta,
        "mean_sample_size": answer.mean_sample_size,
        "paper_epsilon": answer.epsilon,
        "noise_multiplier": answer.noise_multiplier,
        "conditions": conditions,
        **_theory_output.verdict(judged),
    }
    _theory_output.show(values, as_json=as_json, found=judged)
    if not as_json and epsilon is None and noise_multiplier is None and not as_published:
        better = theorem2_inverse.smallest(sequence, records=records, delta=delta)
        if better and answer.epsilon and better[0] < answer.epsilon * (1 - theorem.EQUALITY * 10):
            click.echo(f"more noise, {better[1]:.5g}, would let the theorem say epsilon {better[0]:.5g}")


@click.command()
@_theory_input.COMMON
@_theory_input.SIZES
@click.option("--noise-multiplier", type=float, required=True, help="The same in every round.")
def theorem3(
    records: int,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    accept_large_delta: bool,
    as_json: bool,
    grad_computations: int | None,
    sample_size: int | None,
    listed: str | None,
    polynomial: str | None,
    noise_multiplier: float,
) -> None:
    """Show Theorem 3: the moments of the sample sizes, r, c(x), and its smallest epsilon."""
    from hushgrad.accountant import theorem3 as theorem
    from hushgrad.accountant import verdict

    _theory_input.warn_of_large_delta(delta, records, accept_large_delta)
    sequence = _theory_input.sample_sizes(grad_computations, sample_size, listed, polynomial)
    _theory_input.check_sampling(sequence, sampling, records)
    report = theorem.smallest_epsilon(sequence, records=records, delta=delta, noise_multiplier=noise_multiplier)
    judged = verdict.judge(
        report.epsilon,
        source="Theorem 3",
        failed=report.failed,
        groups=_theory_input.round_groups(sequence.schedule(), noise_multiplier, records),
        sampling=sampling,
        adjacency=adjacency,
        delta=delta,
    )
    values = {
        "moments": report.moments,
        "rho": report.rho,
        "rho_hat": report.rho_hat,
        "r0": report.r0,
        "u0": report.u0,
        "u1": report.u1,
        "r": report.r,
        "c1": report.c1,
        "c0": report.c0,
        "branch": report.branch,
        "paper_epsilon": report.epsilon,
        "noise_multiplier": noise_multiplier,
        "conditions": _theory_output.conditions(report.conditions),
        **_theory_output.verdict(judged),
    }
    _theory_output.show(values, as_json=as_json, found=judged)


@click.command()
@_theory_input.COMMON
@_theory_input.ROUNDS
def theorem1(
    records: int,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    accept_large_delta: bool,
    as_json: bool,
    sample_size: int | None,
    rounds: int | None,
    noise_multiplier: float | None,
) -> None:
    """Compare a setting with Theorem 1 (Abadi et al.), which names no constants."""
    from hushgrad.accountant import theorem1 as theorem
    from hushgrad.accountant import verdict

    _theory_input.warn_of_large_delta(delta, records, accept_large_delta)
    ((size, count, sigma),) = _theory_input.phases(sample_size, rounds, noise_multiplier, None)
    groups = _theory_input.round_groups([(size, count)], sigma, records)
    compared = theorem.compare(groups[0], delta=delta)
    judged = verdict.judge(
        compared.moments_epsilon,
        source="The moments accountant",
        failed=(),
        groups=groups,
        sampling=sampling,
        adjacency=adjacency,
        delta=delta,
    )
    values = {
        "statement": theorem.STATEMENT,
        "sampling_probability": compared.sampling_probability,
        "moments_epsilon": compared.moments_epsilon,
        "order": compared.order,
        "z": compared.z,
        "implied_c1": compared.implied_c1,
        "implied_c2": compared.implied_c2,
        "c2_times_z": compared.c2_times_z,
        "noise_multiplier": sigma,
        **_theory_output.verdict(judged),
    }
    _theory_output.show(values, as_json=as_json, found=judged)


@click.command()
@_theory_input.COMMON
@_theory_input.ROUNDS
@click.option("--schedule", metavar="S:T:X,...", help="Instead of the three: the phases.")
def moments(
    records: int,
    delta: float,
    sampling: Sampling,
    adjacency: Adjacency,
    accept_large_delta: bool,
    as_json: bool,
    sample_size: int | None,
    rounds: int | None,
    noise_multiplier: float | None,
    schedule: str | None,
) -> None:
    """Run the moments accountant: exact moments, and Lemma 1's bound of them with its premises."""
    from hushgrad.accountant import moments as accountant
    from hushgrad.accountant import verdict

    _theory_input.warn_of_large_delta(delta, records, accept_large_delta)
    phases = _theory_input.phases(sample_size, rounds, noise_multiplier, schedule)
    groups = [
        group for size, count, sigma in phases for group in _theory_input.round_groups([(size, count)], sigma, records)
    ]
    by_lemma = accountant.epsilon_by_lemma1(phases, records=records, delta=delta)
    premises = {
        f"{name} ({size}:{count}:{sigma:g})": condition
        for size, count, sigma in phases
        for name, condition in _theory_output.conditions(
            accountant.lemma1_premises(
                by_lemma.order if by_lemma else 1, sample_size=size, records=records, noise_multiplier=sigma
            )
        ).items()
    }
    failed = [
        condition
        for size, _, sigma in phases
        for condition in accountant.lemma1_premises(1, sample_size=size, records=records, noise_multiplier=sigma)
        if not condition.holds
    ]
    judged = verdict.judge(
        by_lemma.epsilon if by_lemma else None,
        source="Lemma 1",
        failed=failed,
        groups=groups,
        sampling=sampling,
        adjacency=adjacency,
        delta=delta,
    )
    exact = None
    if adjacency == "add-remove":
        # `fixed` is charged half the noise multiplier, as in `claims.from_schedule`.
        share = 0.5 if sampling == "fixed" else 1.0
        exact = accountant.epsilon(
            [RoundGroup(g.sampling_probability, g.noise_multiplier * share, g.rounds) for g in groups], delta=delta
        )
    values = {
        "moments_epsilon": exact.epsilon if exact else None,
        "moments_order": exact.order if exact else None,
        "paper_epsilon": by_lemma.epsilon if by_lemma else None,
        "paper_order": by_lemma.order if by_lemma else None,
        "conditions": premises,
        **_theory_output.verdict(judged),
    }
    _theory_output.show(values, as_json=as_json, found=judged)


VERBS = (theorem1, theorem2, theorem3, moments)
