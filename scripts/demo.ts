import { fileURLToPath } from 'node:url';
import { EMBEDDED_MODEL, QUESTIONS, STORY } from '../models/example.js';
import { rankTraffic } from '../pages/shared/figures.js';
import { parseRanks } from '../src/engine/contracts/options/read_texts.js';
import { formatBytes } from '../src/base/math.js';
import { modelName } from '../src/engine/files/model_name.js';
import type { GenerateResult, ModelInfo } from '../src/index.js';
import { describePlan } from '../src/placement/index.js';
import { count } from '../src/base/lists.js';
import { openChromeHost } from '../src/cli/hosts/chrome_host.js';
import type { Terminal } from '../src/cli/command.js';
import { summary } from '../src/cli/commands/generate.js';
import { runProcess } from '../src/cli/main.js';
import { type Options, parseOptions, type OptionSpecs } from '../src/cli/options.js';
import { optionHelp } from '../src/cli/terminal/help.js';
import { plain } from '../src/cli/terminal/style.js';
import { startPageServer } from '../src/cli/page_server.js';

const OPTIONS = {
  model: {
    value: 'MODEL',
    help: 'another model than the embedded one, as for `splitkv generate`: smollm2-360m-instruct, say',
  },
  prompt: { value: 'TEXT', help: 'another question than the one about the story' },
  ranks: {
    value: 'N',
    help: 'GPU devices that run the model; default 2; or an adapter each: "high-performance,low-power"',
  },
  plan: { value: 'PLAN', help: 'who holds what: tp (default), sp, tp+sp, pp, ep, auto, products such as "pp x tp"' },
  port: { value: 'N', help: 'port of the pages; default 5173, or the next free one' },
  once: { help: 'end after the answer' },
  verbose: { help: 'say what happens' },
  help: { help: 'this text' },
} as const satisfies OptionSpecs;

/**
 * `npm start`: one answer from a model on two ranks in Chrome, what it took and who held what, and the pages left served until
 * Ctrl-C.
 */
export const start = (argv: readonly string[]): Promise<never> => runProcess(argv, (terminal) => run(argv, terminal));

interface Placement {
  readonly ranks: number | readonly string[];
  readonly plan: string;
}

async function run(argv: readonly string[], terminal: Terminal): Promise<number> {
  const options = parseOptions('start', OPTIONS, argv);
  if (options.has('help')) {
    await terminal.write(
      `npm start -- [options]\n\n${optionHelp(OPTIONS, terminal.style?.out ?? plain, terminal.columns ?? 100)}\n`,
    );
    return 0;
  }
  const placement = placementOf(options);
  const embedded = fileURLToPath(new URL(`../${EMBEDDED_MODEL}`, import.meta.url));
  const given = options.text('model');
  const model = given === undefined ? embedded : await otherModel(given, terminal);
  const prompt = options.text('prompt') ?? `${STORY} ${QUESTIONS[0].question}`;
  const server = await startPageServer(model, options.integer('port', 1, 65535) ?? 5173);
  try {
    const { ranks } = placement;
    const many = count(typeof ranks === 'number' ? ranks : ranks.length, 'rank');
    await terminal.write(
      `${modelName(model)} on ${many} in Chrome (WebGPU)\n${model === embedded ? EMBEDDED : ''}\n> ${prompt}\n\n`,
    );
    const say = options.has('verbose') ? terminal.note : terminal.progress;
    const host = await openChromeHost(
      { model, options: placement, signal: terminal.signal, onProgress: say, onWarning: terminal.note },
      server,
    );
    let result: GenerateResult;
    let begun = false;
    try {
      const onText = (piece: string): void => {
        void terminal.write(begun ? piece : piece.trimStart());
        begun ||= piece.trim() !== '';
      };
      result = await host.generate({ signal: terminal.signal, onText }, prompt, {}, {});
    } finally {
      await host.close();
    }
    await terminal.write(`\n\n${summary(result)}\n\n${whoHeldWhat(host.info, result)}\n`);
    if (options.has('once') || terminal.signal.aborted) return terminal.signal.aborted ? 130 : 0;

    const address = ranksAddress(server.url, placement, model === embedded ? undefined : server.modelUrl);
    await terminal.write(`\nThe same in a page: ${address}\nAll pages: ${server.url} (Ctrl-C ends)\n`);
    await new Promise((done) => terminal.signal.addEventListener('abort', done));
    return 0;
  } finally {
    await server.close();
  }
}

/** The default needs no network, so it is small enough to be part of the repository. */
const EMBEDDED =
  'a tiny model, trained here, that knows some 270 words and answers questions about stories;\n' +
  'one that chats is downloaded by `npm start -- --model smollm2-360m-instruct` (`npx splitkv models` lists more)\n';

async function otherModel(given: string, terminal: Terminal): Promise<string> {
  const { modelPath } = await import('../src/cli/model_path.js');
  const { signal, progress: onProgress, note: onWarning } = terminal;
  return modelPath(given, { network: {}, pull: true, signal, onProgress, onWarning });
}

function placementOf(options: Options): Placement {
  const text = options.text('ranks') ?? '2';
  const ranks = parseRanks(text, `--ranks ${text}`);
  return { ranks, plan: options.text('plan') ?? (ranks === 1 ? 'auto' : 'tp') };
}

/** The page that shows ranks, with the same ones; the embedded model is its own. */
function ranksAddress(pages: string, { ranks, plan }: Placement, modelUrl: string | undefined): string {
  const url = new URL('ranks.html', pages);
  if (modelUrl !== undefined) url.searchParams.set('model', new URL(modelUrl).pathname);
  url.searchParams.set('ranks', String(ranks));
  url.searchParams.set('plan', plan);
  return url.href;
}

/** The plan in words, then each rank's memory and traffic. */
function whoHeldWhat({ plan, shape }: ModelInfo, { stats }: GenerateResult): string {
  const traffic = stats.ranks.map((_, rank) => rankTraffic(stats, rank));
  const rows = [
    ['rank', 'weights', 'KV cache', ...traffic[0]!.map(([name]) => name.toLowerCase()), 'adapter'],
    ...stats.ranks.map(({ adapter, weight_bytes, kv_bytes }, rank) => [
      String(rank),
      formatBytes(weight_bytes),
      formatBytes(kv_bytes),
      ...traffic[rank]!.map(([, text]) => text),
      adapter,
    ]),
  ];
  const table = rows.map(([rank, ...cells]) =>
    `${rank!.padEnd(6)}${cells.map((cell) => cell.padEnd(14)).join('')}`.trimEnd(),
  );
  const exchanges = stats.ranks.length > 1 ? [`${stats.exchanges_per_token} exchanges per token`, ''] : [];
  return [...describePlan(plan, shape), '', ...exchanges, ...table].join('\n');
}
