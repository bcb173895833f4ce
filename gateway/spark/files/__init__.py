"""Files of the spool on their way into a batch.

In comes a directory or a bucket; out come files whose rows a batch may take. Nothing
here knows a table's format.

    s3a          how a cluster's task reads a spool that is in a bucket
    footers      what files say of their rows
    known_files  rows of files that need not be looked for
    alike        batches whose rows belong into one folder
    heap         settings by the size of rows, and files that are too large
    overlaps     compares files whose events have names that the tables have
    not_taken    the list of what a batch can not take, and why
    incomplete   batches that fail on some of their files
    poison       moves such files aside
    cleaner      takes committed files out of the spool
    trial        rows of files that no job takes, for `gateway test`
"""
