"""Durable storage of one node: journal, spool of Parquet files, checkpoints.

storage     all of it, as the daemon runs it
opening     recovery at a start
journal     the write-ahead log
spool       Parquet files for Spark
checkpoint  what protocols remember beside their events
finder      which file holds an event
directories, disk, lock
"""
