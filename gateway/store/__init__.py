"""Durable storage of one node: journal, spool of Parquet files, checkpoints.

In come events; out goes what is synced, as files that Spark reads. Protocols see none
of it, and nothing here imports Spark.

    storage      all of it, as the daemon runs it
    opening      recovery at a start, step by step
    checkpoint   what protocols remember beside their events
    directories  of a data_dir, by what they hold
    names        of spool files
    lsns         sets of lsns
    digests      of payloads and of files: the chain
    finder       which file holds an event

Rooms:

    journal  the write-ahead log
    spool    Parquet files for Spark
    node     one node's past: incarnations, marks
    objects  object storage
    hub      files of other gateways
    readers  what the Spark job, the audit and consumers say
    system   the disk, threads, locks and clocks
"""
