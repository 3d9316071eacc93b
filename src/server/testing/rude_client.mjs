/**
 * A client that sends one large request after another on each of its connections, in a process of its own:
 * node rude_client.mjs URL KIND CONNECTIONS. Its requests begin with a line on stdin and end with the next; then it says how many
 * were answered, by status.
 */
import { Agent, request } from 'node:http';
import { createInterface } from 'node:readline';

const [url, kind, connections] = process.argv.slice(2);
const message = { role: 'user', content: 'x' };
const KINDS = {
  prompts: () => ['/v1/completions', { prompt: 'the cat sat '.repeat(83_000) }],
  // Below what is refused by length, and too many tokens.
  tokens: () => ['/v1/completions', { prompt: '\u00e9\u4e2d'.repeat(16_000) }],
  names: () => ['/v1/chat/completions', { messages: [message], ['x'.repeat(900_000)]: 1 }],
  messages: () => ['/v1/chat/completions', { messages: Array(300_001).fill(1) }],
};
const [path, content] = KINDS[kind]();
const body = Buffer.from(JSON.stringify(content));
const agent = new Agent({ keepAlive: true, maxSockets: Number(connections) });
const statuses = {};
let on = false;

const ask = () =>
  new Promise((resolve) => {
    const headers = { 'Content-Type': 'application/json', 'Content-Length': body.length };
    const asked = request(`${url}${path}`, { method: 'POST', agent, headers }, (response) => {
      statuses[response.statusCode] = (statuses[response.statusCode] ?? 0) + 1;
      response.resume().on('end', resolve).on('error', resolve);
    });
    asked.on('error', () => setTimeout(resolve, 10));
    asked.end(body);
  });

async function loop() {
  while (on) await ask();
}

createInterface({ input: process.stdin }).on('line', () => {
  on = !on;
  if (on) for (let i = 0; i < Number(connections); i++) void loop();
  else {
    console.log(JSON.stringify(statuses));
    for (const status of Object.keys(statuses)) delete statuses[status];
  }
});
