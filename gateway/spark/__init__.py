"""The Spark job: Parquet files of the spool in, tables of the lake out, exactly once.

What other programs import or start:

    job       its program: `gateway spark`, or `spark-submit job.py`
    source    the stream of a spool directory, for any job
    consumer  all events for a query of one's own
    beside    a query of one's own in the job's session
    own       own code on batches: a function of a batch and its context
    reading   which files of a table belong to whole batches

Rooms:

    run     the query while it runs, and what goes on around it
    bucket  copies of a spool that is in a bucket
    files   files of the spool on their way into a batch
    rows    columns of the tables
    commit  a batch becomes rows of tables, once
    later   what becomes of rows that are committed
    jvm     Java and the Spark session in it

Nothing here imports Twisted.
"""
