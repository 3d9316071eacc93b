/**
 * `npm run contract`: the numerics contract on every model and plan of its tables (src/engine/testing/contract): digests of the logits on
 * one rank, in every weight and cache type, on every adapter found; whether each plan has the bits of one rank; what each rank
 * exchanges. Ends with code 1 where a plan's bits differ, or anything from the other tree.
 *
 *   npm run contract -- [--out FILE] [--against FILE | --against DIR] [--part digests|plans|routes] [--only TEXT]
 *
 * FILE: a document that `--out` wrote, on the same adapter and driver. DIR: another checkout, in which the same command is run first.
 */
import { spawnSync } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { ensurePackages } from './setup.mjs';

ensurePackages();
await import('./run_typescript.mjs');
const { runContract, compareContracts } = await import('../src/engine/testing/contract/run_contract.ts');

const { values } = parseArgs({
  options: {
    out: { type: 'string' },
    against: { type: 'string' },
    part: { type: 'string', multiple: true },
    only: { type: 'string' },
  },
});
const parts = values.part ?? ['digests', 'plans', 'routes'];

function otherDocument(path) {
  if (!statSync(path).isDirectory()) return JSON.parse(readFileSync(path, 'utf8'));
  const folder = mkdtempSync(join(tmpdir(), 'splitkv-contract-'));
  const file = join(folder, 'contract.json');
  const args = [join(path, 'scripts/contract.mjs'), '--out', file, ...parts.flatMap((part) => ['--part', part])];
  if (values.only !== undefined) args.push('--only', values.only);
  const { status } = spawnSync(process.execPath, args, { cwd: path, stdio: ['ignore', 2, 2] });
  if (status !== 0 && !statSync(file, { throwIfNoEntry: false })) throw new Error(`the contract of ${path} didn't run`);
  const document = JSON.parse(readFileSync(file, 'utf8'));
  rmSync(folder, { recursive: true });
  return document;
}

const other = values.against === undefined ? undefined : otherDocument(values.against);
let cases = 0;
const onCase = (text) => {
  cases++;
  console.log(text);
};
const document = await runContract({ parts, filter: values.only ?? '', onCase });
if (values.out !== undefined) writeFileSync(values.out, `${JSON.stringify(document, null, 1)}\n`);
const differences = other === undefined ? [] : compareContracts(document, other);
for (const text of document.broken) console.log(`not the bits of one rank: ${text}`);
for (const text of differences) console.log(`differs: ${text}`);
const failed = document.broken.length + differences.length;
console.log(`${cases} cases, ${failed} failed${other === undefined ? '' : `, compared with ${values.against}`}`);
process.exitCode = failed > 0 ? 1 : 0;
