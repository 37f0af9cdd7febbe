"""The configurations that are compared, each with how many times as slow as it stands it is run.

The more processes, the slower: all of them together must use less than half of the machine.
"""

SEEN = {
    "one_remote": 2.0,
    "eight_lockstep": 4.0,
    "eight_remote": 4.0,
    "three_target": 4.0,
    "thirty_two_remote": 5.0,
    "four_far": 3.0,
}
# Written down before the first comparison, and run when all else was done.
HELD_OUT = {
    "held_out_lockstep": 8.0,
    "held_out_slots": 8.0,
    "held_out_target": 4.0,
    "held_out_prompts": 4.0,
    "held_out_mixed": 6.0,
}
CASES = SEEN | HELD_OUT
