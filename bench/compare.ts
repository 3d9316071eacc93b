import { formatError } from '../src/base/errors.js';
import { median } from '../src/base/stats.js';
import type { SuiteDocument, BenchEnvironment, Comparison, Measurement } from './document.js';
import { type Estimate, ratioOfMedians } from './statistics.js';

/** One measurement, then and now. */
export interface Change {
  readonly metric: string;
  readonly unit: string;
  readonly setting: Measurement['setting'];
  /** Medians; undefined where only one of the documents has it. */
  readonly before?: number;
  readonly after?: number;
  /** How much better it is now, above 1: faster; undefined where only one of the documents has it. */
  readonly gain?: Estimate;
  /** 'unclear': the interval holds 1, or there are too few samples for one. */
  readonly verdict: 'better' | 'worse' | 'unclear' | 'new' | 'gone';
}

type GainOf = (a: readonly number[], b: readonly number[]) => Estimate;

/** Fewer samples have no interval to speak of. */
const FEWEST_SAMPLES = 3;

/** What is compared of an older document. */
export type OlderDocument = Pick<SuiteDocument, 'environment'> & {
  readonly measurements: readonly Measurement[];
};

/**
 * What changed since an older document of the same suite.
 * @param gainOf by how much the first samples are larger than the second: of another day's, or of runs side by side
 */
export function compareDocuments(
  old: OlderDocument,
  after: SuiteDocument,
  gainOf: GainOf = ratioOfMedians,
): Comparison {
  const known = new Map(old.measurements.map((measurement) => [keyOf(measurement), measurement]));
  const changes = (after.measurements ?? []).map((now): Change => {
    const key = keyOf(now);
    const then = known.get(key);
    known.delete(key);
    return then ? change(then, now, gainOf) : { ...subject(now), after: median(now.samples), verdict: 'new' };
  });
  for (const then of known.values()) changes.push({ ...subject(then), before: median(then.samples), verdict: 'gone' });
  const { date, commit } = old.environment;
  return {
    date,
    ...(commit !== undefined && { commit }),
    differences: differences(old.environment, after.environment),
    changes,
  };
}

function change(then: Measurement, now: Measurement, gainOf: GainOf): Change {
  const [a, b] = now.better === 'higher' ? [now, then] : [then, now];
  const gain = gainOf(a.samples, b.samples);
  const enough = Math.min(then.samples.length, now.samples.length) >= FEWEST_SAMPLES;
  const verdict = !enough || (gain.low <= 1 && gain.high >= 1) ? 'unclear' : gain.value > 1 ? 'better' : 'worse';
  return { ...subject(now), before: median(then.samples), after: median(now.samples), gain, verdict };
}

const subject = ({ metric, unit, setting }: Measurement) => ({ metric, unit, setting });

const keyOf = ({ metric, unit, setting }: Measurement): string =>
  JSON.stringify([metric, unit, Object.entries(setting).toSorted(([a], [b]) => (a < b ? -1 : 1))]);

function differences(then: BenchEnvironment, now: BenchEnvironment): string[] {
  const facts = (environment: BenchEnvironment): Readonly<Record<string, string>> => ({
    adapter: environment.adapters.map(({ name }) => name).join(', '),
    host: environment.host,
    cpu: `${environment.cpu}, ${environment.cpu_threads} threads`,
    ...(environment.host === 'chrome' ? { chrome: environment.chrome ?? 'unknown' } : { node: environment.node }),
  });
  const old = facts(then);
  return Object.entries(facts(now)).flatMap(([name, value]) =>
    old[name] === undefined || old[name] === value ? [] : [`${name}: ${old[name]} before, ${value} now`],
  );
}

/**
 * Checks that a parsed file is a document that a run of the suite can be compared with.
 * @param name of the file, for errors
 * @throws SplitkvError `format` where it isn't
 */
export function readOlderDocument(value: unknown, name: string, suite: string): OlderDocument {
  const expected = formatError(`${name}: expected a document that 'bench --json' or 'bench --out' wrote`);
  if (typeof value !== 'object' || value === null) throw expected;
  const { suite: found, environment, measurements } = value as Partial<SuiteDocument>;
  const adapters: readonly unknown[] | undefined = environment?.adapters;
  if (typeof found !== 'string' || typeof environment !== 'object' || !Array.isArray(adapters)) throw expected;
  if (!adapters.every((adapter) => typeof (adapter as { name?: unknown } | null)?.name === 'string')) throw expected;
  if (found !== suite) {
    throw formatError(
      `${name}: a document of suite '${found}', this run is of '${suite}'; compare with one of the same suite`,
    );
  }
  if (measurements === undefined) {
    throw formatError(`${name}: documents of suite '${suite}' have no measurements that could be compared`);
  }
  if (!Array.isArray(measurements) || !measurements.every(isMeasurement)) throw expected;
  return { environment, measurements };
}

function isMeasurement(value: unknown): value is Measurement {
  if (typeof value !== 'object' || value === null) return false;
  const { metric, unit, better, setting, samples } = value as Partial<Measurement>;
  return (
    typeof metric === 'string' &&
    typeof unit === 'string' &&
    (better === 'higher' || better === 'lower') &&
    typeof setting === 'object' &&
    setting !== null &&
    Array.isArray(samples) &&
    samples.length > 0 &&
    samples.every((sample) => typeof sample === 'number' && Number.isFinite(sample))
  );
}
