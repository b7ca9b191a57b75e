"""The official scores as pure functions: what is true and what was guessed in, a number out (ALBERT
§4.2, A.3).
 Each is written over weighted sums. With weights of one it is the score itself; a bootstrap's
weights say how often each example was drawn, and a row of weights gives a score each, so that a
thousand resamples are a few matrix products. 0/0 is NaN here, for "not defined"; score() says 0
then, as scikit-learn does, and tables leave it out.
"""

import numpy as np
from jaxtyping import Float

Weights = Float[np.ndarray, "samples examples"]
"""How often each example counts, one row for each score."""
Scores = Float[np.ndarray, " samples"]


def divide(above: np.ndarray, below: np.ndarray) -> np.ndarray:
    """above / below; NaN where below is 0."""
    undefined = np.full(np.broadcast(above, below).shape, np.nan)
    return np.asarray(np.divide(above, below, out=undefined, where=below != 0))


def mean(values: Float[np.ndarray, " examples"], weights: Weights) -> Scores:
    """The weighted mean of a number of each example."""
    return divide(weights @ values, weights.sum(1))
