// From values to places on the screen and back, and the round values between.

class Scale {
  constructor(low, high, start, end, log = false) {
    this.log = log;
    const [a, b] = [this.bent(low), this.bent(high)];
    this.low = low;
    this.high = high;
    this.start = start;
    this.factor = b > a ? (end - start) / (b - a) : 0;
  }

  bent(value) {
    return this.log ? Math.log10(value) : value;
  }

  place(value) {
    return this.start + (this.bent(value) - this.bent(this.low)) * this.factor;
  }

  value(place) {
    const bent = this.bent(this.low) + (this.factor ? (place - this.start) / this.factor : 0);
    return this.log ? 10 ** bent : bent;
  }

  // About `count` round values; of several decades 1, 2 and 5 times the powers of ten.
  ticks(count) {
    const decades = this.log ? Math.log10(this.high / this.low) : 0;
    if (decades < 1) return evenTicks(this.low, this.high, count);
    const factors = decades > 4 ? [1] : decades > 2 ? [1, 3] : [1, 2, 5];
    const stride = Math.max(1, Math.ceil(decades / count));
    const ticks = [];
    for (let power = Math.floor(Math.log10(this.low)); power <= Math.log10(this.high); power += stride)
      for (const factor of factors) ticks.push(factor * 10 ** power);
    return ticks.filter((tick) => tick >= this.low && tick <= this.high);
  }
}

function evenTicks(low, high, count) {
  if (!(high > low)) return [low];
  const rough = (high - low) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * ([1, 2, 5].find((factor) => factor * power >= rough) ?? 10);
  const ticks = [];
  for (let index = Math.ceil(low / step); index * step <= high + step * 1e-9; index++)
    ticks.push(Number((index * step).toPrecision(12)));
  return ticks;
}
