"""Files of a spool that is in a bucket, on their way to the job, and out of it.

In comes a listing of the bucket; out come copies in a directory, which the job reads as a
spool.  Nothing here knows a batch or a table.

    inbox     looks again and again: takes out what is done, fetches what is new
    listing   the objects of the bucket
    copies    fetches objects, whole or their footers, and mends them
    clearing  takes out objects whose events are in the tables
    missing   tells of events that are in no table and not in the bucket
    endings   how incarnations have ended, by what they say of themselves
    requests  makes many requests at once
"""
