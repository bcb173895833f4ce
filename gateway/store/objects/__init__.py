"""Object storage: the bucket's requests, and what each incarnation says there of itself.

In come names and bytes; out come objects, listings and named errors. Nothing here
knows what a spool file has inside.

    bucket        the requests, for a real store and for the simulation's
    s3            the same by S3
    node_record   what each incarnation says there of itself
    bucket_looks  a thread that looks there now and then
"""
