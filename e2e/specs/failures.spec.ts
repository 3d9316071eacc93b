import { readFileSync, statSync } from 'node:fs';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, test } from '@playwright/test';
import { chatOf, chatPage } from '../support/chat_page.js';
import { serveSite, type StaticSite } from '../support/static_site.js';

// Each failure by a real server: its own title, cause and way on. Others: hub.spec.ts (gated), kind.spec.ts (lost, too large, broke off).

const WEIGHTS = 'models/tiny-gqa/model.safetensors';
const SIZE = statSync(WEIGHTS).size;

type Misbehave = (request: IncomingMessage, response: ServerResponse) => boolean;
let misbehave: Misbehave | undefined;
let site: StaticSite;
const bare = chatPage('picker').replace('model="models/tiny-gqa/" ', '');
test.beforeAll(async () => {
  site = await serveSite(
    { 'bare.html': bare },
    {
      before: (request, response) =>
        request.url!.startsWith('/models/tiny-gqa/') ? (misbehave?.(request, response) ?? false) : false,
    },
  );
});
test.afterAll(() => site.close());

const answer =
  (status: number, headers: Record<string, string> = {}, body = ''): Misbehave =>
  (_request, response) => {
    response.writeHead(status, headers).end(body);
    return true;
  };
/** Weights that are large, of a server that sends whole files only. */
const whole: Misbehave = ({ url }, response) => {
  if (!url!.endsWith('.safetensors')) return false;
  response.writeHead(200, { 'Content-Length': '4000000000' });
  response.write(new Uint8Array(1024));
  return true;
};

const CAUSES: readonly [cause: string, misbehave: Misbehave, title: string, advice: string][] = [
  ['404', answer(404), "The model can't be downloaded: it is not there", 'Check the address'],
  ['401', answer(401), "The model can't be downloaded: its server refuses it", 'a login, or an access token'],
  ['429', answer(429), "The model can't be downloaded: its server wants to be asked less often", 'Try again later'],
  [
    'a page to sign in at',
    answer(200, { 'Content-Type': 'text/html' }, '<!doctype html><title>Sign in</title>'),
    "The model can't be downloaded: a web page came instead",
    'wants you to sign in',
  ],
  ['no ranges', whole, "The model can't be downloaded: its server sends whole files only", 'range requests'],
];

test('each failure of a download has its own title, cause and remedy, and one line on the console', async ({
  page,
}) => {
  const { chat, problem, button } = chatOf(page);
  const errors: string[] = [];
  page.on('console', (message) => {
    if (message.text().startsWith('<splitkv-chat>')) errors.push(message.text());
  });
  await page.goto(`${site.url}bare.html`);
  const look = (model: string) => chat.evaluate((element, value) => element.setAttribute('model', value), model);
  const leave = () => chat.evaluate((element) => element.removeAttribute('model'));
  for (const [cause, how, title, advice] of CAUSES) {
    misbehave = how;
    await look('models/tiny-gqa/');
    await expect(problem, cause).toContainText(title);
    await expect(problem, cause).toContainText(advice);
    await expect(problem, cause).toContainText(`${site.url}models/tiny-gqa/`);
    await expect(button('Choose another model'), cause).toBeVisible();
    expect(errors.splice(0), cause).toEqual([
      expect.stringMatching(/^<splitkv-chat> io: .*https:\/\/github\.com\/.*docs\/chat\.md#when-something-goes-wrong/s),
    ]);
    await leave();
    await expect(problem).toBeHidden();
  }

  // Another origin that allows nobody, and one that nobody is at.
  const other = createServer((_request, response) => response.end('{}'));
  await new Promise<void>((done) => other.listen(0, '127.0.0.1', done));
  const address = `http://127.0.0.1:${(other.address() as AddressInfo).port}/model/`;
  await look(address);
  await expect(problem).toContainText("its server can't be reached");
  await expect(problem).toContainText('(CORS)');
  await expect(problem).toContainText(address);
  await leave();
  other.closeAllConnections();
  other.close();

  // Without a network, and with it again.
  misbehave = (request) => {
    request.destroy();
    return true;
  };
  await page.context().setOffline(true);
  await look('models/tiny-gqa/');
  await expect(problem).toContainText("The model can't be downloaded: you are offline");
  await expect(button('Try again')).toBeVisible();
  misbehave = undefined;
  // By itself, as soon as there is one.
  await page.context().setOffline(false);
  await expect(button('Download 4.1 MiB and start')).toBeVisible();
  await expect(problem).toBeHidden();

  // What there is no room for is told by how much, and nothing is offered that would fail.
  await chat.evaluate((element) => {
    element.setAttribute('ranks', '1');
    element.setAttribute('memory', '2MB');
  });
  await expect(chat).toContainText("This model won't fit");
  await expect(chat).toContainText(/GPU memory\s*\d+ MiB needed, \d+ MiB more than there is/);
  await expect(button(/anyway/)).toHaveCount(0);
  await expect(button('Choose another model')).toBeVisible();
});

test('a download that stalls says so, and goes on by itself where it was, also after the network was away', async ({
  page,
}) => {
  const { chat, problem, button, status } = chatOf(page);
  const from: number[] = [];
  let stalls = 0;
  // Ten thousand bytes of what is asked for, and then nothing.
  const stall: Misbehave = ({ url, headers }, response) => {
    const [start, end] = (/(\d+)-(\d+)/.exec(headers.range ?? '') ?? []).slice(1).map(Number);
    if (!url!.endsWith('.safetensors') || end === undefined || end - start! < 100_000) return false;
    from.push(start!);
    if (stalls === 0) return false;
    response.writeHead(206, { 'Content-Range': `bytes ${start}-${end}/${SIZE}`, 'Content-Length': end + 1 - start! });
    response.write(new Uint8Array(readFileSync(WEIGHTS)).subarray(start, start! + 10_000));
    return true;
  };
  misbehave = stall;
  await page.goto(`${site.url}bare.html`);
  await chat.evaluate((element) => element.setAttribute('model', 'models/tiny-gqa/'));
  await expect(button('Download 4.1 MiB and start')).toBeVisible();
  stalls = 1;
  await button('Download 4.1 MiB and start').click();
  await expect(chat).toContainText('nothing comes at the moment');
  await page.context().setOffline(true);
  await expect(chat).toContainText('you are offline; it goes on by itself');
  await expect(problem).toBeHidden();
  stalls = 0;
  const before = from.length;
  await page.context().setOffline(false);
  await expect(status).toHaveText('Ready');
  await expect(problem).toBeHidden();
  // What had come wasn't asked for again.
  expect(from[before]! - Math.min(...from)).toBeGreaterThanOrEqual(10_000);
  misbehave = undefined;
});
