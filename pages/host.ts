// The page of `--host chrome`, beside the others while they run from source, with the benches. The package has it alone, without them.
import { calls, onProgress, onWarning } from '../src/app/host.js';
import type { BenchCalls } from '../bench/cli/run_hosted.js';

const bench: BenchCalls['bench'] = async ({ signal }, request) => {
  const { runSuite } = await import('../bench/run_suite.js');
  return runSuite(request, { signal, onProgress, onWarning });
};
Object.assign(calls, { bench });
