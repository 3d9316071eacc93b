import { Random } from '../../base/random.js';
import { hashOfText } from '../../cluster/routing/prefixes.js';
import type { Completion, CompletionEvent, CompletionOptions, Prompt, ServingModel } from '../../index.js';

export interface StandInOptions {
  readonly name?: string;
  readonly slots?: number;
  /** Time of a token. */
  readonly tokenMs?: number;
  /** Adapters of two kinds draw different texts. */
  readonly adapter?: string;
  /** Breaks each answer after so many tokens. */
  readonly breaksAfter?: number;
  /** Keeps its thread busy for so long in the middle of each answer, as work on a GPU may. */
  readonly blocksMs?: number;
}

const WORDS = 'the cat sat on a mat while rain ran down an old stone bridge'.split(' ');
const pause = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function block(ms: number): void {
  const until = performance.now() + ms;
  while (performance.now() < until);
}

/**
 * A model of which only the answers exist: words that follow from prompt, seed and kind of adapter, as a real model's do. Half of what
 * has tools calls one, under a name that is drawn anew each time.
 */
export function standInModel(options: StandInOptions = {}): ServingModel {
  const { name = 'stand-in', slots = 16, tokenMs = 5, adapter = 'stand-in' } = options;
  const counts = { running: 0, generated: 0, prompts: 0 };
  const metrics = () => ({
    running: counts.running,
    unfinished: counts.running,
    recovering: false,
    recoveriesTotal: 0,
    promptTokensTotal: counts.prompts,
    cachedTokensTotal: 0,
    generatedTokensTotal: counts.generated,
  });
  const info = {
    name,
    slots,
    contextLength: 4096,
    kvBlocks: 256,
    prefixCaching: true,
    hasChatTemplate: true,
    adapter: { name: adapter },
  };

  async function* events(
    prompts: readonly Prompt[],
    { n = 1, seed = 0, maxTokens = 16, signal, tools }: CompletionOptions,
  ): AsyncGenerator<CompletionEvent> {
    const total = prompts.length * n;
    counts.running += total;
    counts.prompts += total;
    try {
      const draws = Array.from({ length: total }, (_, index) => {
        const prompt = JSON.stringify(prompts[Math.floor(index / n)]);
        return new Random(hashOfText(`${prompt} ${seed} ${index} ${adapter}`));
      });
      // Side by side, in an order that is another each time.
      const left = draws.map((_, index) => ({ index, tokens: Math.min(maxTokens, 400) }));
      while (left.length > 0) {
        const at = Math.floor(Math.random() * left.length);
        const answer = left[at]!;
        const draw = draws[answer.index]!;
        if (tokenMs > 0) await pause(tokenMs / left.length);
        if (signal?.aborted) return;
        const word = ` ${WORDS[draw.integer(WORDS.length)]}`;
        counts.generated++;
        answer.tokens--;
        if (maxTokens - answer.tokens === options.breaksAfter) throw new Error('the stand-in broke');
        if (options.blocksMs !== undefined && answer.tokens === 5) block(options.blocksMs);
        const { index } = answer;
        if (answer.tokens > 0) {
          yield { index, text: word, logprobs: [] };
          continue;
        }
        left.splice(at, 1);
        const id = `call_${Math.random().toString(36).slice(2)}`;
        const call = tools &&
          tools.length > 0 && { toolCalls: [{ index: 0, id, name: tools[0]!.function.name, arguments: '{}' }] };
        yield { index, text: word, logprobs: [], finish: 'max_tokens', ...call };
      }
    } finally {
      counts.running -= total;
    }
  }

  const completeAll = (prompts: readonly Prompt[], given: CompletionOptions = {}): Completion => ({
    prompts: prompts.map(() => [1, 2, 3]),
    promptTokens: prompts.length,
    cachedTokens: 0,
    completionTokens: given.maxTokens ?? 16,
    reasoningTokens: 0,
    seed: given.seed ?? 0,
    abort: () => {},
    [Symbol.asyncIterator]: () => events(prompts, given),
  });
  const model = {
    info,
    promptSource: { tokenizerFiles: undefined, noTokenizer: undefined, contextLength: info.contextLength },
    failure: undefined,
    adapters: { list: [] },
    prepare: () => Promise.resolve(),
    completeAll,
    complete: (prompt: Prompt, given?: CompletionOptions) => completeAll([prompt], given),
    tokenize: () => [1, 2, 3],
    detokenize: () => 'one two three',
    dispose: () => Promise.resolve(),
    get metrics() {
      return metrics();
    },
  };
  return model as unknown as ServingModel;
}
