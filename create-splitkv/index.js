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

/** What called: npm, pnpm, yarn or bun. */
const manager = /^(pnpm|yarn|bun)\//.exec(process.env.npm_config_user_agent ?? '')?.[1] ?? 'npm';
/** npm takes options for itself before two dashes. */
const create = (folder, options) => `${manager} create splitkv ${folder} ${manager === 'npm' ? '-- ' : ''}${options}`;

const HELP = `Usage: ${create('[FOLDER]', '[--template NAME] [--model MODEL] [--install]')}

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
      // pnpm and yarn hand on the dashes that npm needs.
      args: process.argv.slice(2).filter((word) => word !== '--'),
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
  // npm without the dashes, or in PowerShell, takes `--template` for itself and leaves its value.
  if (values.template === undefined && Object.hasOwn(TEMPLATES, positionals[1] ?? '')) {
    [values.template] = positionals.splice(1, 1);
  }
  if (positionals.length > 1) throw new Refused(`one folder, not ${positionals.length}: ${positionals.join(' ')}`);
  const asks = process.stdin.isTTY && process.stdout.isTTY;
  const { folder, template } = await settle(positionals[0] || undefined, values.template, asks);
  const target = resolve(folder);
  const name = packageName(basename(target));
  const words = { name, model: checkModel(values.model ?? MODEL), package: values.package ?? `^${version}` };
  try {
    copy(join(own, 'templates', template), target, words);
  } catch (error) {
    throw new Refused(`${folder} can't be written (${error.message}); name another folder`);
  }
  console.log(`\n${template} is in ${folder}`);
  if (values.install) await install(target);
  const commands = [
    ...(target === process.cwd() ? [] : [`cd ${quoted(relative(process.cwd(), target))}`]),
    ...(values.install ? [] : [`${manager} install`]),
    firstCommand(target),
  ];
  console.log(
    `\nNow run:\n\n${commands.map((line) => `  ${line}`).join('\n')}\n\nREADME.md in the folder says the rest.`,
  );
}

/** What starts the app, of the scripts that it has. */
function firstCommand(target) {
  const { scripts } = JSON.parse(readFileSync(join(target, 'package.json'), 'utf8'));
  return `${manager} run ${['dev', 'start', 'build'].find((script) => script in scripts)}`;
}

/** The folder and the template, asked for in a terminal where they weren't given. */
async function settle(folder, template, asks) {
  if (template !== undefined) checkTemplate(template);
  if (folder !== undefined) checkFolder(folder);
  if (folder !== undefined && template !== undefined) return { folder, template };
  if (!asks) {
    const missing = [
      ...(folder === undefined ? ['the folder'] : []),
      ...(template === undefined ? ['the template'] : []),
    ];
    const command = create(quoted(folder ?? 'my-app'), `--template ${template ?? 'vanilla'}`);
    throw new Refused(`say ${missing.join(' and ')}: ${command}\n\n${HELP}`);
  }
  const terminal = createInterface({ input: process.stdin, output: process.stdout });
  const names = Object.keys(TEMPLATES);
  try {
    const where = folder ?? (await answerOf(terminal, 'Folder', 'splitkv-app', checkFolder));
    if (template !== undefined) return { folder: where, template };
    console.log(names.map((name, index) => `  ${index + 1}  ${name.padEnd(12)} ${TEMPLATES[name]}`).join('\n'));
    const nameOf = (answer) => names[Number(answer) - 1] ?? answer;
    const chosen = await answerOf(terminal, 'Template', '1', (answer) => checkTemplate(nameOf(answer)));
    return { folder: where, template: nameOf(chosen) };
  } catch (error) {
    if (error.code !== 'ABORT_ERR') throw error;
    // Ctrl-C or Ctrl-D.
    console.log();
    process.exit(130);
  } finally {
    terminal.close();
  }
}

/** Asks again until `check` doesn't refuse. */
async function answerOf(terminal, what, byDefault, check) {
  for (;;) {
    const answer = (await terminal.question(`${what} (${byDefault}): `)).trim() || byDefault;
    try {
      check(answer);
      return answer;
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      console.log(error.message);
    }
  }
}

function checkTemplate(name) {
  if (!Object.hasOwn(TEMPLATES, name)) {
    throw new Refused(`${name}: no such template; there are ${Object.keys(TEMPLATES).join(', ')}`);
  }
}

function checkFolder(given) {
  const target = resolve(given);
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

/** As a shell takes it: cmd and PowerShell know double quotes only, and a POSIX shell expands names in those. */
function quoted(path) {
  if (/^[\w./\\-]+$/.test(path) && (process.platform === 'win32' || !path.includes('\\'))) return path;
  return process.platform === 'win32' ? `"${path}"` : `'${path.replaceAll("'", `'\\''`)}'`;
}

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

/** Shows the progress of whatever installs. */
async function install(folder) {
  const script = process.env.npm_execpath ?? '';
  const [command, ...args] = /\.c?js$/.test(script) ? [process.execPath, script] : [manager];
  const child = spawn(command, [...args, 'install', ...(manager === 'npm' ? ['--no-audit', '--no-fund'] : [])], {
    cwd: folder,
    stdio: 'inherit',
    shell: process.platform === 'win32' && command === manager,
  });
  const code = await new Promise((done) => {
    child.on('error', () => done(127));
    child.on('exit', done);
  });
  if (code !== 0) throw new Refused(`${manager} install: exit code ${code}; the files are in ${folder}`);
}

try {
  await main();
} catch (error) {
  if (!(error instanceof Refused)) throw error;
  console.error(`create-splitkv: ${error.message}`);
  process.exitCode = 2;
}
