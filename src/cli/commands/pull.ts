import { usageError } from '../../base/errors.js';
import { formatBytes } from '../../base/math.js';
import { catalogHint } from '../../loader/hub/catalog.js';
import { type Command, commonOptions, say } from '../command.js';
import { hubNameOf, pull } from '../model_path.js';
import { hubOptions, networkOptions, tellingOf } from '../model_options.js';

export const command: Command = {
  summary:
    'Downloads a model of the Hugging Face Hub into the local cache that its tools share (HF_HUB_CACHE, else HF_HOME/hub, else ' +
    '~/.cache/huggingface/hub; for another Hub a folder of its own in it), and prints where it lies. What is there stays, what broke off goes on, and files are checked by their hashes.',
  usage:
    'pull MODEL [options]\n\nMODEL: ORG/NAME[@REVISION][/FILE.gguf], ORG/NAME:Q4_K_M, or a name that `splitkv models` lists',
  words: ['MODEL'],
  examples: ['splitkv pull smollm2-360m-instruct', 'splitkv pull Qwen/Qwen3-0.6B-GGUF:Q8_0'],
  options: { ...hubOptions, ...commonOptions },
  async run(options, terminal) {
    const given = options.text('MODEL');
    if (given === undefined) throw usageError('pull: which model? For example `splitkv pull smollm2-360m-instruct`');
    const network = networkOptions(options);
    const name = await hubNameOf(given, network);
    if (name === undefined) {
      throw usageError(
        `pull ${given}: expected ORG/NAME, or a name of the catalog (\`splitkv models\`).${catalogHint(given)}`,
      );
    }
    const pulled = await pull(name, { network, ...tellingOf(options, terminal) });
    const { repo, commit, folder, gguf = null, files, bytes, downloadedBytes } = pulled;
    const document = { model: repo, commit, path: folder, gguf, files, bytes, downloaded_bytes: downloadedBytes };
    await say(options, terminal, document, `${folder}${gguf === null ? '' : `/${gguf}`}\n`);
    if (options.has('json')) return 0;
    const came = downloadedBytes === 0 ? 'nothing was missing' : `${formatBytes(downloadedBytes)} downloaded`;
    terminal.note(`${repo} at ${commit.slice(0, 12)}: ${files.length} files, ${formatBytes(bytes)}; ${came}`);
    return 0;
  },
};
