import { test } from 'vitest';
import { readFileSync } from 'node:fs';
import { load } from './load.js';
test('quick', async () => {
  const m = await load('models/tiny-gqa', { adapter: 'llvmpipe', weights: 'f32' });
  const lines = readFileSync('models/eval.jsonl', 'utf8').trim().split('\n').map((l) => JSON.parse(l));
  for (const q of lines.slice(0, 3)) {
    const r = await m.generate(q.prompt, { maxTokens: 8 }).result;
    console.log(r.prompt_tokens, JSON.stringify(q.answer), JSON.stringify(r.text), m.tokenize(q.answer).length, r.stats.ttft_ms);
  }
  console.log(m.tokenize('mia put the red key'));
  await m.dispose();
}, 120000);
