/**
 * Room: benchmarks, beside the product and not in the package. A suite runs whole in Node or in a page (`suites`),
 * contenders in turns (interleave.ts), compared by intervals (compare.ts). `cli` is the command, `peers` other
 * runtimes. Read suites/decode.ts next.
 */

import type { SuiteHooks, SuiteOutcome } from './document.js';
import type { ArrangedRequest } from './suites/arranged.js';
import type { CheckRequest } from './suites/check.js';
import type { DecodeRequest } from './suites/decode.js';
import type { GpuRequest } from './suites/gpu.js';
import type { KernelsRequest } from './suites/kernels.js';
import type { LeftOut } from './peers/peer_model.js';
import type { PeersRequest } from './suites/peers.js';
import type { PrefillRequest } from './suites/prefill.js';
import type { ProfileRequest } from './suites/profile.js';
import type { RanksRequest } from './suites/ranks.js';
import type { ServeRequest } from './suites/serve.js';
import type { SpeculateRequest } from './suites/speculate.js';
import type { ThroughputRequest } from './suites/throughput.js';
import type { VisionRequest } from './suites/vision.js';

/** What a suite measures: plain data, so that it can be told to a page. */
export type SuiteRequest =
  | DecodeRequest
  | PrefillRequest
  | KernelsRequest
  | CheckRequest
  | GpuRequest
  | RanksRequest
  | ServeRequest
  | ThroughputRequest
  | ProfileRequest
  | PeersRequest
  | ArrangedRequest
  | SpeculateRequest
  | VisionRequest;

export interface SuiteRun extends SuiteOutcome<unknown> {
  /** The results for people. */
  readonly table: string;
  /** Something was found to be wrong. */
  readonly failed?: boolean;
  /** What wasn't measured, and why. */
  readonly leftOut?: readonly LeftOut[];
}

/**
 * Runs a suite in this process or page, whichever it is; models are named by what `load` takes there.
 * @throws SplitkvError `usage` for an impossible request, `internal` for a wrong result: then nothing is timed
 */
export async function runSuite(request: SuiteRequest, hooks: SuiteHooks): Promise<SuiteRun> {
  switch (request.suite) {
    case 'decode': {
      const { decodeTable, runDecode } = await import('./suites/decode.js');
      const outcome = await runDecode(request, hooks);
      return { ...outcome, table: decodeTable(outcome.results) };
    }
    case 'prefill': {
      const { prefillTable, runPrefill } = await import('./suites/prefill.js');
      const outcome = await runPrefill(request, hooks);
      return { ...outcome, table: prefillTable(outcome.results) };
    }
    case 'kernels': {
      const { kernelsTable, runKernels } = await import('./suites/kernels.js');
      const outcome = await runKernels(request, hooks);
      return { ...outcome, table: kernelsTable(outcome.results, outcome.rates) };
    }
    case 'check': {
      const { checkTable, runCheck } = await import('./suites/check.js');
      const { line, ...outcome } = await runCheck(request, hooks);
      const failed = outcome.results.some(({ wrong }) => wrong.length > 0);
      return { ...outcome, failed, table: checkTable(outcome.results, line) };
    }
    case 'gpu': {
      const { gpuTable, runGpu } = await import('./suites/gpu.js');
      const outcome = await runGpu(request, hooks);
      return { ...outcome, table: gpuTable(outcome.results) };
    }
    case 'ranks': {
      const { ranksTable, runRanks } = await import('./suites/ranks.js');
      const outcome = await runRanks(request, hooks);
      return { ...outcome, table: ranksTable(outcome.results) };
    }
    case 'peers': {
      const { peersTable, runPeers } = await import('./suites/peers.js');
      const outcome = await runPeers(request, hooks);
      return { ...outcome, table: peersTable(outcome.results, outcome.leftOut) };
    }
    case 'arranged': {
      const { arrangedTable, runArranged } = await import('./suites/arranged.js');
      const outcome = await runArranged(request, hooks);
      return { ...outcome, table: arrangedTable(outcome.results) };
    }
    case 'throughput': {
      const { runThroughput, throughputTable } = await import('./suites/throughput.js');
      const outcome = await runThroughput(request, hooks);
      return { ...outcome, table: throughputTable(outcome.results) };
    }
    case 'profile': {
      const { profileTable, runProfile } = await import('./suites/profile.js');
      const outcome = await runProfile(request, hooks);
      return { ...outcome, table: profileTable(outcome.results) };
    }
    case 'speculate': {
      const { runSpeculate, speculateTable } = await import('./suites/speculate.js');
      const outcome = await runSpeculate(request, hooks);
      return { ...outcome, table: speculateTable(outcome.results) };
    }
    case 'vision': {
      const { runVision, visionTable } = await import('./suites/vision.js');
      const outcome = await runVision(request, hooks);
      return { ...outcome, table: visionTable(outcome.results, outcome.leftOut) };
    }
    case 'serve': {
      const { runServe, serveTable } = await import('./suites/serve.js');
      const outcome = await runServe(request, hooks);
      return { ...outcome, table: serveTable(outcome.results) };
    }
  }
}
