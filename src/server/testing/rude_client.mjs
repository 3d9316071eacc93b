/**
 * A client that asks for as much as it can, in a process of its own: node rude_client.mjs URL KIND CONNECTIONS [KEY] [ADDRESS]. It begins
 * with a line on stdin and ends with the next; then it says how many requests were answered, by status. It doesn't wait when it is told
 * to come again later. ADDRESS is one of this machine's, to come from.
 */
import { Agent, request } from 'node:http';
import { createInterface } from 'node:readline';

const [url, kind, connections, key, localAddress] = process.argv.slice(2);
const message = { role: 'user', content: 'x' };
const short = { prompt: 'the cat', max_tokens: 16, ignore_eos: true, stream: true };
const long = { prompt: 'the cat', max_tokens: 4000, ignore_eos: true };
let number = 0;

function nested(depth) {
  return `{"prompt":"a","response_format":{"type":"json_schema","json_schema":{"schema":${'{"a":'.repeat(depth)}1${'}'.repeat(depth)}}}}`;
}

/** What it asks for: a path and a body, as an object or as it is; another each time where it is a function. */
const KINDS = {
  nothing: undefined,
  prompts: ['/v1/completions', { prompt: 'the cat sat '.repeat(83_000) }],
  // Below what is refused by length, and too many tokens.
  tokens: ['/v1/completions', { prompt: '\u00e9\u4e2d'.repeat(16_000) }],
  names: ['/v1/chat/completions', { messages: [message], ['x'.repeat(900_000)]: 1 }],
  messages: ['/v1/chat/completions', { messages: Array(300_001).fill(1) }],
  deep: ['/v1/completions', nested(20_000)],
  short: ['/v1/completions', short],
  long: ['/v1/completions', long],
  urgent: ['/v1/completions', { ...long, priority: 100 }],
  documents: ['/v1/completions', () => ({ prompt: `${++number} ${'the cat sat '.repeat(900)}`, max_tokens: 1 })],
  schemas: [
    '/v1/completions',
    () => ({
      prompt: 'a',
      max_tokens: 8,
      response_format: {
        type: 'json_schema',
        json_schema: {
          schema: {
            type: 'object',
            properties: { [`k${process.pid}_${++number}`]: { type: 'integer', multipleOf: 199 } },
          },
        },
      },
    }),
  ],
  stops: [
    '/v1/completions',
    {
      prompt: 'a',
      max_tokens: 400,
      ignore_eos: true,
      regex: '(a )*',
      stop: Array.from({ length: 255 }, (_, at) => `${'a '.repeat(1900)}${at}`),
    },
  ],
  // Those that hold connections.
  slow: ['/v1/completions', short],
  idle: ['/livez'],
};
const [path, content] = KINDS[kind] ?? [];
const bytesOf = (body) => Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
const same = typeof content === 'function' || content === undefined ? undefined : bytesOf(content);
const headers = { 'Content-Type': 'application/json', ...(key && { Authorization: `Bearer ${key}` }) };
const from = localAddress ? { localAddress } : {};
let agent;
let statuses = {};
let on = false;
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const count = (status) => (statuses[status] = (statuses[status] ?? 0) + 1);

const ask = () =>
  new Promise((resolve) => {
    const body = same ?? bytesOf(content());
    const options = { method: 'POST', agent, headers: { ...headers, 'Content-Length': body.length }, ...from };
    const asked = request(`${url}${path}`, options, (response) => {
      count(response.statusCode);
      response.resume().on('close', resolve);
    });
    asked.on('error', () => setTimeout(resolve, 10));
    asked.end(body);
  });

/** A body that comes a byte a second. */
const drip = async () => {
  const options = { method: 'POST', agent, headers: { ...headers, 'Content-Length': same.length }, ...from };
  const asked = request(`${url}${path}`, options, (response) => {
    count(response.statusCode);
    response.resume();
  });
  const ended = new Promise((resolve) => asked.once('close', resolve));
  asked.on('error', () => {});
  for (let at = 0; on && !asked.destroyed && at < same.length; at++) {
    asked.write(same.subarray(at, at + 1));
    await Promise.race([pause(1000), ended]);
  }
  await Promise.race([pause(1000), ended]);
};

/** Asks once, and keeps the connection. */
const linger = async () => {
  const ended = new Promise((resolve) => {
    const asked = request(`${url}${path}`, { agent, headers, ...from }, (response) => {
      count(response.statusCode);
      response.resume();
      response.socket.once('close', resolve);
    });
    asked.on('error', () => setTimeout(resolve, 10));
    asked.end();
  });
  await ended;
  await pause(5000);
};

const once = kind === 'slow' ? drip : kind === 'idle' ? linger : ask;

async function loop() {
  const mine = agent;
  while (on && mine === agent) await once();
}

createInterface({ input: process.stdin }).on('line', () => {
  on = !on;
  if (on) {
    agent = new Agent({ keepAlive: true, maxSockets: Number(connections), maxFreeSockets: Number(connections) });
    if (kind !== 'nothing') for (let i = 0; i < Number(connections); i++) void loop();
  } else {
    agent.destroy();
    console.log(JSON.stringify(statuses));
    statuses = {};
  }
});
