import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** A port that is free now. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address() as AddressInfo;
  await new Promise((done) => server.close(done));
  return port;
}

const RECIPE = 'recipes/nginx/splitkv.conf';

/** nginx as its recipe sets it up, before two servers on this machine. `said` is its log of errors. */
export async function startNginx(
  nginx: string,
  ports: readonly [number, number],
): Promise<{ readonly url: string; said(): string; stop(): Promise<void> }> {
  const folder = mkdtempSync(join(tmpdir(), 'splitkv-nginx-'));
  const port = await freePort();
  const replaced = (text: string, from: string, to: string): string => {
    if (!text.includes(from)) throw new Error(`${RECIPE} has no ${from}`);
    return text.replaceAll(from, to);
  };
  let site = replaced(readFileSync(RECIPE, 'utf8'), '10.0.0.1:8000', `127.0.0.1:${ports[0]}`);
  site = replaced(site, '10.0.0.2:8000', `127.0.0.1:${ports[1]}`);
  site = replaced(site, 'listen 80', `listen 127.0.0.1:${port}`);
  const paths = ['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map(
    (name) => `${name}_temp_path ${folder}/${name};`,
  );
  writeFileSync(
    join(folder, 'nginx.conf'),
    `daemon off; master_process off; pid ${folder}/pid; error_log stderr error;\nevents {}\n` +
      `http { access_log off; ${paths.join(' ')}\n${site} }\n`,
  );
  const child = spawn(nginx, ['-p', folder, '-e', 'stderr', '-c', join(folder, 'nginx.conf')], { stdio: 'pipe' });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const ended = new Promise((resolve) => child.once('close', resolve));
  const url = `http://127.0.0.1:${port}`;
  for (let answers = false; !answers;) {
    if (child.exitCode !== null) throw new Error(`nginx ended: ${said}`);
    answers = await fetch(url).then(
      () => true,
      () => false,
    );
  }
  return {
    url,
    said: () => said,
    stop: async () => {
      child.kill('SIGQUIT');
      await ended;
      rmSync(folder, { recursive: true, force: true });
    },
  };
}

/**
 * Asks so many times a second, however long answers take, while `during` runs, which is told how many were answered. Counts answers by
 * status, or what went wrong.
 */
export async function askSteadily(
  perSecond: number,
  ask: (index: number) => Promise<Response>,
  during: (answered: () => number) => Promise<unknown>,
): Promise<Map<string, number>> {
  const counts = new Map<string, number>();
  let answered = 0;
  const add = (what: string): void => {
    answered++;
    counts.set(what, (counts.get(what) ?? 0) + 1);
  };
  const one = async (index: number): Promise<void> => {
    try {
      const response = await ask(index);
      await response.text();
      add(String(response.status));
    } catch (error) {
      const { cause, message } = error as Error;
      add(cause instanceof Error ? cause.message : message);
    }
  };
  let isOver = false;
  const over = during(() => answered).finally(() => (isOver = true));
  const asked: Promise<void>[] = [];
  const started = performance.now();
  while (!isOver) {
    const due = ((performance.now() - started) / 1000) * perSecond;
    while (asked.length < due) asked.push(one(asked.length));
    await new Promise((resolve) => setTimeout(resolve, 5));
  }
  await Promise.all(asked);
  await over;
  return counts;
}
