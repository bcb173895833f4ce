"""A deterministic simulation of the gateway: one process, one thread, one seed.

    scheduler   the threads of a life, and time, which the seed moves
    disk        tears, forgets names, runs full, fails, hangs, rots
    life        one life of the gateway, from its start to a kill, a power cut, a stop
    network     slices, delays, breaks connections
    clients     the real clients of the four protocols, which send again
    senders     hand batches to the journal themselves, some without events
    spark       takes files between any two steps
    judge       what was promised, held against every acknowledgement and every file
    bounds      the limits of memory and disk, at every step
    chain       each file names the one before it; at the end the audit agrees
    admin       status, metrics and SIGHUP at random steps
    settings    how the gateway of a seed is configured
    world       all of it, in the order that the seed chooses

`python -m simulation` runs seeds for a minute; `SEED=…` replays one and prints its history.
"""
