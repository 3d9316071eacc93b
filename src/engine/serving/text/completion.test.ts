import { expect, test } from 'vitest';
import { type CompletionHost, RunningCompletion } from './completion.js';
import type { Engine } from '../engine.js';
import type { EngineRequest } from '../loop/requests.js';
import { TextForms } from './forms.js';
import { Histogram } from '../histogram.js';

test('the time to the first token runs from the call, for answers too that wait for another to share its prompt', async () => {
  const submitted: EngineRequest[] = [];
  const engine = {
    options: {},
    ranks: { runner: { config: { vocabSize: 10 } } },
    submit: (request: EngineRequest) => {
      submitted.push(request);
      return { id: String(submitted.length), ended: new Promise(() => {}), abort: () => {} };
    },
  } as unknown as Engine;
  const host: CompletionHost = {
    engine,
    tokenizer: undefined,
    eosIds: [],
    forms: new TextForms({ tokenizer: undefined, noTokenizer: undefined }, 320, []),
    vocabSize: 10,
    sharesPrompt: true,
    firstToken: new Histogram([1]),
    nextToken: new Histogram([1]),
    count: () => {},
  };
  const completion = new RunningCompletion(host, [[1, 2]], { n: 2, seed: 1, firstTokenSeconds: 100, priority: 3 });
  expect(submitted).toHaveLength(1);
  const [first] = submitted;
  expect(first!.firstTokenSeconds).toBeGreaterThan(90);
  await new Promise((resolve) => setTimeout(resolve, 20));
  first!.onToken(5, undefined);
  expect(submitted).toHaveLength(2);
  expect(submitted[1]!.firstTokenSeconds).toBeLessThan(first!.firstTokenSeconds! - 0.01);
  completion.abort();

  const none = new RunningCompletion(host, [[1, 2]], { firstTokenSeconds: 0 });
  expect(submitted[2]!.firstTokenSeconds).toBe(0);
  none.abort();
});
