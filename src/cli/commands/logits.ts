import { usageError } from '../../base/errors.js';
import type { Command, Terminal } from '../command.js';
import { LogitsDescriber, type LogitsDescription, writeLogitsDocument } from '../logits_document.js';
import { modelOptions, modelRequest, openHost } from '../model_options.js';
import { defined } from '../options.js';
import { readTokenLists, TOKENS_HINT } from '../prompt_files.js';

export const command: Command = {
  summary: 'Next-token logits after token ids: of the last position, or of every one.',
  words: ['model'],
  usage: 'logits MODEL --tokens 1,2,3 [options]',
  options: {
    tokens: { value: 'IDS', help: 'ids with commas, or @FILE.json: one list of ids, or a list of lists' },
    all: { help: 'every position, not only the last' },
    'prompt-length': {
      value: 'N',
      help: 'the first N ids are the prompt (default: all); those behind it are computed as if generated, over its compressed cache',
    },
    output: { value: 'WHAT', help: 'full (default), top, or argmax' },
    top: { value: 'N', help: 'how many --output top lists a position; default 10' },
    ...modelOptions,
  },
  async run(options, terminal) {
    const request = await modelRequest(options, terminal);
    const lists = await readTokenLists(options.required('tokens', TOKENS_HINT));
    const output = options.oneOf('output', ['full', 'top', 'argmax']) ?? 'full';
    const top = options.integer('top', 1) ?? 10;
    const promptLength = options.integer('prompt-length', 1);
    const short = lists.find((tokens) => tokens.length < (promptLength ?? 0));
    if (short) throw usageError(`--prompt-length ${promptLength}: a list has ${short.length} ids; give at most that`);
    const results: LogitsDescription[] = [];
    const host = await openHost(request);
    try {
      for (const [index, tokens] of lists.entries()) {
        terminal.progress(`logits of list ${index + 1} of ${lists.length}, ${tokens.length} tokens`);
        const describer = new LogitsDescriber(output, top);
        const onRow = (position: number, row: Float32Array): void => describer.add(position, row);
        const what = { all: options.has('all'), ...defined({ promptLength }) };
        await host.logits({ signal: terminal.signal, onRow }, tokens, what);
        results.push(describer.describe());
      }
      const stats = await host.stats();
      if (options.has('json')) await writeLogitsDocument(results, stats, (text) => terminal.write(text));
      else await writeTable(results, terminal);
    } finally {
      await host.close();
    }
    return 0;
  },
};

async function writeTable(results: readonly LogitsDescription[], terminal: Terminal): Promise<void> {
  for (const { positions, argmax, best, top, sha256 } of results) {
    for (const [index, position] of positions.entries()) {
      const others = top?.[index]?.map(([id, logit]) => `${id}:${logit.toFixed(4)}`).join(' ');
      const line = others ?? `argmax ${argmax[index]} logit ${best[index]!.toFixed(6)}`;
      await terminal.write(`position ${position}  ${line}\n`);
    }
    await terminal.write(`sha256 ${sha256}\n`);
  }
}
