/**
 * Debian's packages for the set-up: installed system-wide, announced and undone, or unpacked into a folder of this checkout. apt's sources
 * and lists are in a scratch directory, so nothing but the packages stays.
 */
import { spawnSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { findNatsServer as findInstalled } from '../src/cli/cluster/find_nats_server.js';

const root = fileURLToPath(new URL('..', import.meta.url));
/** What was unpacked. */
const KEPT = join(root, 'node_modules/.cache/splitkv');
/** What was installed since the last undo: the machine's matter, whatever becomes of this checkout. */
const RECORD = '/var/lib/splitkv/installed.json';
/** A source that earlier versions of the set-up left. */
const OLD_SOURCE = '/etc/apt/sources.list.d/splitkv-backports.list';

const say = (text) => process.stderr.write(`[setup] ${text}\n`);
const isDebian = () =>
  process.platform === 'linux' && existsSync('/etc/debian_version') && existsSync('/usr/bin/apt-get');
export const maySystemInstall = () => isDebian() && process.getuid() === 0 && !process.env.SPLITKV_NO_SYSTEM_INSTALL;

/**
 * Runs `body` with apt-get reading the machine's own sources and `more`, by lists of its own.
 * @param more lines of a sources.list
 * @param body takes a function that runs apt-get: its exit status and what it said
 */
function withApt(more, body) {
  const scratch = mkdtempSync(join(tmpdir(), 'splitkv-apt-'));
  try {
    const parts = join(scratch, 'sources');
    mkdirSync(join(scratch, 'lists/partial'), { recursive: true });
    mkdirSync(join(scratch, 'archives/partial'), { recursive: true });
    const own = '/etc/apt/sources.list.d';
    if (existsSync(own)) cpSync(own, parts, { recursive: true });
    else mkdirSync(parts);
    if (more.length > 0) writeFileSync(join(parts, 'splitkv.list'), `${more.join('\n')}\n`);
    const settings = {
      'Dir::Etc::sourceparts': parts,
      'Dir::State::lists': join(scratch, 'lists'),
      'Dir::Cache::archives': join(scratch, 'archives'),
      'Dir::Cache::pkgcache': '',
      'Dir::Cache::srcpkgcache': '',
      'APT::Sandbox::User': 'root',
    };
    const options = Object.entries(settings).flatMap(([name, value]) => ['-o', `${name}=${value}`]);
    const apt = (args, { cwd = root, shown = true } = {}) => {
      const stdio = ['ignore', shown ? 2 : 'pipe', shown ? 2 : 'pipe'];
      const env = { ...process.env, DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' };
      const { status, stdout } = spawnSync('apt-get', [...options, ...args], { cwd, stdio, env, encoding: 'utf8' });
      return { ok: status === 0, text: stdout ?? '' };
    };
    apt(['-q', 'update'], { shown: false });
    return body(apt);
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Packages that a simulated run would change: [name, version before or undefined]. */
export const changesOf = (simulated) =>
  [...simulated.matchAll(/^Inst (\S+)(?: \[(\S+)\])? \(/gm)].map(([, name, before]) => [name, before]);

const readRecord = () => (existsSync(RECORD) ? JSON.parse(readFileSync(RECORD, 'utf8')) : []);

/**
 * Installs packages for the whole system; says so in one line, and remembers what to undo. True when it succeeded.
 * @param suite of Debian that they come from, beside the machine's own sources
 */
export function systemInstall(packages, what, suite) {
  const sources = suite ? [`deb http://deb.debian.org/debian ${suite} main`] : [];
  return withApt(sources, (apt) => {
    const args = ['-y', '--no-install-recommends', ...(suite ? ['-t', suite] : []), ...packages];
    const { ok, text } = apt(['install', '-s', ...args], { shown: false });
    if (!ok) return false;
    const changes = changesOf(text);
    const names = changes.map(([name, before]) => (before ? `${name} (now ${before})` : name)).join(' ');
    say(
      `installing ${what} for the whole system (undo: npm run setup -- --undo; never: SPLITKV_NO_SYSTEM_INSTALL=1): ${names}`,
    );
    const known = readRecord();
    const added = changes.filter(([name]) => !known.some(([other]) => other === name));
    mkdirSync(dirname(RECORD), { recursive: true });
    writeFileSync(RECORD, JSON.stringify([...known, ...added]));
    return apt(['-q', 'install', ...args]).ok;
  });
}

/**
 * Packages that others need, or packages which those need.
 * @param added names that were installed from here
 * @param installed lines of dpkg: name, what it depends on, what it provides, with | between
 */
export function neededOf(added, installed) {
  const names = (list) => [...list.matchAll(/(?:^|[,|]) *([\w.+-]+)/g)].map(([, name]) => name);
  const packages = installed.split('\n').map((line) => {
    const [name, depends = '', provides = ''] = line.split('\t');
    return { name, depends: names(depends), provides: names(provides) };
  });
  const mine = packages.filter(({ name }) => added.includes(name));
  const needed = new Set();
  const queue = packages.filter(({ name }) => !added.includes(name));
  for (const { depends } of queue) {
    for (const other of mine) {
      if (needed.has(other.name) || ![other.name, ...other.provides].some((name) => depends.includes(name))) continue;
      needed.add(other.name);
      queue.push(other);
    }
  }
  return added.filter((name) => needed.has(name));
}

/** What a simulated run would remove that isn't among `added`. */
export const othersRemoved = (simulated, added) =>
  [...simulated.matchAll(/^Remv (\S+)/gm)].map(([, name]) => name).filter((name) => !added.includes(name));

/**
 * Removes what `systemInstall` added, but for what other packages have come to need, and puts back what it replaced, as far as the
 * machine's sources still have it.
 * @param dry only says what it would do
 */
export function undoSystemInstalls(dry) {
  const changes = readRecord();
  if (!dry) rmSync(OLD_SOURCE, { force: true });
  if (changes.length === 0) return say('nothing was installed for the whole system from here');
  const added = changes.filter(([, before]) => !before).map(([name]) => name);
  const restored = changes.filter(([, before]) => before).map(([name, before]) => `${name}=${before}`);
  const fields = '${Package}\t${Depends}, ${Pre-Depends}\t${Provides}\n';
  const installed = spawnSync('dpkg-query', ['-W', '-f', fields], { encoding: 'utf8', maxBuffer: 2 ** 26 }).stdout;
  const needed = neededOf(added, installed);
  const removed = (all) => added.filter((name) => all || !needed.includes(name)).map((name) => `${name}-`);
  // What was replaced may be gone from the sources; what replaced it needs what was added.
  const ways = [[...removed(true), ...restored], [...removed(false), ...restored], removed(false)];
  const options = ['-y', '--allow-downgrades', '--no-install-recommends'];
  const done = withApt([], (apt) => {
    const wanted = ways.find((way) => {
      const { ok, text } = apt(['install', '-s', ...options, ...way], { shown: false });
      return ok && othersRemoved(text, added).length === 0;
    });
    if (!wanted) return false;
    say(`${dry ? 'would undo' : 'undoing'}: ${wanted.join(' ')}`);
    const stays = [...added, ...restored].filter((name) => !wanted.includes(name) && !wanted.includes(`${name}-`));
    if (stays.length > 0) say(`stays, as others need it, or as what was before is gone: ${stays.join(' ')}`);
    return dry || apt(['-q', 'install', ...options, ...wanted]).ok;
  });
  if (!done) throw new Error('apt-get cannot remove the packages without others; nothing was changed');
  if (!dry) rmSync(dirname(RECORD), { recursive: true });
}

/** Unpacks a Debian package below this checkout, without installing it or what it needs. Its folder, or undefined. */
export function unpack(name) {
  if (!isDebian() || process.env.SPLITKV_NO_SYSTEM_INSTALL) return undefined;
  const target = join(KEPT, name);
  return withApt([], (apt) => {
    const scratch = mkdtempSync(join(tmpdir(), 'splitkv-deb-'));
    try {
      if (!apt(['download', name], { cwd: scratch, shown: false }).ok) return undefined;
      mkdirSync(target, { recursive: true });
      const file = readdirSync(scratch).find((each) => each.endsWith('.deb'));
      const ok = file && spawnSync('dpkg-deb', ['-x', join(scratch, file), target]).status === 0;
      return ok ? target : undefined;
    } finally {
      rmSync(scratch, { recursive: true, force: true });
    }
  });
}

/** The nginx that there is: NGINX_PATH, the system's, or one unpacked here. */
export function findNginx() {
  const places = [
    process.env.NGINX_PATH,
    '/usr/sbin/nginx',
    '/usr/local/sbin/nginx',
    join(KEPT, 'nginx/usr/sbin/nginx'),
  ];
  return places.find((place) => place && existsSync(place) && spawnSync(place, ['-v']).status === 0);
}

/** The nats-server that there is: NATS_SERVER_PATH, the system's, or one unpacked here. */
export const findNatsServer = () => findInstalled([join(KEPT, 'nats-server/usr/sbin/nats-server')]);
