"""`gateway run`: the daemon and the Spark job, kept running by one process.

child      the first steps of a process that is kept: it ends with its parent
kept       one of them, which is started again whenever it ends
log        one log of all, and on a terminal a line that says how they are
together   all of them, from the first start to ^C
"""
