import { text as readAll } from 'node:stream/consumers';
import { stat } from 'node:fs/promises';
import { ioError, usageError } from '../../base/errors.js';
import { KV_BLOCK } from '../../base/kv_units.js';
import { formatBytes } from '../../base/math.js';
import { type Command, say } from '../command.js';
import { modelOptions, modelRequest, openHost } from '../model_options.js';
import { readGiven, without, writableGiven } from '../options.js';

export const command: Command = {
  summary:
    'Computes the keys and values of a text that prompts begin with, and writes them to a file: of a static site a page takes it by ranges (load: prefixes), and begins without computing it. It is of this model, --kv, splitkv version and kind of adapter: make it with --host chrome for pages.',
  words: ['model'],
  usage: 'prefix make MODEL --prompt TEXT|FILE --out FILE [options]',
  examples: ['splitkv prefix make smollm2-360m-instruct --prompt manual.txt --system --host chrome --out manual.kv'],
  options: {
    prompt: { value: 'TEXT', help: 'or the name of a file with it; - reads it from stdin' },
    system: {
      help: 'it is the system message; otherwise what questions begin with, as where a conversation is about it',
    },
    out: { value: 'FILE', help: 'where it is written' },
    ...without(modelOptions, 'kv-dir', 'kv-dir-size', 'prefixes'),
  },
  async run(options, terminal) {
    const given = options.required('prompt', 'give a text, or a file with it');
    options.required('out', 'name the file to write');
    const out = (await writableGiven(options, 'out'))!;
    const request = await modelRequest(options, terminal);
    const isFile = (await stat(given).catch(() => undefined))?.isFile();
    const text = given === '-' ? await readAll(process.stdin) : isFile ? await readGiven('prompt', given) : given;
    const { NodeKvFile } = await import('../../engine/cache/kept/node_folder.js');
    // What was there is replaced.
    const file = Object.assign(new NodeKvFile(out), { list: async () => [] });
    const kept = { kvDir: file, kvDirBytes: Number.MAX_SAFE_INTEGER };
    const host = await openHost({ ...request, options: { ...request.options, ...kept } });
    let tokens: number;
    try {
      tokens = await host.prefix({ signal: terminal.signal }, text, options.has('system'));
    } finally {
      await host.close();
    }
    const blocks = Math.floor(tokens / KV_BLOCK);
    if (blocks === 0)
      throw usageError(`--prompt: ${tokens} tokens; a file has whole blocks of ${KV_BLOCK}: give a longer text`);
    if (file.digest === undefined) throw ioError(`--out ${out}: nothing was written`);
    const { size: bytes } = await stat(out);
    const digest = `sha256-${Buffer.from(file.digest, 'hex').toString('base64')}`;
    const document = { path: out, tokens: blocks * KV_BLOCK, bytes, digest };
    const told = `${document.tokens} of the text's ${tokens} tokens, ${formatBytes(bytes)}, pinned as\n${out}#${digest}\n`;
    await say(options, terminal, document, told);
    return 0;
  },
};
