"""Durable storage: the journal, the spool of Parquet files, checkpoints, the disk."""
