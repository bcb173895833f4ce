"""Java and the Spark session in it.

In come settings; out comes a session. Nothing here knows a table.

    session           Spark with the settings that this needs
    java              where Java is, and what to do where there is none
    classes           an archive that lets Spark start quickly
    recording         makes that archive
    compiled          classes of our own
    checkpoint_files  files of a checkpoint, by one of these
"""
