// What the data of a run say, made ready for drawing: pure functions.

import { spans } from "./lanes.js";

// The rounds of a run as objects, one for each verify request. `round`: its number, from 1.
export function roundsOf(run) {
  const names = Object.keys(run.rounds);
  return run.rounds.round.map((_, at) => Object.fromEntries(names.map((name) => [name, run.rounds[name][at]])));
}

// All spans of a run, in the order of their begin. Draft steps were recorded one by one; rounds without an answer have none.
export function spansOf(run, rounds) {
  const { prefills, steps, self_continuation_passes: alone } = run;
  const asked = prefills.sent_ms.map((sent_ms, at) => ({
    sent_ms,
    arrived_ms: prefills.arrived_ms[at],
    queue_ms: prefills.queue_ms[at],
    forward_ms: prefills.forward_ms[at],
  }));
  const answered = rounds.filter((each) => each.arrived_ms !== null);
  return [
    ...[...asked, ...answered].flatMap((each) => spans({ ...each, drafting_ms: 0 })),
    ...steps.began_ms.map((began, at) => ["drafting", began, steps.ended_ms[at]]),
    ...alone.arrived_ms.map((arrived, at) => ["pass", arrived - alone.forward_ms[at], arrived]),
  ].sort((one, other) => one[1] - other[1]);
}

// When the run ended, in milliseconds since it began: no span and no token is later.
export function endOf(run, all) {
  const times = [run.metrics.total_ms ?? 0, ...all.map((each) => each[2]), ...run.tokens.committed_ms];
  return times.reduce((most, each) => Math.max(most, each), 1);
}

// Acceptance rate, tokens a round and tokens a second in equal parts of the run, null where nothing is known.
export function overTime(run, rounds, end, most = 100) {
  const parts = Math.max(1, Math.min(most, Math.floor(run.tokens.committed_ms.length / 8)));
  const sums = Array.from({ length: parts }, () => ({ judged: 0, accepted: 0, rounds: 0, tokens: 0 }));
  const at = (time) => sums[Math.min(parts - 1, Math.max(0, Math.floor((time / end) * parts)))];
  for (const each of rounds) {
    if (!each.ran || each.arrived_ms === null) continue;
    const sum = at(each.arrived_ms);
    sum.judged += each.judged;
    sum.accepted += each.accepted;
    sum.rounds += 1;
  }
  for (const time of run.tokens.committed_ms) at(time).tokens += 1;
  return {
    acceptance: sums.map((each) => (each.judged ? each.accepted / each.judged : null)),
    length: sums.map((each) => (each.rounds ? 1 + each.accepted / each.rounds : null)),
    speed: sums.map((each) => (1000 * each.tokens * parts) / end),
  };
}
