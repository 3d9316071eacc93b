import { spawn } from 'node:child_process';
import { describe, expect, test } from 'vitest';
import { connectCluster } from '../cluster/connect.js';
import { natsServer } from '../cluster/testing/nats_server.js';
import { freePort } from '../server/testing/behind_nginx.js';
import { runHere } from './testing/run_here.js';
import { BIN } from './testing/bin.js';

test('no server for others without a token', async () => {
  const { code, stderr } = await runHere(['cluster', '--token-file', '/dev/null']);
  expect(code).toBe(natsServer === undefined ? 1 : 2);
  expect(stderr).toMatch(natsServer === undefined ? /no nats-server/ : /it is empty/);
});

test.skipIf(!natsServer)('a site is an origin', async () => {
  const { code, stderr } = await runHere(['cluster', '--origins', 'https://good.example, good.example']);
  expect(code).toBe(2);
  expect(stderr).toMatch(/--origins +good\.example: expected a site/);
});

test('without nats-server it says what installs it', async () => {
  const child = spawn(process.execPath, [BIN, 'cluster'], { env: { ...process.env, PATH: '/nowhere' } });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  // Where it lies in a folder that is looked at anyway, it comes up.
  const up = new Promise((resolve) => child.stdout.once('data', resolve));
  const code = new Promise((resolve) => child.once('close', resolve));
  if ((await Promise.race([up, code])) === 1) expect(said).toMatch(/install/);
  child.kill('SIGINT');
  await code;
});

describe.skipIf(!natsServer)('splitkv cluster', () => {
  test('prints its address, serves, and ends with Ctrl-C', async () => {
    const [port, web] = [await freePort(), await freePort()];
    const args = [BIN, 'cluster', '--json', '--port', String(port), '--websocket-port', String(web)];
    const child = spawn(process.execPath, args, { stdio: ['ignore', 'pipe', 'inherit'] });
    const line = await new Promise<string>((resolve, reject) => {
      child.stdout.setEncoding('utf8').once('data', (text: string) => resolve(text));
      child.once('close', (code) => reject(new Error(`it ended with ${code}`)));
    });
    const { url, websocket_url: webUrl } = JSON.parse(line) as Record<string, string>;
    expect([url, webUrl]).toEqual([`nats://127.0.0.1:${port}`, `ws://127.0.0.1:${web}`]);
    await (await connectCluster({ servers: url! })).close();
    // NATS's WebSocket answers a plain request with an error of its own.
    expect((await fetch(webUrl!.replace('ws:', 'http:'))).status).toBeGreaterThanOrEqual(400);
    const code = new Promise((resolve) => child.once('close', resolve));
    child.kill('SIGINT');
    expect(await code).toBe(0);
    await expect(connectCluster({ servers: url! })).rejects.toMatchObject({ code: 'io' });
  });
});
