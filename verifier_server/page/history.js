// What was heard of the verifier in the last minute, in steps of time. Times are milliseconds on the page's clock.

const STEP = 500;
export const STEPS = 120;
const EMPTY = { committed: 0, judged: 0, accepted: 0, busy: 0, waited: 0, waiting: 0, sessions: 0, cached: 0 };

export class History {
  constructor(now) {
    this.begin(now);
  }

  // Begin anew, as after a break.
  begin(now) {
    this.began = now;
    this.last = Math.floor(now / STEP);
    this.steps = new Map(); // by number
    this.offset = Infinity; // from the engine's clock to the page's
    this.levels = {};
  }

  step(number) {
    if (!this.steps.has(number)) this.steps.set(number, { ...EMPTY, ...this.levels });
    return this.steps.get(number);
  }

  // Note how full the verifier is: it stays so until the next time.
  level(now, levels) {
    this.move(now);
    this.levels = levels;
    Object.assign(this.step(this.last), levels);
  }

  // Count passes, which ended in this order.
  passes(now, passes) {
    this.move(now);
    for (const each of passes) this.offset = Math.min(this.offset, now - each.ended_ms);
    for (const each of passes) {
      const ended = each.ended_ms + this.offset;
      const step = this.step(Math.max(this.last - STEPS, Math.floor(ended / STEP)));
      for (const name of ["committed", "judged", "accepted"]) step[name] += each[name];
      step.waited = Math.max(step.waited, each.queue_ms);
      const begin = Math.max(ended - each.took_ms, (this.last - STEPS) * STEP);
      for (let number = Math.floor(begin / STEP); number * STEP < ended; number += 1) {
        this.step(number).busy += Math.min(ended, (number + 1) * STEP) - Math.max(begin, number * STEP);
      }
    }
  }

  // Let time go on.
  move(now) {
    for (const end = Math.floor(now / STEP); this.last < end; ) this.step((this.last += 1));
    for (const number of this.steps.keys()) if (number < this.last - STEPS) this.steps.delete(number);
  }

  // The last minute up to the step before the present one, which is not over, as `value` of each step.
  series(value) {
    return Array.from({ length: STEPS }, (_, at) => {
      const step = this.steps.get(this.last - STEPS + at);
      return step === undefined ? null : value(step);
    });
  }

  // The sum of a field over the last `seconds`, and how many seconds these are, less where it has just begun.
  over(seconds, name) {
    const count = Math.max(1, Math.min((1000 * seconds) / STEP, this.last - Math.floor(this.began / STEP)));
    let sum = 0;
    for (let back = 1; back <= count; back += 1) sum += this.steps.get(this.last - back)?.[name] ?? 0;
    return [sum, (count * STEP) / 1000];
  }

  most(seconds, name) {
    let most = 0;
    for (let back = 0; back <= (1000 * seconds) / STEP; back += 1) most = Math.max(most, this.steps.get(this.last - back)?.[name] ?? 0);
    return most;
  }
}

export const PER_SECOND = 1000 / STEP;
