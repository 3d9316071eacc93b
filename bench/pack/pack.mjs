/**
 * Packs a folder that runs `splitkv bench --host node` on a Linux machine of this architecture with a GPU driver and nothing else: a Node
 * binary, the command line with its benches, Dawn's module, the Vulkan loader, the C++ library, the embedded models, and `bench.sh`, which finds what the machine itself has.
 *
 *   node bench/pack/pack.mjs FOLDER [--archive] [--model DIR]...
 *
 * --archive also writes FOLDER.tar.xz; --model takes more models along, as models/NAME.
 */
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, cpSync, existsSync, mkdirSync, mkdtempSync } from 'node:fs';
import { readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { build } from 'vite';
import { bundleWgsl, nodeOnly, publishedWorkers } from '../../scripts/build_plugins.mjs';

const root = fileURLToPath(new URL('../..', import.meta.url));
const DEBIAN_FOLDERS = { x64: 'x86_64-linux-gnu', arm64: 'aarch64-linux-gnu' };
/** What a bare machine may lack, and Debian's package of it. */
const LIBRARIES = { 'libvulkan.so.1': 'libvulkan1', 'libstdc++.so.6': 'libstdc++6', 'libgcc_s.so.1': 'libgcc-s1' };

class PackError extends Error {}

function run(command, args, options = {}) {
  const { status, stderr, error } = spawnSync(command, args, { encoding: 'utf8', ...options });
  if (status !== 0)
    throw new PackError(`${command} ${args.join(' ')} failed: ${(stderr || error?.message || '').trim()}`);
}

/** The library's file: as the system has it, else out of Debian's package, fetched into `scratch`. */
function library(name, scratch) {
  const folders = [`/usr/lib/${DEBIAN_FOLDERS[process.arch]}`, '/usr/lib64', '/usr/lib'];
  const installed = folders.map((folder) => join(folder, name)).find((path) => existsSync(path));
  if (installed) return realpathSync(installed);
  run('apt-get', ['download', LIBRARIES[name]], { cwd: scratch });
  const archive = readdirSync(scratch).find((file) => file.startsWith(`${LIBRARIES[name]}_`));
  run('dpkg-deb', ['-x', archive, '.'], { cwd: scratch });
  return realpathSync(join(scratch, 'usr/lib', DEBIAN_FOLDERS[process.arch], name));
}

/** The commit, with a '+' where files were changed since. */
function commit() {
  const git = (...args) => spawnSync('git', ['-C', root, ...args], { encoding: 'utf8' });
  const head = git('rev-parse', '--short=12', 'HEAD');
  if (head.status !== 0) return undefined;
  return head.stdout.trim() + (git('status', '--porcelain', '--untracked-files=no').stdout.trim() === '' ? '' : '+');
}

/** The command line in one folder, benches included, which the package (scripts/build.mjs) leaves out. */
const buildCommandLine = (outDir) =>
  build({
    configFile: false,
    root,
    logLevel: 'error',
    publicDir: false,
    base: './',
    // Pages' workers are not of this: Node has files of its own for them.
    plugins: [bundleWgsl(), publishedWorkers({ 'rank_worker_text.ts': '', 'form_worker_text.ts': '' })],
    build: {
      outDir,
      target: 'es2023',
      lib: {
        entry: {
          main: join(root, 'bench/cli/main.ts'),
          'splitkv-node_rank_worker': join(root, 'src/engine/workers/node_rank_worker.ts'),
          'splitkv-node_form_worker': join(root, 'src/grammar/threads/node_form_worker.ts'),
          node_request_worker: join(root, 'src/server/node_request_worker.ts'),
        },
        formats: ['es'],
        fileName: (_format, name) => `${name}.js`,
      },
      // onnxruntime-web runs in pages only, and is larger than all the rest.
      rollupOptions: {
        external: [...nodeOnly, 'onnxruntime-web'],
        output: { chunkFileNames: 'splitkv-[name].js', minify: true },
      },
    },
  });

async function pack(target, models) {
  if (process.platform !== 'linux' || !(process.arch in DEBIAN_FOLDERS)) {
    throw new PackError(
      `this packs for Linux on x64 and arm64, on a machine of that kind; this one is ${process.platform} ${process.arch}`,
    );
  }
  if (existsSync(target) && readdirSync(target).length > 0 && !existsSync(join(target, 'bench.sh'))) {
    throw new PackError(`${target}: not empty, and no pack; name a new folder`);
  }
  for (const model of models) {
    if (!existsSync(join(model, 'config.json')))
      throw new PackError(`--model ${model}: expected a folder with config.json`);
  }
  rmSync(target, { recursive: true, force: true });
  for (const folder of ['bin', 'lib', 'models', 'node_modules/webgpu/dist'])
    mkdirSync(join(target, folder), { recursive: true });

  copyFileSync(process.execPath, join(target, 'bin/node'));
  chmodSync(join(target, 'bin/node'), 0o755);
  for (const file of ['splitkv.js', 'quiet.js']) copyFileSync(join(root, 'bin', file), join(target, 'bin', file));
  await buildCommandLine(join(target, 'dist/cli'));
  const { name, version, license } = JSON.parse(readFileSync(join(root, 'package.json'), 'utf8'));
  const manifest = { name, version, license, private: true, type: 'module', commit: commit() };
  writeFileSync(join(target, 'package.json'), `${JSON.stringify(manifest, null, 2)}\n`);

  const dawn = dirname(fileURLToPath(import.meta.resolve('webgpu')));
  for (const file of ['index.js', 'package.json', 'LICENSE.md']) {
    copyFileSync(join(dawn, file), join(target, 'node_modules/webgpu', file));
  }
  const platform = `dist/linux-${process.arch}`;
  cpSync(join(dawn, platform), join(target, 'node_modules/webgpu', platform), { recursive: true });

  const scratch = mkdtempSync(join(tmpdir(), 'splitkv-pack-'));
  try {
    for (const file of Object.keys(LIBRARIES)) copyFileSync(library(file, scratch), join(target, 'lib', file));
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
  for (const model of [join(root, 'models/tiny-gqa'), join(root, 'models/tiny-mla'), ...models]) {
    cpSync(model, join(target, 'models', basename(resolve(model))), { recursive: true, dereference: true });
  }
  copyFileSync(join(root, 'bench/pack/bench.sh'), join(target, 'bench.sh'));
  chmodSync(join(target, 'bench.sh'), 0o755);
}

try {
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      archive: { type: 'boolean' },
      model: { type: 'string', multiple: true },
    },
  });
  if (positionals.length !== 1)
    throw new PackError('usage: node bench/pack/pack.mjs FOLDER [--archive] [--model DIR]...');
  const target = resolve(positionals[0]);
  await pack(target, values.model ?? []);
  console.log(target);
  if (values.archive) {
    run('tar', ['-cJf', `${target}.tar.xz`, '-C', dirname(target), basename(target)], {
      env: { ...process.env, XZ_OPT: '-T0' },
    });
    console.log(`${target}.tar.xz`);
  }
} catch (error) {
  if (!(error instanceof PackError) && !error.code?.startsWith('ERR_PARSE_ARGS')) throw error;
  console.error(`pack: ${error.message}`);
  process.exitCode = 1;
}
