"""Durable storage of one node: journal, spool of Parquet files, checkpoints.

storage     all of it, as the daemon runs it
opening     recovery at a start, step by step
journal     the write-ahead log
spool       Parquet files for Spark
checkpoint  what protocols remember beside their events
finder      which file holds an event
mark        how far a node had come, for when the journal ends too early
incarnation which copy of a node's journal gave an lsn
lineage     whether somebody else gave lsns of this node
digests     of payloads and of files: the chain
lake        what the Spark job says that the tables have
orphans     what nodes with another name left
claim       which gateway has a node's name in a bucket
word        what the bucket says of that, and whose files come too late
uploading   what has to be known before anything is put there
in_bucket   what the bucket has that a start does not know of
owners      whose files are ours in directories that gateways share
room        of the disk, that is spoken for
names       of spool files
statefile   how a small state is read and written
bursts      gives the system back the memory that a burst took
shared      what one thread changes and others look through
machine     the disk, the clocks and the threads: a simulation has its own
directories, disk, lock, threads
"""
