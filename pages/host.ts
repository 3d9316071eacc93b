// The page of `--host chrome`, beside the others while they run from source, with the benches. The package has it alone, without them.
import { attempt, onProgress, onWarning } from '../src/app/host.js';
import type { BenchHost } from '../bench/cli/run_hosted.js';

const bench: BenchHost['bench'] = (request) =>
  attempt(async (signal) => {
    const { runSuite } = await import('../bench/run_suite.js');
    return runSuite(request, { signal, onProgress, onWarning });
  });
Object.assign(window.splitkvHost, { bench });
