// OpenAI's API at /v1 by splitkv's own server, and a page beside it that streams from it.
import { spawn } from 'node:child_process';
import { createReadStream } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { Readable } from 'node:stream';
import { setTimeout as delay } from 'node:timers/promises';

const MODEL = process.env.MODEL ?? '__MODEL__';
const PORT = Number(process.env.PORT ?? 3000);
const API_PORT = Number(process.env.API_PORT ?? 8000);

// The model's process: many requests run side by side in it. Its lines tell how far the download is.
const command = join(dirname(createRequire(import.meta.url).resolve('splitkv/package.json')), 'bin/splitkv.js');
const model = spawn(process.execPath, [command, 'serve', '--model', MODEL, '--port', String(API_PORT)], {
  stdio: 'inherit',
});
model.on('exit', (code) => process.exit(code ?? 1));
for (const signal of ['SIGINT', 'SIGTERM']) process.on(signal, () => model.kill(signal));

/** Questions that come while the model loads wait for it. */
async function ready(signal) {
  const isReady = () =>
    fetch(`http://127.0.0.1:${API_PORT}/readyz`, { signal }).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) await delay(300, undefined, { signal });
}

/** The page, and /api/chat, which hands questions on. Put your own checks of who may ask here. */
const server = createServer(async (request, response) => {
  if (request.method === 'GET' && request.url === '/') {
    response.writeHead(200, { 'Content-Type': 'text/html; charset=utf-8' });
    createReadStream(new URL('index.html', import.meta.url)).pipe(response);
    return;
  }
  if (request.method !== 'POST' || request.url !== '/api/chat') {
    response.writeHead(404).end();
    return;
  }
  const gone = new AbortController();
  response.on('close', () => gone.abort());
  try {
    let body = '';
    for await (const piece of request) {
      body += piece;
      if (body.length > 100_000) throw new Error('the question is too long');
    }
    const { messages } = JSON.parse(body);
    await ready(gone.signal);
    const answer = await fetch(`http://127.0.0.1:${API_PORT}/v1/chat/completions`, {
      method: 'POST',
      headers: { 'Content-Type': 'application/json' },
      body: JSON.stringify({ messages, stream: true, max_tokens: 400 }),
      signal: gone.signal,
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    response.writeHead(answer.status, { 'Content-Type': answer.headers.get('Content-Type') ?? 'text/plain' });
    Readable.fromWeb(answer.body)
      .on('error', () => response.destroy())
      .pipe(response);
  } catch (error) {
    if (gone.signal.aborted) return;
    response.writeHead(503, { 'Content-Type': 'text/plain' }).end(`No answer: ${error.message}`);
  }
});
server.listen(PORT, '127.0.0.1', () => console.log(`http://127.0.0.1:${PORT}`));
