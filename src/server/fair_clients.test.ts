import { spawn } from 'node:child_process';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { Agent, request } from 'node:http';
import { cpus, tmpdir } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { expect, test } from 'vitest';
import { median } from '../base/stats.js';
import { ServerProcess } from '../cli/testing/run_server.js';
import { testAdapters } from '../gpu/testing/adapters.js';

/**
 * What one client costs others, whatever it does: answers a second of four streaming clients alone and beside it, in turns, in one run.
 * Each has a key of its own. `npm run reliability -- --only fair`, or, with seconds of each turn and words of the cases wanted,
 * SPLITKV_FAIR=3 SPLITKV_FAIR_ONLY=long,idle npx vitest run src/server/fair_clients.test.ts
 */
const seconds = Number(process.env['SPLITKV_FAIR'] ?? 0);
const ROUNDS = Number(process.env['SPLITKV_FAIR_ROUNDS'] ?? 5);
const only = process.env['SPLITKV_FAIR_ONLY']?.split(',');
/** Of what is refused, or waits; and beside a client whose requests are answered. */
const [REFUSED, ANSWERED] = [0.8, 0.5];
const POLITE = 4;

interface Case {
  readonly kind: string;
  readonly what: string;
  readonly connections: number;
  /** Of the answers alone, at least. */
  readonly least: number;
  /** Polite clients ask on new connections. */
  readonly fresh?: boolean;
}

const CASES: readonly Case[] = [
  { kind: 'nothing', what: 'nothing', connections: 0, least: REFUSED },
  { kind: 'prompts', what: '1 MB prompts', connections: 4, least: REFUSED },
  { kind: 'tokens', what: 'prompts with too many tokens', connections: 4, least: REFUSED },
  // Unknown fields are ignored, so they are answered.
  { kind: 'names', what: 'names of 900 KB', connections: 1, least: ANSWERED },
  { kind: 'messages', what: '300,001 messages', connections: 1, least: REFUSED },
  { kind: 'deep', what: 'schema nested 20,000 deep', connections: 4, least: REFUSED },
  { kind: 'slow', what: 'slow bodies, a byte a second', connections: 200, least: REFUSED },
  { kind: 'slow', what: 'slow bodies, a byte a second', connections: 1100, least: REFUSED, fresh: true },
  { kind: 'idle', what: 'idle connections', connections: 1100, least: REFUSED, fresh: true },
  { kind: 'urgent', what: '4000 tokens each, with priority 100', connections: 72, least: REFUSED },
  { kind: 'short', what: 'valid requests of 16 tokens', connections: 200, least: ANSWERED },
  { kind: 'long', what: '4000 tokens each', connections: 72, least: ANSWERED },
  { kind: 'documents', what: 'long prompts, each another', connections: 72, least: ANSWERED },
  { kind: 'schemas', what: 'legal schemas, each another', connections: 4, least: ANSWERED },
  { kind: 'stops', what: '255 stop texts of 3.8 KB that nearly match', connections: 16, least: ANSWERED },
];

/** An answer to the end; undefined where it was broken off. */
const answerOf = (url: string, client: number, agent: Agent, signal: AbortSignal): Promise<string | undefined> =>
  new Promise((resolve) => {
    const headers = { Authorization: `Bearer polite${client}` };
    const asked = request(`${url}/v1/completions`, { method: 'POST', agent, headers, signal }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (more: string) => (text += more));
      response.on('close', () => resolve(text.includes('[DONE]') ? text : undefined));
    });
    asked.on('error', () => resolve(undefined));
    asked.end(JSON.stringify({ prompt: `the cat ${client}`, max_tokens: 16, stream: true, ignore_eos: true }));
  });

/** Answers a second of the polite clients, each of which asks, reads to the end and asks again. */
async function answersPerSecond(url: string, agent: Agent, spell: number): Promise<number> {
  const signal = AbortSignal.timeout(spell * 1000);
  let answers = 0;
  await Promise.all(
    Array.from({ length: POLITE }, async (_, client) => {
      while (!signal.aborted) {
        if ((await answerOf(url, client, agent, signal)) !== undefined) answers++;
        else if (!signal.aborted) await new Promise((resolve) => setTimeout(resolve, 20));
      }
    }),
  );
  return answers / spell;
}

const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

test.skipIf(!(seconds > 0))('what one client costs four others', { timeout: 3_600_000 }, async () => {
  const adapter = (await testAdapters()).at(-1)!.name;
  const keys = join(mkdtempSync(join(tmpdir(), 'splitkv-fair-')), 'keys');
  writeFileSync(keys, ['rude', ...Array.from({ length: POLITE }, (_, i) => `polite${i}`)].join('\n'));
  const machine = `${cpus().length} x ${cpus()[0]!.model}, ${adapter}, Node ${process.version}, turns of ${seconds} s`;
  console.log(JSON.stringify({ machine }));
  const failed: string[] = [];
  for (const { kind, what, connections, least, fresh } of CASES) {
    if (only && !only.includes(kind)) continue;
    const server = new ServerProcess([
      '--model',
      'models/tiny-gqa',
      '--port',
      '0',
      '--json',
      '--adapter',
      adapter,
      '--api-key-file',
      keys,
    ]);
    const { url } = JSON.parse(await server.ready()) as { url: string };
    const agent = new Agent({ keepAlive: !fresh });
    await answersPerSecond(url, agent, Math.min(2, seconds));
    // From an address of its own where the system has more than one.
    const from = process.platform === 'linux' ? ['127.0.0.2'] : [];
    const rude = spawn(process.execPath, [
      'src/server/testing/rude_client.mjs',
      url,
      kind,
      String(connections),
      'rude',
      ...from,
    ]);
    const lines = createInterface({ input: rude.stdout })[Symbol.asyncIterator]();
    // The threads start with the first request.
    rude.stdin.write('begin\n');
    await pause(3000);
    rude.stdin.write('end\n');
    await lines.next();
    await pause(2000);
    const rates: { alone: number; beside: number }[] = [];
    const statuses = new Map<string, number>();
    for (let round = 0; round < ROUNDS; round++) {
      // By turns first and second, so that a machine that gets busier favours neither.
      let alone = round % 2 === 0 ? await answersPerSecond(url, agent, seconds) : 0;
      rude.stdin.write('begin\n');
      await pause(500);
      const beside = await answersPerSecond(url, agent, seconds);
      const probe = await fetch(`${url}/livez`).catch(() => undefined);
      expect(probe?.status).toBe(200);
      rude.stdin.write('end\n');
      for (const [status, count] of Object.entries(JSON.parse(String((await lines.next()).value)) as object)) {
        statuses.set(status, (statuses.get(status) ?? 0) + Number(count));
      }
      // What it asked last may still be under way.
      await pause(1000);
      if (round % 2 === 1) alone = await answersPerSecond(url, agent, seconds);
      rates.push({ alone, beside });
    }
    rude.kill();
    agent.destroy();
    const ratio = median(rates.map(({ alone, beside }) => beside / alone));
    const shown = rates.map(({ alone, beside }) => `${alone.toFixed(1)}/${beside.toFixed(1)}`).join(' ');
    console.log(
      JSON.stringify({
        kind,
        what,
        connections,
        ratio: ratio.toFixed(2),
        least,
        aloneAndBeside: shown,
        statuses: [...statuses],
      }),
    );
    if (!(ratio >= least)) failed.push(`${kind} ${connections}: ${ratio.toFixed(2)}, expected at least ${least}`);
    await server.stop('SIGKILL');
  }
  expect(failed).toEqual([]);
});
