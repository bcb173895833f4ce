"""The streaming query while it runs, and what goes on around it.

In comes a configuration; out go committed batches, figures and the reason of an end.
Nothing here writes a row.

    running       the query, its restarts and its end
    query         the streaming query and its checkpoint, which is renewed
    checkpoint    what Spark has promised and committed, read from its own logs
    housekeeping  what is done for the tables beside the batches
    background    background tasks, each on a thread of its own
    orders        deletions that are ordered while it runs
    auditing      audits that run beside it by themselves
    accepting     accepted holes on their way into the ledger
    nodes         whose files it meets, and how one that left is forgotten
    failure       why the job can not go on
    causes        the cause, out of what Java and Spark said
    health        what the job knows of itself, for the daemon
    progress      the lines that it prints
    admin         its health and metrics over HTTP
"""
