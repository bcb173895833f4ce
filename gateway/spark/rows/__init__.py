"""Columns of the tables: what an event becomes.

In come rows of the spool; out come rows of the tables. Nothing here commits.

    tables      which columns the tables have
    columns     columns that are taken out of the JSON or the channel
    fields      values by their paths, by `Fields.java` and the Java beside it
    times       instants that senders write, as timestamps
    suggestion  columns that there might be, by events that came
    stats       counts per window, of the files of a batch
"""
