import { spawn } from 'node:child_process';
import { closeSync, ftruncateSync, mkdirSync, mkdtempSync, openSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { HostileEnd } from './hostile_child.js';
import type { HostileRow } from './hostile_rows.js';

/** Far more than it may take: then it is ended, as it would not end by itself. */
const MOST_MS = 60_000;

/** How a row ended, or that its process didn't live to say so. */
export interface RowEnd extends Omit<HostileEnd, 'before'> {
  readonly before?: number;
  readonly died?: string;
}

/** Opens the rows in one process of their own, in turn. Those after one that ended it have no end. */
export async function openInChild(rows: readonly HostileRow[]): Promise<RowEnd[]> {
  const scratch = mkdtempSync(join(tmpdir(), 'splitkv-hostile-'));
  try {
    const paths = rows.map((row, i) => write(row, join(scratch, `row${i}`)));
    const child = spawn(
      process.execPath,
      ['--import', './scripts/run_typescript.mjs', 'src/engine/files/testing/hostile_child.ts', ...paths],
      { stdio: ['ignore', 'pipe', 'pipe'], timeout: MOST_MS, killSignal: 'SIGKILL' },
    );
    let [said, complained] = ['', ''];
    child.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (complained = (complained + text).slice(-2000)));
    const ended = await new Promise<string>((resolve) => {
      child.on('close', (code, signal) => resolve(signal ?? String(code)));
    });
    const ends = said
      .split('\n')
      .filter((line) => line.startsWith('{'))
      .map((line) => JSON.parse(line) as HostileEnd);
    if (ended === '0') return ends;
    return [...ends, { died: `${ended} ${complained.trim().slice(-300)}`, ms: Number.NaN, most: Number.NaN }];
  } finally {
    rmSync(scratch, { recursive: true, force: true });
  }
}

/** Writes a row's folder. @returns its path, or that of its GGUF file */
function write({ files, text }: HostileRow, folder: string): string {
  mkdirSync(folder);
  let path = folder;
  for (const [name, content] of Object.entries(files())) {
    const file = join(folder, name);
    if (name.endsWith('.gguf')) path = file;
    if (typeof content === 'string' || content instanceof Uint8Array) {
      writeFileSync(file, content);
      continue;
    }
    const open = openSync(file, 'w');
    writeSync(open, content.start);
    ftruncateSync(open, content.bytes);
    closeSync(open);
  }
  if (text !== undefined) writeFileSync(`${path}.txt`, text);
  return path;
}
