"""The file of a fleet that is simulated in a moment, for tests of what is made of several runs."""

SMALL_FLEET = """\
sim_time_ms: 300
mode: lockstep
gamma: 4
devices:
  verifiers:
    - {name: big, cost: {law: linear, decode_ms: 5}}
  drafters:
    - {name: laptop, count: 3, cost: {law: linear, decode_ms: 1}, agreement: 0.8}
workload: {arrival: deterministic, rate_rps: 20, prompt_tokens: 8, output_tokens: 6}
slo: {ttft_ms: 100}
"""
