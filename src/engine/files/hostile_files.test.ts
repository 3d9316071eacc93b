import { expect, test } from 'vitest';
import { SplitkvError } from '../../base/errors.js';
import { drawn, drawSeed } from '../../gpu/testing/draw.js';
import { hostileInput, INPUT_KINDS } from './testing/hostile_inputs.js';
import { HOSTILE_ROWS, type HostileRow } from './testing/hostile_rows.js';
import { readAll } from './testing/read_files.js';
import { openInChild, type RowEnd } from './testing/run_hostile.js';

/** Inputs; `npm run reliability -- --only inputs` reads a million. */
const INPUTS = Number(process.env['SPLITKV_FUZZ'] ?? 1500);
/** Every row in a process of its own, by `npm run reliability -- --only files`. */
const ALL_ROWS = process.env['SPLITKV_HOSTILE'] === 'all';
/** What an error may take. */
const [MOST_MS, MOST_MB] = [2000, 500];

test(
  `whatever is in a model file: it is read, or refused by an error of ours (seed ${drawSeed})`,
  { timeout: 300_000 + INPUTS * 20 },
  async () => {
    const counts = Object.fromEntries(INPUT_KINDS.map((kind) => [kind, { refused: 0, read: 0 }]));
    const bad: string[] = [];
    let slowest = { ms: 0, kind: '', input: 0 };
    for (let input = 0; input < INPUTS; input++) {
      const { kind, source } = hostileInput(drawSeed, input);
      const count = counts[kind]!;
      const started = performance.now();
      try {
        await readAll(source);
        count.read++;
      } catch (error) {
        if (error instanceof SplitkvError && error.code !== 'internal') count.refused++;
        else bad.push(`${kind}, input ${input}: ${error instanceof Error ? error.stack : String(error)}`);
      }
      const ms = performance.now() - started;
      if (ms > slowest.ms) slowest = { ms, kind, input };
    }
    if (INPUTS > 10_000) {
      const memory = Math.round(process.resourceUsage().maxRSS / 1000);
      // Again, by the time of this process alone, whatever else the machine does.
      const started = process.cpuUsage();
      await readAll(hostileInput(drawSeed, slowest.input).source).catch(() => {});
      const { user, system } = process.cpuUsage(started);
      slowest = { ...slowest, ms: Math.round((user + system) / 1000) };
      const report = { inputs: INPUTS, seed: drawSeed, bad: bad.length, slowest, maxMB: memory, counts };
      console.log(`\n${JSON.stringify(report)}`);
      expect(slowest.ms).toBeLessThan(MOST_MS);
      expect(memory).toBeLessThan(MOST_MB);
    }
    expect(bad).toEqual([]);
    expect(Object.keys({})).toEqual([]);
    expect(({} as Record<string, unknown>)['x']).toBeUndefined();
    for (const [kind, { refused }] of Object.entries(counts)) expect(refused, kind).toBeGreaterThan(0);
  },
);

/** What is wrong with how a row ended, beside what it took. */
function wrong({ harmless }: HostileRow, { error, died }: RowEnd): string | undefined {
  if (died !== undefined) return `its process ended: ${died}`;
  if (error) return error.code === 'none of ours' || error.code === 'internal' ? error.message : undefined;
  return harmless ? undefined : 'it was read';
}

test.skipIf(ALL_ROWS)('hostile files of every kind end in an error of ours', { timeout: 120_000 }, async () => {
  const rows = drawn(
    // The large ones take long to write.
    HOSTILE_ROWS.filter(({ name }) => !/\d MB|million|\d{7}/.test(name)),
    12,
    'hostile rows',
  );
  const ends = await openInChild(rows);
  expect(rows.map((row, i) => [row.name, ends[i] && wrong(row, ends[i])])).toEqual(
    rows.map(({ name }) => [name, undefined]),
  );
});

test.skipIf(!ALL_ROWS)(
  'each hostile file, in a process of its own: an error of ours within its time and memory',
  { timeout: 3_600_000 },
  async () => {
    const bad: string[] = [];
    const [slowest, largest] = [
      { ms: 0, name: '' },
      { mb: 0, name: '' },
    ];
    for (const row of HOSTILE_ROWS) {
      const [end] = await openInChild([row]);
      const { name, harmless } = row;
      const { ms, most, error } = end!;
      const why =
        wrong(row, end!) ??
        (!harmless && ms > MOST_MS ? `it took ${ms} ms` : undefined) ??
        (!harmless && most > MOST_MB ? `it took ${most} MB` : undefined);
      console.log(`${name}: ${error?.code ?? 'read'}, ${ms} ms, ${most} MB${why === undefined ? '' : `: ${why}`}`);
      if (why !== undefined) bad.push(`${name}: ${why}`);
      if (!harmless && ms > slowest.ms) Object.assign(slowest, { ms, name });
      if (!harmless && most > largest.mb) Object.assign(largest, { mb: most, name });
    }
    console.log(`\n${JSON.stringify({ rows: HOSTILE_ROWS.length, bad: bad.length, slowest, largest })}`);
    expect(bad).toEqual([]);
  },
);
