import { spawn } from 'node:child_process';

/**
 * Dawn's Vulkan back end prints two lines each time that it looks at a driver whose limits are beyond its own, as Mesa's llvmpipe's are: four
 * times before an answer. It asks nobody, and Node can't put a filter on its own stderr. So a command runs in a process of its own, and
 * this one passes its stderr on without them.
 */
const NOISE =
  /Warning: maxDynamic(Uniform|Storage)BuffersPerPipelineLayout artificially reduced from \d+ to \d+ to fit dynamic offset allocation limit\.\n/g;
const BEGINNING = 'Warning: maxDynamic';

/** Set for the command's process: columns of the terminal that stderr goes to, '' where it is none. */
const PASSED = 'SPLITKV_STDERR';

/**
 * Whether the command line is to run behind the filter. Servers aren't: who supervises them wants one process.
 * @param {readonly string[]} argv
 */
export const needsQuiet = (argv) =>
  process.platform === 'linux' &&
  process.env[PASSED] === undefined &&
  process.execArgv.length === 0 &&
  argv[0] !== undefined &&
  /^[a-z]+$/.test(argv[0]) &&
  !['serve', 'rank', 'gateway', 'cluster', 'help'].includes(argv[0]);

/** In the command's process: its stderr is the terminal behind this one's filter. */
export function adoptTerminal() {
  const columns = process.env[PASSED];
  delete process.env[PASSED]; // what it starts is none of ours
  if (!columns) return;
  Object.assign(process.stderr, { isTTY: true, columns: Number(columns) });
  process.stdout.on('resize', () => Object.assign(process.stderr, { columns: process.stdout.columns }));
}

/**
 * Runs the command line again in a process of its own, and ends as that one does.
 * @param {string} script
 * @param {readonly string[]} argv
 */
export function runQuietly(script, argv) {
  const { isTTY, columns } = process.stderr;
  const child = spawn(process.execPath, [script, ...argv], {
    stdio: ['inherit', 'inherit', 'pipe'],
    env: { ...process.env, [PASSED]: isTTY ? String(columns || 80) : '' },
  });
  // A terminal tells both; the command takes two at the same moment for one.
  const signals = /** @type {const} */ (['SIGINT', 'SIGTERM', 'SIGHUP']);
  for (const signal of signals) process.on(signal, () => child.kill(signal));
  process.stderr.on('error', () => {}); // its reader went away
  const filter = lineFilter((text) => process.stderr.write(text));
  child.stderr.setEncoding('utf8').on('data', filter.push).on('end', filter.end);
  child.on('error', (error) => {
    console.error(`splitkv: can't start ${process.execPath}: ${error.message}`);
    process.exit(1);
  });
  child.on('close', (code, signal) => {
    if (signal === null) process.exit(code ?? 1);
    for (const each of signals) process.removeAllListeners(each);
    process.kill(process.pid, signal);
  });
}

/**
 * Passes text on as it comes, without NOISE: at the beginning of a line, or behind a bar that no line end follows. Only what may still
 * become it waits.
 * @param {(text: string) => void} write
 */
export function lineFilter(write) {
  let held = '';
  const push = (/** @type {string} */ chunk) => {
    const text = (held + chunk).replace(NOISE, '');
    const at = beginningOf(text);
    held = text.slice(at);
    if (at > 0) write(text.slice(0, at));
  };
  const end = () => {
    if (held !== '') write(held);
    held = '';
  };
  return { push, end };
}

/**
 * Where a last line may be the beginning of NOISE; the text's length where it can't be.
 * @param {string} text
 */
function beginningOf(text) {
  const whole = text.lastIndexOf(BEGINNING);
  if (whole >= 0 && !text.includes('\n', whole)) return whole;
  for (let size = Math.min(BEGINNING.length - 1, text.length); size > 0; size--) {
    if (text.endsWith(BEGINNING.slice(0, size))) return text.length - size;
  }
  return text.length;
}
