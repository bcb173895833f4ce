"""Rows that are committed: compaction, expiry, deletion.

In come days of a table; out come the same days, rewritten in one step. Nothing here
runs inside a batch.

    days      the loop that rewrites days, for all that follow
    compact   rewrites the files of days that are over
    upkeep    maintains tables of formats
    adopt     takes the rows of Parquet folders into a table of a format
    backfill  makes columns of rows that are there already
    requeue   puts events through again that were set aside
    expiry    removes days that are too old
    deletion  deletes events on purpose
    erasure   deletes them wherever they are
    redact    redacts them in files of the gateway's own form
    deleted_ranges  lsns that were deleted on purpose, so that they do not come back
"""
