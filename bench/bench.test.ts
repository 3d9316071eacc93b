import { readdirSync } from 'node:fs';
import { describe, expect, test } from 'vitest';
import { median } from '../src/base/stats.js';
import { Random } from '../src/base/random.js';
import { type Change, compareDocuments, readOlderDocument } from './compare.js';
import type { BenchDocument, BenchEnvironment, Measurement } from './document.js';
import { interleave } from './interleave.js';
import { KERNEL_FOLDERS } from './kernel_suites.js';
import { chartsOf } from './report/charts.js';
import { reportHtml } from './report/report.js';
import { medianEstimate, pairedRatio, ratioOfMedians } from './statistics.js';
import { alignedTable } from '../src/base/aligned_table.js';

const environment: BenchEnvironment = {
  date: '2026-01-02T03:04:05.000Z',
  host: 'node',
  node: 'v20',
  os: 'os',
  cpu: 'cpu',
  cpu_threads: 2,
  memory_bytes: 1,
  adapters: [
    { name: 'gpu', vendor: '', architecture: '', device: '', description: '', software: false, variants: 'hardware' },
  ],
};

const speed = (setting: Measurement['setting'], samples: readonly number[]): Measurement => ({
  metric: 'decode',
  unit: 'tokens/s',
  better: 'higher',
  setting,
  samples,
});

const documentOf = (...measurements: Measurement[]): BenchDocument<unknown> => ({
  suite: 'decode',
  environment,
  results: [],
  measurements,
});

describe('intervals', () => {
  test('hold the true median and the true ratio about 95 times in 100, of 40 tries', () => {
    const random = new Random(3);
    const draw = (mean: number): number[] => Array.from({ length: 15 }, () => mean + random.normal());
    let medians = 0;
    let ratios = 0;
    for (let i = 0; i < 40; i++) {
      const [a, b] = [draw(20), draw(10)];
      const { low, high } = medianEstimate(a);
      if (low <= 20 && 20 <= high) medians++;
      const two = ratioOfMedians(a, b);
      if (two.low <= 2 && 2 <= two.high) ratios++;
    }
    expect(medians).toBeGreaterThan(33);
    expect(ratios).toBeGreaterThan(33);
    expect(medians + ratios).toBeLessThan(80);
  });

  test('pairs cancel what slows both', () => {
    const random = new Random(4);
    const drift = Array.from({ length: 9 }, () => 1 + 9 * random.next());
    const a = drift.map((factor) => 3 * factor);
    const { value, low, high } = pairedRatio(a, drift);
    for (const number of [value, low, high]) expect(number).toBeCloseTo(3, 12);
    expect(ratioOfMedians(a, drift).high).toBeGreaterThan(3.5);
  });

  test('the same samples give the same interval', () => {
    const samples = [3, 1, 4, 1, 5, 9, 2, 6];
    expect(medianEstimate(samples)).toEqual(medianEstimate(samples));
    expect(medianEstimate(samples).value).toBe(median(samples));
    expect(medianEstimate([7])).toEqual({ value: 7, low: 7, high: 7 });
  });
});

test('contenders take turns, none always after the same other, and the first run of each is not counted', async () => {
  const order: string[] = [];
  const contender = (name: string) => ({ name, run: async () => order.push(name) });
  const hooks = { signal: new AbortController().signal, onProgress: () => {}, onWarning: () => {} };
  const samples = await interleave([contender('a'), contender('b'), contender('c')], 3, hooks);
  expect(order.join('')).toBe('abcabcbcacab');
  expect(samples).toEqual([
    [4, 9, 11],
    [5, 7, 12],
    [6, 8, 10],
  ]);
  const aborted = { ...hooks, signal: AbortSignal.abort() };
  await expect(interleave([contender('a')], 1, aborted)).rejects.toMatchObject({ code: 'aborted' });
});

