import { all, any, type Expression, NEVER, NOTHING, oneOf, optional, repeat, type Rules, text } from '../notation.js';

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
      oneOf([
        [0x45, 0x45],
        [0x65, 0x65],
      ]),
      any(
        all(optional(text('+')), any(digits(1, 2), all(digit(1, 2), digits(2, 2)), all(text('30'), digit(0, 7)))),
        all(MINUS, any(digits(1, 2), all(digit(1, 2), digits(2, 2)), all(text('3'), digit(0, 2), DIGIT))),
      ),
    ),
  ),
);

/** Not whole, also as a float64. */
export const ANY_FRACTION = all(
  optional(MINUS),
  any(digit(0, 9), all(digit(1, 9), digits(1, 8))),
  text('.'),
  digits(0, 5),
  digit(1, 9),
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

/** What a number lies between whose beginning is theirs so far. */
type Ends = readonly [low: Decimal | undefined, high: Decimal | undefined];

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
    options.push(wholePart(length, 0, [low, high], fractions));
  }
  return any(...options.filter((option) => option !== NEVER));
}

/** Digits of the whole part from `at` on. */
function wholePart(length: number, at: number, ends: Ends, fractions: boolean): Expression {
  if (at === length) {
    const stops = mayStop(0, ends) ? [NOTHING] : [];
    return any(...stops, ...(fractions ? [all(text('.'), fraction(0, ends))] : []));
  }
  const digitOf = ({ whole }: Decimal): number => Number(whole[at]);
  const least = at === 0 && length > 1 ? 1 : 0;
  return steps(least, ends, digitOf, (next) => wholePart(length, at + 1, next, fractions));
}

type Rest = (ends: Ends) => Expression;

/** A digit from `least` on, and what comes behind it: other things where it is an end's own. */
function steps(least: number, [low, high]: Ends, digitOf: (of: Decimal) => number, rest: Rest): Expression {
  const options: Expression[] = [];
  const [below, above] = [low && digitOf(low), high && digitOf(high)];
  let first = Math.max(least, below ?? 0);
  let last = above ?? 9;
  if (first > last) return NEVER;
  if (first === below) {
    options.push(all(digit(first, first), rest([low, first === above ? high : undefined])));
    first++;
  }
  if (last === above && last >= first) {
    options.push(all(digit(last, last), rest([undefined, high])));
    last--;
  }
  if (first <= last) options.push(all(digit(first, last), rest([undefined, undefined])));
  return any(...options);
}

const zerosFrom = ({ fraction: of }: Decimal, at: number): boolean => /^0*$/.test(of.slice(at));

const mayStop = (at: number, [low, high]: Ends): boolean =>
  (!low || (zerosFrom(low, at) && !low.exclusive)) && (!high || !high.exclusive || !zerosFrom(high, at));

/** Digits behind the point from `at` on; at least one in all. */
function fraction(at: number, ends: Ends): Expression {
  const room = FRACTION_DIGITS - at;
  if (room <= 0) return mayStop(at, ends) ? NOTHING : NEVER;
  if (!ends[0] && !ends[1]) return digits(at === 0 ? 1 : 0, room);
  const stop = at > 0 && mayStop(at, ends) ? [NOTHING] : [];
  const digitOf = (of: Decimal): number => Number(of.fraction[at] ?? 0);
  return any(
    ...stop,
    steps(0, ends, digitOf, (next) => fraction(at + 1, next)),
  );
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
export function multiplesOf(step: number, rules: Rules): Expression {
  const state = (remainder: number, left: number): Expression =>
    rules.rule(`multiple ${step} ${remainder} ${left}`, () => {
      const options: Expression[] = remainder === 0 ? [NOTHING] : [];
      for (let next = 0; next <= 9 && left > 0; next++) {
        options.push(all(digit(next, next), state((remainder * 10 + next) % step, left - 1)));
      }
      return any(...options);
    });
  const starts = Array.from({ length: 9 }, (_, i) => all(digit(i + 1, i + 1), state((i + 1) % step, 14)));
  return all(optional(MINUS), any(text('0'), ...starts));
}
