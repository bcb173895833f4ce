"""A batch becomes rows of tables, once.

In come a batch and its number; out goes one commit, and the ledger that names it.
Nothing here reads a spool file twice.

    sink       what the job asks of that which takes its micro-batches
    one_sink   whose tables a data_dir has
    ledger     what the sink has committed, by lsn
    closing    ledgers of incarnations that have ended, in files of their own
    taken      which file of each name was committed
    fingerprints  tells events that their sender sent twice, by where they came from
    parquet    a micro-batch becomes files of tables (adr/0002)
    prepared   batches of one folder, by one plan and a writer of ours (adr/0047, 0048)
    formats    what table formats have in common: jars, the Spark that fits them
    commits    a micro-batch becomes a commit of a table format (adr/0019)
    divided    tables by rule of a format, as one table
    handover   a micro-batch goes to a function of the user's own
    shared     tables that several jobs write
    partition  gives a day's folder to another one in one step
    lakedisk   the file system below the tables
"""
