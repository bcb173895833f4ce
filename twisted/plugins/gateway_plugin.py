"""`twistd gateway`: imported for every `twistd --help`, so it imports nothing."""

from twisted.application.service import ServiceMaker

gateway = ServiceMaker(
    "gateway",
    "gateway.daemon.start",
    "Takes events in several wire protocols, acknowledges what is on disk, "
    "hands Parquet to Spark.",
    "gateway",
)
