"""The Spark job: Parquet files of the spool in, tables of the lake out, exactly once.

    source       the stream of a spool directory, for any job
    tables       which columns the tables have
    sinks        how a micro-batch becomes files of a table, once (adr/0002)
    checkpoint   what Spark has promised and committed, read from its own logs
    ledger       what the sink has committed, by lsn
    cleaner      takes committed files out of the spool
    session      Spark with the settings that this needs
    java         where Java is, and what to do where there is none
    job          all of it together: `gateway spark`, or `spark-submit job.py`

Nothing here imports Twisted.
"""
