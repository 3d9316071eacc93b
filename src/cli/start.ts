import { basename, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../app/example.js';
import { formatBytes } from '../base/math.js';
import type { GenerateResult } from '../index.js';
import { openChromeHost } from './chrome_host.js';
import type { Terminal } from './command.js';
import { summary } from './commands/generate.js';
import { runProcess } from './main.js';
import { optionHelp, parseOptions, type OptionSpecs } from './options.js';
import { startPageServer } from './page_server.js';

const OPTIONS = {
  model: { value: 'DIR', help: 'another model folder than the embedded one' },
  prompt: { value: 'TEXT', help: 'another question than the one about the story' },
  port: { value: 'N', help: 'port of the demo page; default 5173, or the next free one' },
  once: { help: 'end after the answer' },
  verbose: { help: 'say what happens' },
  help: { help: 'this text' },
} as const satisfies OptionSpecs;

/** `npm start`: one answer from a model in Chrome, what it took, and the demo page left served until Ctrl-C. */
export const start = (argv: readonly string[]): Promise<never> => runProcess(argv, (terminal) => run(argv, terminal));

async function run(argv: readonly string[], terminal: Terminal): Promise<number> {
  const options = parseOptions('start', OPTIONS, argv);
  if (options.has('help')) {
    await terminal.write(`npm start -- [options]\n\n${optionHelp(OPTIONS)}\n`);
    return 0;
  }
  const embedded = fileURLToPath(new URL(`../../${EMBEDDED_MODEL}`, import.meta.url));
  const model = options.text('model') ?? embedded;
  const prompt = options.text('prompt') ?? `${STORY} ${QUESTIONS[0].question}`;
  const server = await startPageServer(model, options.integer('port', 1, 65535) ?? 5173);
  try {
    await terminal.write(`${basename(resolve(model))} in Chrome (WebGPU)\n\n> ${prompt}\n\n`);
    const say = options.has('verbose') ? terminal.note : terminal.progress;
    const host = await openChromeHost(
      { model, options: {}, signal: terminal.signal, onProgress: say, onWarning: terminal.note },
      server,
    );
    let result: GenerateResult;
    let begun = false;
    try {
      result = await host.generate(prompt, false, { signal: terminal.signal }, (piece) => {
        void terminal.write(begun ? piece : piece.trimStart());
        begun ||= piece.trim() !== '';
      });
    } finally {
      await host.close();
    }
    await terminal.write(`\n\n${summary(result)}\n\n${ranksTable(result)}\n`);
    if (options.has('once') || terminal.signal.aborted) return terminal.signal.aborted ? 130 : 0;

    const page = model === embedded ? server.url : `${server.url}?model=${new URL(server.modelUrl).pathname}`;
    await terminal.write(`\nThe demo page is at ${page} (Ctrl-C ends)\n`);
    await new Promise((done) => terminal.signal.addEventListener('abort', done));
    return 0;
  } finally {
    await server.close();
  }
}

/** Who held what. */
function ranksTable({ stats }: GenerateResult): string {
  const rows = [
    ['rank', 'weights', 'KV cache', 'adapter'],
    ...stats.ranks.map(({ adapter, weight_bytes, kv_bytes }, rank) => [
      String(rank),
      formatBytes(weight_bytes),
      formatBytes(kv_bytes),
      adapter,
    ]),
  ];
  return rows
    .map(([rank, ...cells]) => `${rank!.padEnd(6)}${cells.map((cell) => cell.padEnd(12)).join('')}`.trimEnd())
    .join('\n');
}
