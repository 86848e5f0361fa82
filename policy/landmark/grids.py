#!/usr/bin/env python3
"""Computes the code grids of policy/landmark: `python3 grids.py > grids.h`. Needs NumPy; minutes.

Each grid is the best set of 16 points for a standard Gaussian of 1, 2 or 4 dims that Lloyd's
iteration (S. Lloyd, "Least squares quantization in PCM", 1982; in more dims Y. Linde, A. Buzo,
R. Gray, 1980) finds from several seeded starts. Points are then rounded to int8 multiples of a
step, since kernels multiply them as bytes; the errors printed are those of the rounded points, a
dim.
"""

import numpy as np

POINTS = 16
LARGEST = 63  # so that 255 * 63 * 2 fits an int16: kernels add products of two tokens in one
STARTS = 24
ROUNDS = 400


def lattice(dims: int) -> tuple[np.ndarray, np.ndarray]:
    """Sample points and their weights: a fine lattice under the Gaussian density."""
    reach, steps = {1: (7.0, 28001), 2: (5.5, 441), 4: (4.6, 24)}[dims]
    side = np.linspace(-reach, reach, steps)
    axes = np.meshgrid(*[side] * dims, indexing="ij")
    points = np.stack([axis.ravel() for axis in axes], axis=1)
    weights = np.exp(-0.5 * (points**2).sum(axis=1))
    keep = weights > weights.max() * 1e-7
    return points[keep], weights[keep] / weights[keep].sum()


def nearest(points: np.ndarray, grid: np.ndarray) -> np.ndarray:
    return np.argmin((grid**2).sum(axis=1)[None, :] - 2 * points @ grid.T, axis=1)


def error(points: np.ndarray, weights: np.ndarray, grid: np.ndarray) -> float:
    """Mean square error a dim."""
    gap = points - grid[nearest(points, grid)]
    return float((weights * (gap**2).sum(axis=1)).sum() / points.shape[1])


def lloyd(points: np.ndarray, weights: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    grid = rng.normal(size=(POINTS, points.shape[1]))
    for _ in range(ROUNDS):
        owner = nearest(points, grid)
        mass = np.bincount(owner, weights, POINTS)
        columns = [np.bincount(owner, weights * column, POINTS) for column in points.T]
        means = np.stack(columns, axis=1) / np.maximum(mass, 1e-12)[:, None]
        fresh = np.where(mass[:, None] > 1e-9, means, rng.normal(size=grid.shape))
        if np.abs(fresh - grid).max() < 1e-7:
            break
        grid = fresh
    return grid


def best(dims: int) -> tuple[np.ndarray, float, float]:
    """The rounded grid as integers, its step, and its error a dim."""
    points, weights = lattice(dims)
    rng = np.random.default_rng(20240408 + dims)
    grids = [lloyd(points, weights, rng) for _ in range(STARTS if dims < 4 else STARTS // 2)]
    grid = min(grids, key=lambda g: error(points, weights, g))
    step = float(np.abs(grid).max() / LARGEST)
    whole = np.rint(grid / step).astype(int)
    whole = whole[np.lexsort(whole.T[::-1])]
    return whole, step, error(points, weights, whole * step)


def main() -> None:
    print("// Code grids: 16 points a nibble, as int8 multiples of a step (grids.py).")
    print("// Errors are mean squares a dim for a standard Gaussian; the best scalar codes: 0.3634")
    print("// and 0.1175 at 1 and 2 bits.")
    print("#ifndef CAIRN_LANDMARK_GRIDS_H\n#define CAIRN_LANDMARK_GRIDS_H\n\n#include <stdint.h>\n")
    for dims, bits in ((4, 1), (2, 2), (1, 4)):
        whole, step, mse = best(dims)
        bit, dim = "bit" if bits == 1 else "bits", "dim" if dims == 1 else "dims"
        print(f"// {bits} {bit} an element: {dims} {dim} a nibble, error {mse:.5f}.")
        print(f"#define CAIRN_GRID_{bits}_STEP  {step:.8e}f")
        print(f"#define CAIRN_GRID_{bits}_ERROR {mse:.5f}f")
        print(f"static const int8_t CAIRN_GRID_{bits}_POINTS[{POINTS} * {dims}] = {{")
        for i in range(0, POINTS, 4):
            four = [", ".join(str(v) for v in point) + "," for point in whole[i : i + 4]]
            print("    " + " ".join(four))
        print("};\n")
    print("#endif")


if __name__ == "__main__":
    main()
