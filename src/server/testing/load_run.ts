import OpenAI from 'openai';
import { Random } from '../../base/random.js';
import { quantile } from '../../base/stats.js';

/** A request and the text that it has when it runs alone. */
export interface LoadTask {
  readonly prompt: string;
  readonly maxTokens: number;
  readonly temperature: number;
  readonly seed: number;
  readonly expected: string;
}

export interface LoadOptions {
  /** Of the server, without /v1. */
  readonly url: string;
  readonly model: string;
  readonly tasks: readonly LoadTask[];
  /** Each asks, reads, and asks again. */
  readonly clients: number;
  readonly seconds: number;
  /** One request in this many is left in the middle of its stream. */
  readonly vanishing: number;
  readonly seed: number;
}

export interface LoadReport {
  readonly completed: number;
  readonly vanished: number;
  /** Texts that weren't as alone, and requests that failed: what they were. */
  readonly wrong: readonly string[];
  readonly failed: readonly string[];
  readonly seconds: number;
  /** Of completed requests. */
  readonly tokensPerSecond: number;
  /** Seconds to the first text and to the end: median and 95th percentile. */
  readonly firstText: readonly [number, number];
  readonly whole: readonly [number, number];
}

type Task = Omit<LoadTask, 'expected'>;

const request = ({ prompt, maxTokens, temperature, seed }: Task, model: string) =>
  ({
    model,
    prompt,
    max_tokens: maxTokens,
    temperature,
    seed,
    stream: true,
    stream_options: { include_usage: true },
  }) as const;

/** What the tasks give one after another, with nothing beside them. */
export async function runAlone(url: string, model: string, tasks: readonly Task[]): Promise<LoadTask[]> {
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
  const results: LoadTask[] = [];
  for (const task of tasks) {
    let expected = '';
    for await (const { choices } of await client.completions.create(request(task, model))) {
      expected += choices[0]?.text ?? '';
    }
    results.push({ ...task, expected });
  }
  return results;
}

/** Concurrent streaming clients, some of which vanish; every other text is compared. */
export async function runLoad(options: LoadOptions): Promise<LoadReport> {
  const { url, model, tasks, clients, seconds, vanishing, seed } = options;
  const started = performance.now();
  const since = (from: number): number => (performance.now() - from) / 1000;
  const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 });
  const counts = { started: 0, completed: 0, vanished: 0, tokens: 0 };
  const wrong: string[] = [];
  const failed: string[] = [];
  const firstText: number[] = [];
  const whole: number[] = [];

  async function ask(random: Random): Promise<void> {
    const task = tasks[random.integer(tasks.length)]!;
    const leavesAfter = ++counts.started % vanishing === 0 ? random.integer(task.maxTokens / 2) : Infinity;
    const from = performance.now();
    let first: number | undefined;
    let text = '';
    let pieces = 0;
    let tokens = 0;
    for await (const { choices, usage } of await client.completions.create(request(task, model))) {
      first ??= since(from);
      // Leaving the loop closes the connection.
      if (pieces++ >= leavesAfter) {
        counts.vanished++;
        return;
      }
      text += choices[0]?.text ?? '';
      tokens = usage?.completion_tokens ?? tokens;
    }
    if (text !== task.expected) wrong.push(`${JSON.stringify(text)} instead of ${JSON.stringify(task.expected)}`);
    counts.completed++;
    counts.tokens += tokens;
    firstText.push(first!);
    whole.push(since(from));
  }

  await Promise.all(
    Array.from({ length: clients }, async (_, index) => {
      const random = new Random(seed + index);
      while (since(started) < seconds) {
        await ask(random).catch((error: unknown) => failed.push(String(error)));
      }
    }),
  );
  const took = since(started);
  const middleAndTail = (samples: readonly number[]): [number, number] => [
    quantile(samples, 0.5),
    quantile(samples, 0.95),
  ];
  return {
    completed: counts.completed,
    vanished: counts.vanished,
    wrong,
    failed,
    seconds: took,
    tokensPerSecond: counts.tokens / took,
    firstText: middleAndTail(firstText),
    whole: middleAndTail(whole),
  };
}
