import { describe, expect, test } from 'vitest';
import { testAdapters } from '../../../src/gpu/testing/adapters.js';
import { isTurn } from '../../../src/gpu/testing/draw.js';
import { runCli } from '../../../src/cli/testing/run_cli.js';

const adapter = (await testAdapters()).at(-1)!.name;
const model = ['simulate', 'adp', '--model', 'models/tiny-mla', '--virtual-ranks', '--adapter', adapter];

interface Row {
  readonly name: string;
  readonly tps: number;
  readonly balance: number;
  readonly sol_tps: number;
  readonly mean_ttft_s: number;
  readonly iterations: number;
  readonly preemptions: number;
}

describe('simulate adp with a model', () => {
  test.runIf(isTurn(4, 'a measured clock'))(
    "the clock's iterations are the ranks' iterations",
    { timeout: 300_000 },
    async () => {
      const size = [
        '--requests',
        '24',
        '--mean-in',
        '10',
        '--mean-out',
        '12',
        '--max-batch',
        '4',
        '--kv-tokens',
        '320',
      ];
      const { code, stdout, stderr } = await runCli([
        ...model,
        '--ranks',
        '3',
        ...size,
        '--timeout-iters',
        '6',
        '--runs',
        '2',
        '--json',
      ]);
      expect(stderr).toBe('');
      expect(code).toBe(0);
      const { measured, runs, rows, parameters, environment } = JSON.parse(stdout) as {
        measured: Row[];
        runs: Row[][];
        environment: Record<string, unknown>;
        rows: Row[];
        parameters: Record<string, unknown>;
      };
      expect(parameters).toMatchObject({
        model: 'tiny-mla',
        requests: 24,
        ranks: 3,
        concurrency: 15,
        timeout_iters: 6,
      });
      expect(measured.map(({ name }) => name)).toEqual(['baseline', 'context_wait', 'full', 'cost']);
      expect(rows.map(({ name }) => name)).toEqual(measured.map(({ name }) => name));
      for (const [at, { balance, iterations, preemptions, ...times }] of measured.entries()) {
        for (const value of [times.tps, times.sol_tps, times.mean_ttft_s]) expect(value).toBeGreaterThan(0);
        // Our own policy goes by times, which differ.
        if (times.name === 'cost') continue;
        expect({ balance, iterations, preemptions }, times.name).toEqual({
          balance: rows[at]!.balance,
          iterations: rows[at]!.iterations,
          preemptions: rows[at]!.preemptions,
        });
      }
      expect(environment).toMatchObject({ node: process.version, cpu_threads: expect.any(Number) });
      expect(runs.map((turn) => turn.map(({ name }) => name))).toEqual(
        [rows, rows].map((of) => of.map(({ name }) => name)),
      );
      for (const [at, { tps }] of measured.entries()) {
        expect(tps).toBeCloseTo((runs[0]![at]!.tps + runs[1]![at]!.tps) / 2, 9);
      }
      // The policies do differ on this trace.
      expect(measured[2]!.iterations).toBeGreaterThan(measured[0]!.iterations);
    },
  );

  test.each<[string, string[], string]>([
    ['a model that is missing', ['simulate', 'adp', '--virtual-ranks'], '--virtual-ranks is for a run on a model'],
    ['a report of a measured run', [...model, '--out', 'x.html'], '--out is for a simulation alone'],
    ['prompts beyond the budget', [...model, '--mean-in', '100', '--max-tokens-per-iteration', '50'], '--mean-in 100'],
  ])('refuses %s', { timeout: 60_000 }, async (_what, args, message) => {
    const { code, stderr } = await runCli(args);
    expect(stderr).toContain(message);
    expect(code).toBe(2);
  });
});
