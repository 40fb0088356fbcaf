"""Data parallelism: one `Model` in front of N copies of a local model, as Ray actors, on one machine or many.

    portions   what is handed to a replica, and what becomes of it when that dies
    fleet      who answers what; knows nothing of Ray
    wire       requests and media on their way, outcomes on theirs
    worker     one replica, in its own process
    actors     replicas as Ray actors
    cluster    the Ray they run on
    resources  what a replica takes of its machine
    model      what the engine sees

No other package knows that replicas exist.
"""

from assay.models.replicas.model import ReplicatedModel, Wishes

__all__ = ["ReplicatedModel", "Wishes"]