describe('comparison', () => {
  const verdicts = (changes: readonly Change[]): string[] => changes.map(({ verdict }) => verdict);
  const older = (document: unknown) => readOlderDocument(JSON.parse(JSON.stringify(document)), 'old.json', 'decode');

  test('better, worse, unclear, new and gone; the order of settings does not matter', () => {
    const before = documentOf(
      speed({ weights: 'f16', length: 1 }, [10, 11, 12, 10, 11]),
      speed({ weights: 'q8' }, [10, 11, 12, 10, 11]),
      speed({ weights: 'q4' }, [10, 11, 12, 10, 11]),
      { ...speed({ weights: 'f16' }, [10, 11, 12, 10, 11]), metric: 'ttft', better: 'lower' },
      speed({ weights: 'f32' }, [1, 2]),
      speed({ weights: 'x' }, [1]),
    );
    const after = documentOf(
      speed({ length: 1, weights: 'f16' }, [20, 21, 22, 20, 21]),
      speed({ weights: 'q8' }, [5, 6, 5, 6, 5]),
      speed({ weights: 'q4' }, [10, 12, 11, 10, 11]),
      { ...speed({ weights: 'f16' }, [20, 21, 22, 20, 21]), metric: 'ttft', better: 'lower' },
      speed({ weights: 'f32' }, [10, 20]),
      speed({ weights: 'y' }, [1]),
    );
    const { changes, differences } = compareDocuments(older(before), after);
    // Two samples each have no interval to speak of, however far apart.
    expect(verdicts(changes)).toEqual(['better', 'worse', 'unclear', 'worse', 'unclear', 'new', 'gone']);
    expect(changes[0]).toMatchObject({ before: 11, after: 21 });
    expect(changes[0]!.gain!.value).toBeCloseTo(21 / 11, 12);
    expect(changes[3]!.gain!.value).toBeCloseTo(11 / 21, 12);
    expect(differences).toEqual([]);
  });

  test('says what makes the two unlike', () => {
    const other = { ...environment, node: 'v22', adapters: [] };
    const { differences } = compareDocuments(older({ ...documentOf(), environment: other }), documentOf());
    expect(differences).toEqual(['adapter:  before, gpu now', 'node: v22 before, v20 now']);
  });

  test.each<[string, unknown, string]>([
    ['no object', 3, 'expected a document'],
    ['another suite', { ...documentOf(), suite: 'ranks' }, "of suite 'ranks', this run is of 'decode'"],
    ['no measurements', { suite: 'decode', environment, results: [] }, 'have no measurements'],
    ['no samples', documentOf(speed({}, [])), 'expected a document'],
    ['samples that are no numbers', documentOf(speed({}, [Number.NaN])), 'expected a document'],
    ['no environment', { ...documentOf(), environment: null }, 'expected a document'],
    ['no adapter', { ...documentOf(), environment: { ...environment, adapters: [null] } }, 'expected a document'],
  ])('refuses %s', (_what, document, message) => {
    expect(() => older(document)).toThrow(message);
  });
});

describe('report', () => {
  test('a number that varies is the x axis, and what else varies makes the lines', () => {
    const settings = [1024, 128].flatMap((n) =>
      ['f16', 'q8'].map((weights) => ({ model: 'm', weights, prompt_tokens: n })),
    );
    const [chart, ...others] = chartsOf(documentOf(...settings.map((setting, i) => speed(setting, [i + 1]))));
    expect(others).toEqual([]);
    expect(chart).toMatchObject({
      kind: 'lines',
      xName: 'prompt tokens',
      lines: [
        {
          name: 'f16',
          points: [
            { x: 128, estimate: { value: 3 } },
            { x: 1024, estimate: { value: 1 } },
          ],
        },
        { name: 'q8', points: [{ x: 128 }, { x: 1024 }] },
      ],
    });
  });

  test('bars otherwise, cut by the first setting where there are many', () => {
    const names = Array.from({ length: 30 }, (_, i) => ({ group: i < 10 ? 'a' : 'b', name: `n${i}` }));
    const charts = chartsOf(documentOf(...names.map((setting) => speed(setting, [1]))));
    expect(charts.map(({ kind, title }) => `${kind} ${title}`)).toEqual(['bars decode: a', 'bars decode: b']);
  });

  test('kernels show how near they come to the adapter', () => {
    const results = [
      {
        kernel: 'k',
        case: 'c',
        adapter: 'gpu',
        us: 10,
        gflops: 1,
        gbps: 1,
        copy_share: 0.5,
        fma_share: 0.1,
        samples: [10, 20],
      },
    ];
    const charts = chartsOf({ ...documentOf(), suite: 'kernels', results });
    expect(charts).toMatchObject([{ most: 100, bars: [{ name: 'c (memory)', samples: [50, 25] }] }]);
  });

  test('is one file, with what an older document says escaped', () => {
    const evil = '<img src=x onerror=alert(1)>';
    const before = documentOf(speed({ weights: evil }, [1, 2, 3]));
    const document = documentOf(
      speed({ weights: evil, length: 1 }, [1, 2, 3]),
      speed({ weights: 'b', length: 2 }, [1, 2, 3]),
    );
    const comparison = compareDocuments(readOlderDocument(before, 'old', 'decode'), document);
    const html = reportHtml({ ...document, comparison }, `table of ${evil}`);
    expect(html).not.toContain('<img');
    expect(html).not.toMatch(/\b(src|href)="(?!data:,)/);
    expect(html).not.toContain('NaN');
    expect(html).toContain('>gone<');
    expect(reportHtml(documentOf(speed({}, [0])), '')).toContain('<svg');
  });
});

test('every kernel with cases is known to the suite', () => {
  const folders = readdirSync('shaders', { recursive: true, encoding: 'utf8' })
    .filter((path) => path.endsWith('cases.ts'))
    .map((path) => path.replaceAll('\\', '/').replace('/cases.ts', ''));
  expect(KERNEL_FOLDERS.toSorted()).toEqual(folders.toSorted());
});

test('a table has its numbers to the right', () => {
  const rows = [
    ['name', 'n'],
    ['a', '1.5'],
    ['longer', '10'],
  ];
  expect(alignedTable(rows, 1)).toBe('name      n\na       1.5\nlonger   10\n');
});
