"""`gateway demo --cluster`: many gateways, one table, on one machine.

    gw-1 ─┐                                   ┌─ worker 1 ─┐
    gw-2 ─┼─► s3://gateway/spool ─► Spark job ┤            ├─► Iceberg, in the same S3 server
    gw-3 ─┘                                   └─ worker 2 ─┘

On the way gw-2 is killed and its disk deleted, and worker 2 is killed.

    needs      what must be installed
    setup      the demo's directory, ports and configurations
    processes  the child processes: S3 server, cluster, gateways, job, senders
    progress   how far each node's events have come
    losses     what is killed, and when
    report     the audit, and the table as a reader without Spark sees it
"""
