"""One node's past: which start of the daemon gave an lsn, and what a directory still has.

In comes what a start finds in its `data_dir`; out go the records of incarnations.
Nothing here asks a bucket, a hub or a table where to begin.

    catalog        all that a node keeps beside its segments, one typed line each
    mark           how far a node had come, for when the journal ends too early
    incarnation    which start of a daemon gave an lsn
    lineage        what a start knows of those before it
    lives          all incarnations of a node: who goes on from whom, where each ended
    through        up to which moment a gateway has told all
    orphans        what nodes with another name left
    offering       hands over what lies in a directory without a daemon
    owners         whose files are ours in directories that gateways share
    expired        which files have left the archive for good
    holes          which lsns a disk did not give back: no file has them
    removal_clock  the clock by which old files are removed
"""
