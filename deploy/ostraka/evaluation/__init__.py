"""`ostraka eval`: labelled examples asked of a model, and how right and how honest its probabilities were."""
