"""The Spark job: Parquet files of the spool in, tables of the lake out, exactly once.

The job itself:

    job          its program: `gateway spark`, or `spark-submit job.py`
    running      the query and what goes on around it
    obstacles    files on which a batch fails, out of its way
    housekeeping what is done for the tables beside the batches
    chore        … each on a thread of its own
    failure      that it can not go on, and why
    causes       the cause, out of what Java and Spark said
    orders       deletions that are ordered while it runs
    beside       a query of one's own in its session
    health       what it knows of itself, for the daemon
    progress     what it says
    admin        its health and metrics over HTTP
    auditing     audits that run beside it by themselves
    accepting    holes that somebody has accepted, on their way into the ledger
    nodes        whose files it meets, and how one that left is forgotten

What it reads:

    source       the stream of a spool directory, for any job
    consumer     all events for a query of one's own
    inbox        copies of the files of a spool in a bucket
    s3a          how a job of one's own, or a cluster's task, reads one that is in a bucket
    footers      what files say of their rows
    alike        batches whose rows belong into one folder
    known_files  rows of files that nobody has to look for
    heap         settings by the size of rows, and files that are too large
    poison       moves files that can not be read aside
    overlaps     compares files whose events have names that the tables have
    requeue      puts events through again that were set aside
    cleaner      takes committed files out of the spool

What it makes of that:

    tables       which columns the tables have
    suggestion   … those that there might be, by events that came
    columns      those that are taken out of the JSON or the channel
    fields       … by their paths
    times        instants that senders write, as timestamps
    stats        counts per window, of the files of a batch
    trial        rows of files that no job takes, for `gateway test`

How that gets into the tables, once:

    query        the streaming query and its checkpoint, which is renewed
    checkpoint   what Spark has promised and committed, read from its own logs
    sink         what the job asks of whatever takes its micro-batches
    one_sink     whose tables a data_dir has
    ledger       what the sink has committed, by lsn
    closing      … of incarnations that have ended, in files of their own
    taken        … and which file of each name that was
    places       tells events that their sender sent twice
    parquet      a micro-batch becomes files of tables, once (adr/0002)
    formats      what table formats have in common: jars, the Spark that fits them
    commits      a micro-batch becomes a commit of a table format (adr/0019)
    shared       … of tables that several jobs write
    handover     a micro-batch goes to a function of the user's own
    reading      which files of a table belong to whole batches

What becomes of rows later:

    compact      rewrites the files of days that are over
    upkeep       maintains tables of formats
    adopt        takes the rows of Parquet folders into a table of a format
    backfill     makes columns of rows that are there already
    expiry       removes days that are too old
    deletion     deletes events on purpose
    erasure      … wherever they are
    blot         … in files of the gateway's own form
    gone         what was taken out, so that it does not come back
    partition    gives a day's folder to another one in one step
    lakedisk     the file system below the tables

Spark and its Java:

    session      Spark with the settings that this needs
    classes      an archive that lets Spark start quickly
    recording    makes that
    java         where Java is, and what to do where there is none

Nothing here imports Twisted.
"""
