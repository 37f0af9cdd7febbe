"""What users ask for, and when: conversations by their start, one at a time, from distributions or recorded traces; and
when devices are there. Pure but for the files of traces. Times are in seconds."""
