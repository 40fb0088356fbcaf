"""Data parallelism: one `Model` in front of N copies of a local model, as Ray actors, on one machine or many.

    portions   what is handed to a replica, and what becomes of it when that dies
    fleet      who answers what; knows nothing of Ray
    wire       requests and media on their way, outcomes on theirs
    worker     one replica, in its own process
    actors     replicas as Ray actors
    cluster    the Ray they run on
    keeper     ends a Ray of our own when its driver is gone
    resources  what a replica takes of its machine
    model      what the engine sees
    pool       processes for other pieces of work: judging with a task's own code

No other package knows that replicas exist.
"""

from assay.models.replicas.cluster import Cluster, require_ray
from assay.models.replicas.model import ReplicatedModel, Wishes
from assay.models.replicas.pool import Pool
from assay.models.replicas.resources import processors_for

__all__ = ["Cluster", "Pool", "ReplicatedModel", "Wishes", "processors_for", "require_ray"]
