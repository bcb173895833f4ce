"""The Spark job: Parquet files of the spool in, tables of the lake out, exactly once.

    source       the stream of a spool directory, for any job
    inbox        copies of the files of a spool in a bucket
    s3a          how a job of one's own, or a cluster's task, reads one that is in a bucket
    known_files  rows of files that nobody has to look for
    tables       which columns the tables have
    columns      those that are taken out of the JSON or the channel
    times        instants that senders write, as timestamps
    stats        counts per window, of the files of a batch
    sink         what the job asks of whatever takes its micro-batches
    sinks        whose tables a data_dir has
    parquet      a micro-batch becomes files of tables, once (adr/0002)
    commits      a micro-batch becomes a commit of a table format (adr/0019)
    formats      what table formats have in common: jars, the Spark that fits them
    handover     a micro-batch goes to a function of the user's own
    query        the streaming query and its checkpoint, which is renewed
    checkpoint   what Spark has promised and committed, read from its own logs
    ledger       what the sink has committed, by lsn
    cleaner      takes committed files out of the spool
    requeue      puts events through again that were set aside
    places       tells events that their sender sent twice
    reading      which files of a table belong to whole batches
    compact      rewrites the files of days that are over
    poison       moves files that can not be read aside
    health       what the job knows of itself, for the daemon
    lakedisk     the file system below the tables
    session      Spark with the settings that this needs
    classes      an archive that lets Spark start quickly
    recording    makes that
    java         where Java is, and what to do where there is none
    job          all of it together: `gateway spark`, or `spark-submit job.py`

Nothing here imports Twisted.
"""
