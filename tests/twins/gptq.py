"""Numpy twin of csrc/gptq, bit for bit: rounding in which columns make up for each other's errors.

The place to begin reading. Columns are rounded one after the other, in the order of the factor. Each aims at
its weight less what the errors before it have already done to the output. Then sweeps go over all columns
again, and move scales and levels to where the error of the output is least.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from pyquant import _core
from tests.twins.formats import Format
from tests.twins.grid import Grid
from tests.twins.scale_search import LARGEST, SUB, Floats, fma, inverse

TRIALS_ALONE = 3  # where no errors are passed on
SWEEPS = 2  # over all columns, once they have codes


def encode(x: Floats, factor: _core.Factor, form: Format) -> tuple[NDArray[np.uint8], Floats]:
    """Round rows of weights to a format.

    Parameters
    ----------
    x : (n_rows, n_per_row) float32
        Weights.
    factor : _core.Factor
        What is known of the inputs. Without Hessian statistics no error is passed on.
    form : Format
        The format of blocks.

    Returns
    -------
    stored : (n_rows, n_bytes) uint8
        The blocks of each row.
    decoded : (n_rows, n_per_row) float32
        The weights that they stand for.

    Notes
    -----
    An error e of a row costs e H e^T, H being the Hessian of inputs. With H = U D U^T this is the sum
    over k of D[k] (e[k] + sum over j < k of e[j] U[j][k])^2 (Chee et al., QuIP, 2023; Frantar et al., GPTQ,
    2022, do the same from the inverse of H).
    """
    order, upper, hessian = factor.order, factor.upper, factor.hessian  # arrays made at every access
    columns = form.columns
    rows = _Rows(np.ascontiguousarray(x[:, order].T), len(order) // columns, columns // form.sub)
    with np.errstate(all="ignore"):
        for begin in range(0, len(order), columns):
            block = slice(begin, begin + columns)
            target = rows.weight[block].copy()
            _feed_back(upper, range(begin), block, rows.error, target)
            at = order[block] % columns
            known, w = np.empty_like(target), np.empty(columns, np.float32)
            known[at], w[at] = target, factor.diagonal[block]
            opened = rows.opened[begin // columns] = form.open(known, w)
            for first in range(begin, begin + columns, form.sub):
                sub = slice(first, first + form.sub)
                aim = target[first - begin : first - begin + form.sub]
                _feed_back(upper, range(begin, first), sub, rows.error, aim)
                u = None if upper is None else upper[sub, sub]
                d = factor.diagonal[sub]
                of_sub = rows.stored[begin // columns, order[first] % columns // form.sub]
                rows.level[sub], of_sub[:] = _best(form, opened, rows.weight[sub], aim, d, u)
                rows.settle(form, sub, opened, of_sub)
        if hessian is not None:
            for first in [*range(0, len(order), SUB)] * SWEEPS:
                n, panel = first // columns, slice(first, first + SUB)
                gradient, before = np.zeros_like(rows.error[panel]), rows.error[panel].copy()
                _feed_back(hessian, range(len(order)), panel, rows.error, gradient)
                for done in range(0, SUB, form.sub):
                    sub, inner = slice(first + done, first + done + form.sub), slice(done, done + form.sub)
                    changes = rows.error[panel] - before
                    _feed_back(hessian[panel], range(done), sub, changes, gradient[inner])
                    of_sub = rows.stored[n, order[first + done] % columns // form.sub]
                    rows.level[sub], of_sub[:] = _refined(
                        form, hessian[sub, sub], rows.opened[n], of_sub, gradient[inner], rows.level[sub]
                    )
                    rows.settle(form, sub, rows.opened[n], of_sub)
        blocks = [np.empty(0, np.uint8)] * (len(order) // columns)
        for n, begin in enumerate(range(0, len(order), columns)):
            block = slice(begin, begin + columns)
            codes = np.empty((columns, len(x)), np.uint8)
            codes[order[block] % columns] = form.levels.code(rows.level[block])
            blocks[order[begin] // columns] = form.store(rows.opened[n], rows.stored[n], codes)
    decoded = np.empty_like(x)
    decoded[:, order] = rows.value.T
    return np.ascontiguousarray(np.hstack(blocks)), decoded


class _Rows:
    """Weights in the factor's order, and what has become of them.

    Attributes
    ----------
    weight, level, value, error : (n_per_row, n_rows) float32
        A weight; its level; the weight that the level stands for; the difference.
    opened : (n_blocks, 2, n_rows) float32
        What `Format.open` returned for each block.
    stored : (n_blocks, n_subs, 2, n_rows) float32
        Scale and minimum of each sub-block, as the file stores them.
    """

    def __init__(self, weight: Floats, n_blocks: int, n_subs: int) -> None:
        n_rows = weight.shape[1]
        self.weight = weight
        self.level, self.value, self.error = (np.empty_like(weight) for _ in range(3))
        self.opened = np.empty((n_blocks, 2, n_rows), np.float32)
        self.stored = np.empty((n_blocks, n_subs, 2, n_rows), np.float32)

    def settle(self, form: Format, sub: slice, opened: Floats, stored: Floats) -> None:
        """Compute values and errors of a sub-block from its levels."""
        scale, minimum = (form.value(opened, part, stored[part]) for part in range(2))
        self.value[sub] = scale * self.level[sub] - minimum
        self.error[sub] = self.weight[sub] - self.value[sub]


def _feed_back(matrix: Floats | None, done: range, columns: slice, error: Floats, target: Floats) -> None:
    """Add to targets what errors of other columns do to them: e U, or e H.

    Parameters
    ----------
    matrix : (n_per_row, n_per_row) float32, or None
        U or H. Without one nothing is added.
    done : range
        Columns whose errors are passed on.
    columns : slice
        Columns of the targets.
    error : (n_per_row, n_rows) float32
        Errors of all columns.
    target : (len(columns), n_rows) float32
        Changed in place.
    """
    if matrix is not None:
        for j in done:
            target[:] = fma(matrix[j, columns][:, None], error[j], target)


def _best(
    form: Format, opened: Floats, weight: Floats, target: Floats, d: Floats, u: Floats | None
) -> tuple[Floats, Floats]:
    """Try what may be stored for a sub-block, with errors passed on within it, and take the cheapest.

    Parameters
    ----------
    form : Format
        The format of blocks.
    opened : (2, n_rows) float32
        What `Format.open` returned.
    weight, target : (n, n_rows) float32
        Weights, and what they aim at.
    d : (n,) float32
        The factor's diagonal.
    u : (n, n) float32, or None
        U of the sub-block. Without it no error is passed on.

    Returns
    -------
    level : (n, n_rows) float32
        The levels.
    stored : (2, n_rows) float32
        Scale and minimum, as the file stores them.
    """
    trials = form.trials(opened, target, d)[: None if u is not None else TRIALS_ALONE]
    scale, minimum = (form.value(opened, part, trials[:, part]) for part in range(2))
    shape = (len(target), *scale.shape)
    aim = np.broadcast_to(target[:, None], shape).copy()
    level = np.empty(shape, np.float32)
    inv, cost = inverse(scale), np.zeros_like(scale)
    if isinstance(form.levels, Grid):
        level = _by_groups(form.levels, weight, target, d, u, scale)
    for k in range(len(target)):
        if not isinstance(form.levels, Grid):
            level[k] = form.levels.round((aim[k] + minimum) * inv)
        value = scale * level[k] - minimum
        missed = aim[k] - value
        cost = fma(d[k] * missed, missed, cost)
        if u is not None:
            aim[k + 1 :] = fma(u[k, k + 1 :, None, None], weight[k] - value, aim[k + 1 :])
    least, chosen = np.full(target.shape[1], LARGEST), np.zeros(target.shape[1], np.int64)
    for t in range(len(cost)):
        better = cost[t] < least
        least, chosen = np.where(better, cost[t], least), np.where(better, t, chosen)
    rows = np.arange(target.shape[1])
    return level[:, chosen, rows], trials[chosen, :, rows].T


def _by_groups(
    grid: Grid, weight: Floats, target: Floats, d: Floats, u: Floats | None, scales: Floats
) -> Floats:
    """Find levels of a sub-block for each of some scales, which are tried one after the other.

    Parameters
    ----------
    grid : Grid
        What codes stand for.
    weight, target : (n, n_rows) float32
        Weights, and what they aim at.
    d : (n,) float32
        The factor's diagonal.
    u : (n, n) float32, or None
        U of the sub-block. Without it no error is passed on.
    scales : (n_trials, n_rows) float32
        The scales.

    Returns
    -------
    (n, n_trials, n_rows) float32
        The levels. Where nothing is better they are those of the scale before.
    """
    u = np.zeros((len(d), len(d)), np.float32) if u is None else u
    levels, level = [], grid.start(*target.shape)
    for scale in scales:
        aim, level = target.copy(), level.copy()
        for first in range(0, len(d), grid.group):
            group = slice(first, first + grid.group)
            level[group] = grid.round(
                aim[group], weight[group], d[group], u[group, group], scale, level[group]
            )
            for k in range(first, first + grid.group):
                aim[k + 1 :] = fma(u[k, k + 1 :, None], weight[k] - scale * level[k], aim[k + 1 :])
        levels.append(level)
    return np.stack(levels, axis=1)


def _refined(
    form: Format, h: Floats, opened: Floats, stored: Floats, gradient: Floats, level: Floats
) -> tuple[Floats, Floats]:
    """Move a sub-block's scale and minimum, then its levels, to where e H e^T is least as the rest is.

    Parameters
    ----------
    form : Format
        The format of blocks.
    h : (n, n) float32
        H of the sub-block.
    opened, stored : (2, n_rows) float32
        What `Format.open` returned; scale and minimum as the file stores them.
    gradient : (n, n_rows) float32
        e H of these columns.
    level : (n, n_rows) float32
        Levels so far.

    Returns
    -------
    level : (n, n_rows) float32
        The new levels.
    stored : (2, n_rows) float32
        Scale and minimum, as the file stores them.
    """
    level = level.copy()
    if form.parts:
        stored, gradient = _refitted(form, h, opened, stored, gradient, level)
    scale, minimum = (form.value(opened, part, stored[part]) for part in range(2))
    if isinstance(form.levels, Grid):
        for first in range(0, len(level), form.levels.group):
            group = slice(first, first + form.levels.group)
            level[group], gradient[group.stop :] = form.levels.descend(
                h[first:, first:], scale, gradient[first:], level[group]
            )
        return level, stored
    inv = inverse(scale)
    for k in range(len(level)):
        value = scale * level[k] - minimum
        aim = value + gradient[k] * (np.float32(1) / h[k, k])
        level[k] = form.levels.round((aim + minimum) * inv)
        step = value - (scale * level[k] - minimum)
        gradient[k + 1 :] = fma(h[k, k + 1 :][:, None], step, gradient[k + 1 :])
    return level, stored


def _refitted(
    form: Format, h: Floats, opened: Floats, stored: Floats, gradient: Floats, level: Floats
) -> tuple[Floats, Floats]:
    """Move the scale, and a minimum with it, if what can be stored near the best of both is better.

    Steps x and y lower e H e^T by 2 (slope[0] x + slope[1] y) less
    curvature[0] x^2 + 2 both x y + curvature[1] y^2.

    Parameters
    ----------
    form, h, opened, stored, gradient, level
        As of `_refined`.

    Returns
    -------
    stored : (2, n_rows) float32
        Scale and minimum, as the file stores them.
    gradient : (n, n_rows) float32
        e H of these columns.
    """
    along = [level, np.full_like(level, -1)][: form.parts]
    moved = [np.zeros_like(level) for _ in along]
    slope, curvature = (np.zeros((len(along), level.shape[1]), np.float32) for _ in range(2))
    both = np.zeros_like(level[0])
    for part in range(form.parts):
        for j in range(len(level)):
            moved[part] = fma(h[j][:, None], along[part][j], moved[part])
        for k in range(len(level)):
            slope[part] = fma(along[part][k], gradient[k], slope[part])
            curvature[part] = fma(along[part][k], moved[part][k], curvature[part])
            if part == 1:
                both = fma(along[0][k], moved[1][k], both)

    def taken(part: int, wanted: Floats) -> tuple[Floats, Floats]:
        value = form.value(opened, part, stored[part])
        nearest = form.representable(opened, part, value + wanted)
        return nearest, form.value(opened, part, nearest) - value

    wanted = slope[0] * inverse(curvature[0])
    if form.parts == 2:
        determinant = curvature[0] * curvature[1] - both * both
        together = (curvature[1] * slope[0] - both * slope[1]) * inverse(determinant)
        wanted = np.where(determinant > 0, together, wanted)
    taking = [taken(0, wanted)]
    scale = taking[0][1]
    falls = scale * (2 * slope[0] - scale * curvature[0])
    if form.parts == 2:
        taking.append(taken(1, (slope[1] - both * scale) * inverse(curvature[1])))
        minimum = taking[1][1]
        falls = falls + minimum * (2 * slope[1] - minimum * curvature[1]) - 2 * both * scale * minimum
    stored = stored.copy()
    for part, (nearest, step) in enumerate(taking):
        stored[part] = np.where(falls > 0, nearest, stored[part])
        gradient = fma(-np.where(falls > 0, step, np.float32(0)), moved[part], gradient)
    return stored, gradient
