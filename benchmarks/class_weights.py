"""F1 of a rare label with the class weights of `recovery.class_weights`, on simulated rows: docs/guides/training.md."""

from __future__ import annotations

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import f1_score

FEATURES, TEST_ROWS, SEEDS = 30, 20_000, 5
TASKS = {"hard": 1.5, "medium": 2.5, "easy": 4.0}  # distance of the classes in the one feature that tells them apart
POWERS = {"none": 0.0, "square_root": 0.5, "balanced": 1.0}  # of the inverse share of a label


def draw(random: np.random.Generator, rows: int, share: float, distance: float) -> tuple[np.ndarray, np.ndarray]:
    labels = (random.random(rows) < share).astype(int)
    features = random.normal(size=(rows, FEATURES))
    features[:, 0] += distance * labels
    return features, labels


def measure(rows: int, share: float, distance: float, power: float, seed: int) -> float:
    random = np.random.default_rng(seed)
    train, test = draw(random, rows, share, distance), draw(random, TEST_ROWS, share, distance)
    weights = {0: 1.0, 1: ((1 - share) / share) ** power}
    return float(f1_score(test[1], LogisticRegression(class_weight=weights, max_iter=300).fit(*train).predict(test[0])))


def main() -> None:
    print("share   rows  task   " + "  ".join(f"{name:>11}" for name in POWERS))
    for share in (0.01, 0.05):
        for rows in (2000, 20_000):
            for task, distance in TASKS.items():
                means = [np.mean([measure(rows, share, distance, p, s) for s in range(SEEDS)]) for p in POWERS.values()]
                print(f"{share:5.0%} {rows:6}  {task:6} " + "  ".join(f"{mean:11.2f}" for mean in means))


if __name__ == "__main__":
    main()
