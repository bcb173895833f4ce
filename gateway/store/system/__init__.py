"""The operating system, as the store uses it: files, threads, locks, clocks, memory.

A simulation has its own of each. Nothing here knows an event.

    machine    the disk, the clocks and the threads, together
    disk       files of the operating system
    room       bytes of the disk that are spoken for
    lock       held by the process that has a directory
    threads    on which journal and spool run
    statefile  a file of one line, replaced as a whole
    bursts     gives the system back the memory that a burst took
    shared     a value that one thread changes and others look through
    silence    for how long a process of ours got nowhere
"""
