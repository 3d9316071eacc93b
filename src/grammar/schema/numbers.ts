import { all, any, type Expression, NEVER, NOTHING, oneOf, optional, repeat, text } from '../notation.js';

/** Digits before the point, and behind it, that a number has at most: JSON.stringify writes no more. */
const [WHOLE_DIGITS, FRACTION_DIGITS] = [21, 24];

const digit = (first: number, last: number): Expression =>
  first > last ? NEVER : first === last ? text(`${first}`) : oneOf([[0x30 + first, 0x30 + last]]);
const DIGIT = digit(0, 9);
const digits = (least: number, most: number): Expression => repeat(DIGIT, least, most);
const MINUS = text('-');

const WHOLE = any(text('0'), all(digit(1, 9), digits(0, WHOLE_DIGITS - 1)));
const FRACTION = all(text('.'), digits(1, FRACTION_DIGITS));

export const ANY_INTEGER = all(optional(MINUS), WHOLE);
/** Within what a float64 holds. */
export const ANY_NUMBER = all(
  optional(MINUS),
  any(
    all(WHOLE, optional(FRACTION)),
    all(
      digit(0, 9),
      optional(FRACTION),
      oneOf([[0x45, 0x45], [0x65, 0x65]]), // prettier-ignore
      any(
        all(optional(text('+')), any(digits(1, 2), all(digit(1, 2), digits(2, 2)), all(text('30'), digit(0, 7)))),
        all(MINUS, any(digits(1, 2), all(digit(1, 2), digits(2, 2)), all(text('3'), digit(0, 2), DIGIT))),
      ),
    ),
  ),
);

/** An end of a range. */
export interface Bound {
  readonly value: number;
  readonly exclusive: boolean;
}

interface Decimal {
  readonly whole: string;
  readonly fraction: string;
  readonly exclusive: boolean;
}

/** Numbers without an exponent from `low` to `high`. @param fractions false: integers alone */
export function numbersBetween(low: Bound | undefined, high: Bound | undefined, fractions = true): Expression {
  const from = low && low.value > -1e21 ? low : undefined;
  const to = high && high.value < 1e21 ? high : undefined;
  if ((from && from.value >= 1e21) || (to && to.value <= -1e21)) return NEVER;
  const negated = (bound: Bound | undefined): Bound | undefined => bound && { ...bound, value: -bound.value };
  return any(positive(from, to, fractions), all(MINUS, positive(negated(to), negated(from), fractions)));
}

/** Integers from `low` to `high`, both included. */
export function integersBetween(low: number, high: number): Expression {
  if (low > high) return NEVER;
  return numbersBetween({ value: low, exclusive: false }, { value: high, exclusive: false }, false);
}

/** Of the numbers from 0 on, without a sign. */
function positive(low: Bound | undefined, high: Bound | undefined, fractions: boolean): Expression {
  if (high && (high.value < 0 || (high.value === 0 && high.exclusive))) return NEVER;
  const from = low && (low.value > 0 || (low.value === 0 && low.exclusive)) ? decimal(low) : undefined;
  const to = high && decimal(high);
  const longest = to?.whole.length ?? WHOLE_DIGITS;
  const options: Expression[] = [];
  for (let length = from?.whole.length ?? 1; length <= longest; length++) {
    const low = from?.whole.length === length ? from : undefined;
    const high = to?.whole.length === length ? to : undefined;
    if (!low && !high && length > 1 && !to) {
      // All longer ones as well.
      options.push(all(digit(1, 9), digits(length - 1, longest - 1), fractions ? optional(FRACTION) : NOTHING));
      break;
    }
    options.push(wholePart(length, 0, low, high, fractions));
  }
  return any(...options.filter((option) => option !== NEVER));
}

