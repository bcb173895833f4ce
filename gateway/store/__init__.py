"""Durable storage of one node: journal, spool of Parquet files, checkpoints.

    storage      all of it, as the daemon runs it
    opening      recovery at a start, step by step
    machine      the disk, the clocks and the threads: a simulation has its own
    journal      the write-ahead log
    spool        Parquet files for Spark
    checkpoint   what protocols remember beside their events

Which events there are, and where:

    names        of spool files
    lsns         sets of them
    digests      of payloads and of files: the chain
    finder       which file holds an event
    mark         how far a node had come, for when the journal ends too early
    incarnation  which start of a daemon gave an lsn
    lineage      what a start knows of those before it
    orphans      what nodes with another name left
    offering     hands over what lies in a directory that nobody runs on
    owners       whose files are ours in directories that gateways share

In object storage:

    bucket       what is asked of it
    s3           … by S3
    word         what each incarnation says there of itself
    bucket_looks a thread that looks there now and then

Files of other gateways:

    arrivals     takes them
    archiving    moves files to the archive, none in another one's place
    promised     whether the rows are those that the name promises
    pages        how large their pages are when they are unpacked
    thrift       what their footers would take in memory

What the Spark job, the audit and consumers say:

    lake         what the tables have
    deleted      what was taken out of the tables on purpose
    job_word     how far the job is behind a bucket
    consumers    what jobs of others have read, so that files stay until then
    audited      what the last audit found

What all of these use:

    directories  of a data_dir, by what they hold
    disk         the operating system's
    room         of the disk, that is spoken for
    lock         held by who has a directory
    threads      that journal and spool run on
    statefile    how a small state is read and written
    bursts       gives the system back the memory that a burst took
    shared       what one thread changes and others look through
    removal_clock  by which old things are removed
    silence      for how long a process of ours got nowhere
"""
