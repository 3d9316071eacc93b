// node chat.mjs: a chat in the terminal, by Vercel's AI SDK.
import { createInterface } from 'node:readline';
import { streamText } from 'ai';
import { load } from 'splitkv';
import { createSplitkv } from 'splitkv/ai-sdk';

const MODEL = process.env.MODEL ?? 'smollm2-360m-instruct';

const model = await load(MODEL);
const splitkv = createSplitkv(model);
const messages = [];
process.stdout.write('> ');
for await (const line of createInterface({ input: process.stdin })) {
  messages.push({ role: 'user', content: line });
  const { textStream, response } = streamText({ model: splitkv(), messages, maxOutputTokens: 200 });
  for await (const piece of textStream) process.stdout.write(piece);
  messages.push(...(await response).messages);
  process.stdout.write('\n> ');
}
await model.dispose();
