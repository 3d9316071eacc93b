#!/usr/bin/env node
/**
 * `npm create splitkv FOLDER -- --template NAME`: copies a template, with the model and the package that it is told, and says what to do
 * next. In a terminal it asks for what wasn't given; with `--install` it installs, too.
 */
import { spawn } from 'node:child_process';
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { basename, dirname, join, relative, resolve } from 'node:path';
import { createInterface } from 'node:readline/promises';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';

/** What each template is, in the order in which they are offered. */
const TEMPLATES = {
  vanilla: 'a page with a chat, built by Vite',
  'vite-react': 'a React app with a chat, built by Vite',
  next: 'a Next.js app with a chat',
  vue: 'a Vue app with a chat, built by Vite',
  svelte: 'a Svelte app with a chat, built by Vite',
  extension: 'a browser extension: popup, side panel and pages share one model',
  'node-server': "a server with OpenAI's API and a page that streams from it",
  rag: 'a page that answers from your documents and cites them',
  ranks: 'a page that runs one model on two devices, and says whether that helps',
};
const MODEL = 'smollm2-360m-instruct';
/** Names that npm takes for a package that isn't published. */
const PACKAGE_NAME = /^[a-z0-9~][a-z0-9._~-]{0,213}$/;

const own = dirname(fileURLToPath(import.meta.url));
const { version } = JSON.parse(readFileSync(join(own, 'package.json'), 'utf8'));

const HELP = `Usage: npm create splitkv [FOLDER] -- [--template NAME] [--model MODEL] [--install]

  FOLDER           where the app goes; new, or empty
  --template NAME  what is made:
${Object.entries(TEMPLATES)
  .map(([name, what]) => `                     ${name.padEnd(12)} ${what}`)
  .join('\n')}
  --model MODEL    a name of the catalog, ORG/NAME of the Hugging Face Hub, or an address; default: ${MODEL}
  --install        installs the packages, too
  --package SPEC   the splitkv that the app takes; default: this version
  --help           this text
`;

/** Ends with a message for whoever called, and no stack. */
class Refused extends Error {}

async function main() {
  let parsed;
  try {
    parsed = parseArgs({
      allowPositionals: true,
      options: {
        template: { type: 'string', short: 't' },
        model: { type: 'string', short: 'm' },
        package: { type: 'string' },
        install: { type: 'boolean', default: false },
        help: { type: 'boolean', short: 'h', default: false },
      },
    });
  } catch (error) {
    throw new Refused(`${error.message}\n\n${HELP}`);
  }
  const { values, positionals } = parsed;
  if (values.help) return void process.stdout.write(HELP);
  if (positionals.length > 1) throw new Refused(`one folder, not ${positionals.length}: ${positionals.join(' ')}`);
  const asks = process.stdin.isTTY && process.stdout.isTTY;
  const { folder, template } = await settle(positionals[0], values.template, asks);
  const target = resolve(folder);
  checkFolder(target, folder);
  const name = packageName(basename(target));
  copy(join(own, 'templates', template), target, {
    name,
    model: checkModel(values.model ?? MODEL),
    package: values.package ?? `^${version}`,
  });
  console.log(`\n${template} is in ${folder}`);
  if (values.install) await install(target);
  const commands = [
    ...(target === process.cwd() ? [] : [`cd ${quoted(relative(process.cwd(), target))}`]),
    ...(values.install ? [] : ['npm install']),
    firstCommand(target),
  ];
  console.log(
    `\nNow run:\n\n${commands.map((line) => `  ${line}`).join('\n')}\n\nREADME.md in the folder says the rest.`,
  );
}

/** What starts the app, of the scripts that it has. */
function firstCommand(target) {
  const { scripts } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'));
  if ('dev' in scripts) return 'npm run dev';
  return 'start' in scripts ? 'npm start' : 'npm run build';
}

/** The folder and the template, asked for in a terminal where they weren't given. */
async function settle(folder, template, asks) {
  if (template !== undefined) checkTemplate(template);
  if (folder !== undefined && template !== undefined) return { folder, template };
  if (!asks) {
    throw new Refused(
      `say ${folder === undefined ? 'the folder and ' : ''}the template: npm create splitkv ${folder ?? 'my-app'} -- --template vanilla\n\n${HELP}`,
    );
  }
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  try {
    const where = folder ?? ((await terminal.question('Folder (splitkv-app): ')).trim() || 'splitkv-app');
    if (template !== undefined) return { folder: where, template };
    const names = Object.keys(TEMPLATES);
    console.log(names.map((name, index) => `  ${index + 1}  ${name.padEnd(12)} ${TEMPLATES[name]}`).join('\n'));
    for (;;) {
      const answer = (await terminal.question('Template (1): ')).trim() || '1';
      const chosen = names[Number(answer) - 1] ?? answer;
      if (chosen in TEMPLATES) return { folder: where, template: chosen };
      console.log(`${answer}: a number from 1 to ${names.length}, or a name`);
    }
  } finally {
    terminal.close();
  }
}

function checkTemplate(name) {
  if (!Object.hasOwn(TEMPLATES, name)) {
    throw new Refused(`--template ${name}: there are ${Object.keys(TEMPLATES).join(', ')}`);
  }
}

function checkFolder(target, given) {
  if (!existsSync(target)) return;
  let there;
  try {
    there = readdirSync(target).filter((name) => name !== '.git');
  } catch {
    throw new Refused(`${given} is a file; name a folder that is new or empty`);
  }
  if (there.length > 0)
    throw new Refused(`${given} isn't empty (${there.slice(0, 3).join(', ')}); name another folder`);
}

/** It goes into files of several languages, between quotes. */
function checkModel(model) {
  if (!/^[\w@:/.~%+-]+$/.test(model)) {
    throw new Refused(`--model ${model}: expected a name, ORG/NAME or an address, without spaces and quotes`);
  }
  return model;
}

function packageName(folder) {
  const name = folder
    .toLowerCase()
    .replaceAll(/[^a-z0-9._~-]+/g, '-')
    .replaceAll(/^[._-]+|-+$/g, '');
  return PACKAGE_NAME.test(name) ? name : 'splitkv-app';
}

const quoted = (path) => (/^[\w./-]+$/.test(path) ? path : JSON.stringify(path));

/** Text files with `__NAME__`, `__MODEL__` and `__PACKAGE__` filled in. npm leaves a .gitignore out of packages: it is `_gitignore` there. */
function copy(from, to, words) {
  mkdirSync(to, { recursive: true });
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const source = join(from, entry.name);
    const target = join(to, entry.name === '_gitignore' ? '.gitignore' : entry.name);
    if (entry.isDirectory()) copy(source, target, words);
    else {
      const text = readFileSync(source, 'utf8');
      const filled = text.replaceAll(/__(NAME|MODEL|PACKAGE)__/g, (_, word) => words[word.toLowerCase()]);
      writeFileSync(target, filled);
    }
  }
}

/** Shows npm's own progress. */
async function install(folder) {
  const npm = process.env.npm_execpath;
  const [command, ...args] = npm?.endsWith('.js') ? [process.execPath, npm] : ['npm'];
  const child = spawn(command, [...args, 'install', '--no-audit', '--no-fund'], {
    cwd: folder,
    stdio: 'inherit',
    shell: process.platform === 'win32' && command === 'npm',
  });
  const code = await new Promise((done) => {
    child.on('error', () => done(127));
    child.on('exit', done);
  });
  if (code !== 0) throw new Refused(`npm install: exit code ${code}; the files are in ${folder}`);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.error(`create-splitkv: ${error.message}`);
  process.exitCode = 2;
}