/** Digits of the whole part from `at` on. `low`, `high`: so far the number is the bound's beginning. */
function wholePart(
  length: number,
  at: number,
  low: Decimal | undefined,
  high: Decimal | undefined,
  fractions: boolean,
): Expression {
  if (at === length) {
    const stops = mayStop(0, low, high) ? [NOTHING] : [];
    return any(...stops, ...(fractions ? [all(text('.'), fraction(0, low, high))] : []));
  }
  const least = at === 0 && length > 1 ? 1 : 0;
  const from = Math.max(least, low ? Number(low.whole[at]) : 0);
  const to = high ? Number(high.whole[at]) : 9;
  return steps(from, to, low && Number(low.whole[at]), high && Number(high.whole[at]), (isLow, isHigh) =>
    wholePart(length, at + 1, isLow ? low : undefined, isHigh ? high : undefined, fractions),
  );
}

/** A digit from `from` to `to`, and what comes behind it: other things where it is the bounds' own. */
function steps(
  from: number,
  to: number,
  low: number | undefined,
  high: number | undefined,
  rest: (isLow: boolean, isHigh: boolean) => Expression,
): Expression {
  const options: Expression[] = [];
  let first = from;
  let last = to;
  if (first > last) return NEVER;
  if (first === low) {
    options.push(all(digit(first, first), rest(true, first === high)));
    first++;
  }
  if (last === high && last >= first) {
    options.push(all(digit(last, last), rest(false, true)));
    last--;
  }
  if (first <= last) options.push(all(digit(first, last), rest(false, false)));
  return any(...options);
}

const zerosFrom = ({ fraction: of }: Decimal, at: number): boolean => /^0*$/.test(of.slice(at));

const mayStop = (at: number, low: Decimal | undefined, high: Decimal | undefined): boolean =>
  (!low || (zerosFrom(low, at) && !low.exclusive)) && (!high || !high.exclusive || !zerosFrom(high, at));

/** Digits behind the point from `at` on; at least one in all. */
function fraction(at: number, low: Decimal | undefined, high: Decimal | undefined): Expression {
  const room = FRACTION_DIGITS - at;
  if (room <= 0) return mayStop(at, low, high) ? NOTHING : NEVER;
  if (!low && !high) return digits(at === 0 ? 1 : 0, room);
  const stop = at > 0 && mayStop(at, low, high) ? [NOTHING] : [];
  const [below, above] = [low && Number(low.fraction[at] ?? 0), high && Number(high.fraction[at] ?? 0)];
  const next = steps(below ?? 0, above ?? 9, below, above, (isLow, isHigh) =>
    fraction(at + 1, isLow ? low : undefined, isHigh ? high : undefined),
  );
  return any(...stop, next);
}

/** Written out: without an exponent. */
function decimal({ value, exclusive }: Bound): Decimal {
  const [, whole = '0', fraction = '', exponent = '0'] = /^(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(
    `${Math.abs(value)}`,
  )!;
  const shift = Number(exponent);
  if (shift >= 0) {
    const rest = fraction.padEnd(shift, '0');
    return {
      whole: `${whole}${rest.slice(0, shift)}`.replace(/^0+(?=\d)/, ''),
      fraction: rest.slice(shift),
      exclusive,
    };
  }
  return { whole: '0', fraction: `${'0'.repeat(-shift - whole.length)}${whole}${fraction}`, exclusive };
}

/** Multiples of a whole number, by their remainder so far: at most 15 digits, which float64 has exactly. */
export function multiplesOf(step: number, rule: (key: string, make: () => Expression) => Expression): Expression {
  const state = (remainder: number, left: number): Expression =>
    rule(`multiple ${step} ${remainder} ${left}`, () => {
      const options: Expression[] = remainder === 0 ? [NOTHING] : [];
      for (let next = 0; next <= 9 && left > 0; next++) {
        options.push(all(digit(next, next), state((remainder * 10 + next) % step, left - 1)));
      }
      return any(...options);
    });
  const starts = Array.from({ length: 9 }, (_, i) => all(digit(i + 1, i + 1), state((i + 1) % step, 14)));
  return all(optional(MINUS), any(text('0'), ...starts));
}
