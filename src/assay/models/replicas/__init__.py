"""Data parallelism: one `Model` in front of N copies of a local model, as Ray actors, on one machine or many.

    model            the `Model` that the engine uses
    dispatcher       assigns requests to replicas; independent of Ray
    request_batches  requests that are sent to a replica together, and how they are split and retried
    serialization    requests, media and outcomes as bytes
    worker           one replica, in its own process
    actors           replicas as Ray actors
    cluster          the connection to Ray, or a local Ray cluster
    token_check      asks a cluster whether it accepts the token
    cleanup_process  ends the processes of a local Ray cluster when the driver dies
    resources        CPUs, GPUs and memory of a replica
    worker_pool      worker processes for other work: scoring with task code

No other package depends on replicas being processes.
"""

from assay.models.replicas.cluster import Cluster, require_ray
from assay.models.replicas.model import ReplicaConfig, ReplicatedModel
from assay.models.replicas.resources import count_cpus
from assay.models.replicas.worker_pool import WorkerPool

__all__ = ["Cluster", "ReplicaConfig", "ReplicatedModel", "WorkerPool", "count_cpus", "require_ray"]
