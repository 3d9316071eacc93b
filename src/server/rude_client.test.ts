import { spawn } from 'node:child_process';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { median } from '../base/stats.js';
import { ServerProcess } from '../cli/testing/run_server.js';
import { testAdapters } from '../gpu/testing/adapters.js';

/**
 * What a client that is always refused costs others: answers a second of four streaming clients alone and beside it, in turns, in
 * one run. SPLITKV_RUDE=2 npx vitest run src/server/rude_client.test.ts (seconds of each turn)
 */
const seconds = Number(process.env['SPLITKV_RUDE'] ?? 0);
const ROUNDS = 12;
const CASES = [
  ['prompts', 1],
  ['prompts', 4],
  ['names', 1],
  ['messages', 1],
  ['tokens', 4],
] as const;

/** Answers a second of `clients`, each of which asks, reads to the end and asks again. */
async function answersPerSecond(url: string, clients: number): Promise<number> {
  const started = performance.now();
  const since = (): number => (performance.now() - started) / 1000;
  let answers = 0;
  await Promise.all(
    Array.from({ length: clients }, async (_, client) => {
      while (since() < seconds) {
        const response = await fetch(`${url}/v1/completions`, {
          method: 'POST',
          body: JSON.stringify({ prompt: `the cat ${client}`, max_tokens: 16, stream: true, ignore_eos: true }),
        });
        expect(await response.text()).toContain('[DONE]');
        answers++;
      }
    }),
  );
  return answers / since();
}

test.skipIf(!(seconds > 0))('what a rude client costs four others', { timeout: 900_000 }, async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const server = new ServerProcess(['--model', 'models/tiny-gqa', '--port', '0', '--json', '--adapter', adapter]);
  const { url } = JSON.parse(await server.ready()) as { url: string };
  await answersPerSecond(url, 4);
  for (const [kind, connections] of CASES) {
    const rude = spawn(process.execPath, ['src/server/testing/rude_client.mjs', url, kind, String(connections)]);
    const lines = createInterface({ input: rude.stdout })[Symbol.asyncIterator]();
    // The threads start with the first request.
    rude.stdin.write('begin\n');
    await new Promise((resolve) => setTimeout(resolve, 3000));
    rude.stdin.write('end\n');
    await lines.next();
    await new Promise((resolve) => setTimeout(resolve, 2000));
    const rates: { alone: number; beside: number }[] = [];
    const statuses = new Map<string, number>();
    for (let round = 0; round < ROUNDS; round++) {
      // By turns first and second, so that a machine that gets busier favours neither.
      let alone = round % 2 === 0 ? await answersPerSecond(url, 4) : 0;
      rude.stdin.write('begin\n');
      const beside = await answersPerSecond(url, 4);
      rude.stdin.write('end\n');
      for (const [status, count] of Object.entries(JSON.parse(String((await lines.next()).value)) as object)) {
        statuses.set(status, (statuses.get(status) ?? 0) + Number(count));
      }
      // What it asked last may still be under way.
      await new Promise((resolve) => setTimeout(resolve, 500));
      if (round % 2 === 1) alone = await answersPerSecond(url, 4);
      rates.push({ alone, beside });
    }
    rude.kill();
    const ratio = median(rates.map(({ alone, beside }) => beside / alone));
    const shown = rates.map(({ alone, beside }) => `${alone.toFixed(1)}/${beside.toFixed(1)}`).join(' ');
    console.log(
      JSON.stringify({ kind, connections, ratio: ratio.toFixed(3), aloneAndBeside: shown, statuses: [...statuses] }),
    );
  }
  expect(await server.stop('SIGTERM')).toBe(0);
});
